"""``deepwire evaluate-directions``: the table of a model of many languages, alone or against a baseline."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.cli.analyses.options import FindingOutputs, Plots
from deepwire.cli.decoding_options import (
    BatchTokens,
    Beam,
    Device,
    LengthPenalty,
    OtherSettings,
    Precision,
    Seen,
    TestSamples,
    TestSeed,
    search_settings,
    with_others,
)
from deepwire.cli.evaluate import require_metrics
from deepwire.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deepwire.data.languages import Direction
    from deepwire.evaluation.comparison import PairedTest
    from deepwire.evaluation.metric_choice import LanguageMetrics
    from deepwire.evaluation.multilingual.direction_names import Group
    from deepwire.evaluation.multilingual.direction_table import DirectionsReport
    from deepwire.evaluation.texts import SearchSettings
    from deepwire.lab.report.finding import Finding, ModelSource

_SYSTEM = "a model; a folder of DIRECTION.hyp; or a pattern with {direction} of models or files"

SystemName = Annotated[str, typer.Argument(metavar="SYSTEM", help=f"What to evaluate: {_SYSTEM}.")]
BaselineName = Annotated[
    str | None, typer.Argument(metavar="[BASELINE]", help="What to compare with, in the same forms.")
]
Test = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="Test sets: a prefix (PREFIX.en, PREFIX.de; {pair} in it stands for de-en), or the folder of "
        "OPUS-100. Default: data.test of the run.",
    ),
]
Directions = Annotated[
    str | None, typer.Option(metavar="en-de,de-en", help="Directions. Default: all that SYSTEM has.")
]
ZeroShot = Annotated[
    bool, typer.Option("--zero-shot", help="Also all directions of its languages that it was not trained on.")
]
Trained = Annotated[
    str | None,
    typer.Option(
        metavar="en-de,de-en", help="The trained directions, where SYSTEM does not say; others are zero-shot."
    ),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="bleu|chrf|chrf++|ter|spbleu|spbleu-101",
        help="Repeatable, the first counts for the win ratio. Default: bleu and chrf.",
    ),
]
Tokenize = Annotated[
    str | None,
    typer.Option(
        metavar="13a|ja=char,...",
        help="BLEU's tokenizer, for all or by language. Default: zh, ja, ko their own, others 13a.",
    ),
]
Lowercase = Annotated[bool, typer.Option("--lowercase", help="Ignore case.")]
Centre = Annotated[
    str, typer.Option(help="The language out of which and into which directions are averaged apart.")
]
Subset = Annotated[str | None, typer.Option(metavar="de,zh,br,te", help="Languages to average besides all.")]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="NAME=de,fr", help="More languages to average; repeatable."),
]
Sizes = Annotated[
    Path | None,
    typer.Option(
        help='JSON of training pairs: {"de": 1000000, "en-br": 153447}. Default: recorded with the model.'
    ),
]
High = Annotated[int, typer.Option(min=1, help="Training pairs from which a language is high-resource.")]
Low = Annotated[int, typer.Option(min=1, help="Training pairs below which a language is low-resource.")]
Paired = Annotated[
    str, typer.Option(help="Test of the differences to the baseline: bootstrap, randomization or none.")
]
LanguageText = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="Training text to learn to tell languages apart from, as in --test; shows how much came out in "
        "the right language. Default with zero-shot directions: data.train of the run.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="Folder for translations of SYSTEM; those already there are not made again."
    ),
]
Html = Annotated[Path | None, typer.Option("--html", help="Also write the table with bars as one HTML page.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON with all numbers.")]


def evaluate_directions(
    system: SystemName,
    baseline: BaselineName = None,
    test: Test = None,
    directions: Directions = None,
    zero_shot: ZeroShot = False,
    trained: Trained = None,
    metric: Metrics = None,
    tokenize: Tokenize = None,
    lowercase: Lowercase = False,
    centre: Centre = "en",
    subset: Subset = None,
    group: Groups = None,
    sizes: Sizes = None,
    high: High = 900_000,
    low: Low = 100_000,
    paired: Paired = "bootstrap",
    samples: TestSamples = None,
    seed: TestSeed = None,
    language_text: LanguageText = None,
    output: Output = None,
    html: Html = None,
    plots: Plots = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    batch_tokens: BatchTokens = None,
    set_: OtherSettings = None,
    device: Device = "auto",
    precision: Precision = "auto",
    seen: Seen = False,
    as_json: Json = False,
) -> None:
    """Score all directions of a model of many languages: each, on average, by group, against a baseline.

    deepwire evaluate-directions runs/six --test multi30k/test_2016_flickr

    deepwire evaluate-directions runs/six 'runs/{direction}' --html six.html

    deepwire evaluate-directions hyps/ours hyps/theirs --test opus-100-corpus --subset de,zh,br,te
    """
    from deepwire.cli.line_by_line import warn
    from deepwire.evaluation.multilingual import direction_evaluation as work

    read = [*_files_of(system), *_files_of(baseline), *_texts_at(test), *_texts_at(language_text), sizes]
    outputs = FindingOutputs(as_json, html, plots, read=read, models=[system], needs_pictures=False)
    changes = with_others(search_settings(beam, length_penalty, None, None, batch_tokens), set_)
    request = work.DirectionsRequest(
        system=system,
        baseline=baseline,
        test=test,
        directions=_directions(directions) or [],
        zero_shot=zero_shot,
        trained=_directions(trained),
        metrics=_metrics(metric, tokenize, lowercase),
        averages=work.DirectionAverages(centre, _groups(subset, group), sizes, high, low),
        paired=_paired(paired, baseline, samples, seed),
        language_text=language_text,
        output=output,
        search=_search(changes, device, precision, seen),
    )
    report = work.evaluate_directions(request, warn, _progress)
    outputs.write([_finding(report, system, baseline)], more=report.to_json())


def _files_of(system: str | None) -> list[Path]:
    """The files in the folder of a system, such as its translations."""
    return list(Path(system).iterdir()) if system and Path(system).is_dir() else []


def _texts_at(place: str | None) -> list[Path]:
    """The files of a folder of test sets, or those beside a prefix."""
    if not place:
        return []
    if Path(place).is_dir():
        return list(Path(place).rglob("*"))
    folder = Path(place.partition("{")[0] + "x").parent
    return list(folder.iterdir()) if folder.is_dir() else []


def _search(changes: Mapping[str, object], device: str, precision: str, seen: bool) -> SearchSettings:
    from deepwire.evaluation.texts import SearchSettings

    return SearchSettings(changes, device, precision, "seen" if seen else False)


def _finding(report: DirectionsReport, system: str, baseline: str | None) -> Finding:
    from deepwire.lab.direction_scores import directions_finding

    return directions_finding(report, _models(system, baseline))


def _models(*systems: str | None) -> list[ModelSource]:
    """Names of the systems that are one model; others have the title of the finding."""
    from deepwire.errors import ModelError
    from deepwire.lab.subject.model_and_text import model_source

    sources = []
    for system in filter(None, systems):
        with suppress(ModelError):
            sources.append(model_source(system))
    return sources


def _directions(text: str | None) -> list[Direction] | None:
    from deepwire.evaluation.multilingual.direction_names import parse_directions

    return parse_directions(text) if text else None


def _metrics(names: Sequence[str] | None, tokenize: str | None, lowercase: bool) -> LanguageMetrics:
    from deepwire.evaluation.metric_choice import LanguageMetrics, metric_name, parse_tokenizers

    chosen = list(dict.fromkeys(map(metric_name, names) if names else LanguageMetrics.names))
    require_metrics(chosen, tokenize, lowercase)
    return LanguageMetrics(chosen, parse_tokenizers(tokenize or ""), lowercase=lowercase)


def _paired(test: str, baseline: str | None, samples: int | None, seed: int | None) -> PairedTest | None:
    from deepwire.evaluation.comparison import PairedTest

    if test != "none":
        paired = PairedTest(test, 0, samples, seed)
        paired.check(2)
        if baseline is not None:
            return paired
    for option, value in (("--samples", samples), ("--seed", seed)):
        if value is not None:
            raise UsageError(f"{option} is for tests against a BASELINE, and there are none", "leave it out")
    return None


def _groups(subset: str | None, groups: Sequence[str] | None) -> list[Group]:
    from deepwire.evaluation.multilingual.direction_names import parse_group

    return [parse_group(text) for text in (*([subset] if subset else ()), *(groups or ()))]


def _progress(line: str) -> None:
    import sys

    print(line, file=sys.stderr)
