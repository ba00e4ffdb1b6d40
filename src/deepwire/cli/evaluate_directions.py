"""``deepwire evaluate-directions``: the table of a model of many languages, alone or against a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.cli import options as opt
from deepwire.cli.analyses.options import FindingOutputs, Html, Json, Plots
from deepwire.cli.line_by_line import tell, warn
from deepwire.cli.settings import with_settings
from deepwire.errors import ModelError, UsageError

if TYPE_CHECKING:
    from deepwire.evaluation.comparison import PairedTest
    from deepwire.evaluation.metric_choice import LanguageMetrics

_SYSTEM = "a model; a folder of DIRECTION.hyp; or a pattern with {direction} of models or files"

Systems = Annotated[
    list[str],
    typer.Argument(
        metavar="SYSTEM [BASELINE] [KEY=VALUE]...",
        help=f"What to evaluate, and what to compare it with: {_SYSTEM}. KEY=VALUE: decoding settings.",
    ),
]
Test = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="Test sets: a prefix (PREFIX.en, PREFIX.de; {pair} in it stands for de-en), or the folder of "
        "OPUS-100. Default: data.test of the run.",
    ),
]
Directions = Annotated[str | None, typer.Option(metavar="en-de,de-en", help="Default: all of SYSTEM.")]
ZeroShot = Annotated[
    bool, typer.Option("--zero-shot", help="Also all directions that it was not trained on.")
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
Centre = Annotated[str, typer.Option(help="The language from and to which directions are averaged apart.")]
Subset = Annotated[str | None, typer.Option(metavar="de,zh,br,te", help="Languages to average besides all.")]
Groups = Annotated[list[str] | None, typer.Option("--group", metavar="NAME=de,fr", help="Averaged, too.")]
Sizes = Annotated[
    Path | None,
    typer.Option(
        help='JSON of training pairs: {"de": 1000000, "en-br": 153447}. Default: recorded with the model.'
    ),
]
High = Annotated[int, typer.Option(min=1, help="Training pairs from which a language is high-resource.")]
Low = Annotated[int, typer.Option(min=1, help="Training pairs below which a language is low-resource.")]
Paired = Annotated[str, typer.Option(help="Test against the baseline: bootstrap, randomization or none.")]
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


@with_settings("beam", "length_penalty")
def evaluate_directions(
    systems: Systems,
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
    samples: opt.TestSamples = None,
    seed: opt.TestSeed = None,
    language_text: LanguageText = None,
    output: Output = None,
    html: Html = None,
    plots: Plots = None,
    *,
    settings: opt.Settings,
    device: opt.Device = "auto",
    precision: opt.Precision = "auto",
    seen: opt.Seen = False,
    as_json: Json = False,
) -> None:
    """Score all directions of a model of many languages: each, on average, by group, against a baseline.

    deepwire evaluate-directions runs/six --test multi30k/test_2016_flickr

    deepwire evaluate-directions runs/six 'runs/{direction}' --html six.html

    deepwire evaluate-directions hyps/ours hyps/theirs --test opus-100-corpus --subset de,zh,br,te
    """
    from deepwire.evaluation.multilingual import direction_evaluation as work
    from deepwire.evaluation.multilingual.direction_names import parse_directions, parse_group
    from deepwire.evaluation.texts import SearchSettings
    from deepwire.lab.direction_scores import directions_finding
    from deepwire.lab.subject.model_and_text import model_source

    if len(systems) > 2:
        raise UsageError(f"SYSTEM and BASELINE are two, not {len(systems)}", "compare two at a time")
    system, baseline = systems[0], systems[1] if len(systems) > 1 else None
    folders = [Path(name) for name in systems if Path(name).is_dir()]
    read = [*(file for folder in folders for file in folder.iterdir())]
    read += [file for place in (test, language_text) for file in _texts_at(place)]
    outputs = FindingOutputs(as_json, html, plots, read=[*read, sizes], models=[system])
    groups = [parse_group(text) for text in (*([subset] if subset else ()), *(group or ()))]
    request = work.DirectionsRequest(
        system=system,
        baseline=baseline,
        test=test,
        directions=parse_directions(directions) if directions else [],
        zero_shot=zero_shot,
        trained=parse_directions(trained) if trained else None,
        metrics=_metrics(metric, tokenize, lowercase),
        averages=work.DirectionAverages(centre, groups, sizes, high, low),
        paired=_paired(paired, baseline, samples, seed),
        language_text=language_text,
        output=output,
        search=SearchSettings(settings, device, precision, "seen" if seen else False),
    )
    report = work.evaluate_directions(request, warn, tell)
    sources = []
    for name in systems:
        with suppress(ModelError):  # texts, and patterns of many models, have the title of the finding
            sources.append(model_source(name))
    outputs.write([directions_finding(report, sources)], more=report.to_json())


def _texts_at(place: str | None) -> list[Path]:
    """The files of a folder of test sets, or those beside a prefix."""
    if not place:
        return []
    if Path(place).is_dir():
        return list(Path(place).rglob("*"))
    folder = Path(place.partition("{")[0] + "x").parent
    return list(folder.iterdir()) if folder.is_dir() else []


def _metrics(names: Sequence[str] | None, tokenize: str | None, lowercase: bool) -> LanguageMetrics:
    from deepwire.evaluation.metric_choice import LanguageMetrics, metric_name, parse_tokenizers

    chosen = list(dict.fromkeys(map(metric_name, names) if names else LanguageMetrics.names))
    return LanguageMetrics(chosen, parse_tokenizers(tokenize or ""), lowercase=lowercase)


def _paired(test: str, baseline: str | None, samples: int | None, seed: int | None) -> PairedTest | None:
    from deepwire.evaluation.comparison import PairedTest

    if test != "none":
        paired = PairedTest(test, 0, samples, seed)
        paired.check(2)
        if baseline is not None:
            return paired
    for option in opt.specified(samples=samples, seed=seed):
        raise UsageError(f"--{option} is for tests against a BASELINE, and there are none", "leave it out")
    return None
