"""``deepwire evaluate``: scores of files or of models, and tests of their differences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.cli.decoding_options import (
    BatchTokens,
    Beam,
    Device,
    DirectionName,
    Groups,
    LengthPenalty,
    OtherSettings,
    Precision,
    Rounds,
    Seen,
    ShortlistFrom,
    TestSamples,
    TestSeed,
    UseShortlist,
    chosen_shortlist,
    search_settings,
    specified,
    with_others,
)
from deepwire.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deepwire.api.evaluate import EvaluationSettings, ReadSystem
    from deepwire.data.languages import Direction
    from deepwire.evaluation.comparison import PairedTest, ScoreReport
    from deepwire.evaluation.metric_choice import LanguageMetrics
    from deepwire.evaluation.metric_command import MetricCommand
    from deepwire.evaluation.texts import Text

Hypotheses = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[HYP]...", help="Translations, one file per system; - is stdin."),
]
References = Annotated[
    list[Path] | None, typer.Option("--reference", "-r", help="Reference text; repeat for several.")
]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", "-m", help="Translate with this model and score the result; repeat to compare."),
]
Source = Annotated[Path | None, typer.Option("--source", "-s", help="Text for the models to translate.")]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="bleu|chrf|chrf++|ter|multi-bleu",
        help="Repeatable. Default: bleu.",
    ),
]
MetricCommands = Annotated[
    list[str] | None,
    typer.Option(
        "--metric-command",
        metavar="NAME=COMMAND",
        help="A metric that another program computes: 'comet=comet-score -s {source} -t {hypothesis} "
        "-r {reference} --quiet --to_json {scores}'; repeatable.",
    ),
]
LowerIsBetter = Annotated[
    list[str] | None,
    typer.Option("--lower-is-better", metavar="NAME", help="A --metric-command that counts errors."),
]
Tokenize = Annotated[
    str | None,
    typer.Option(
        help="BLEU's tokenizer: 13a, intl, zh, ja-mecab, ko-mecab, flores200, char or none. Default: that of "
        "the language."
    ),
]
Language = Annotated[
    str | None,
    typer.Option(
        metavar="ja",
        help="Language of the translations, for BLEU's tokenizer. Default: the target language of the model, "
        "or what the reference's name ends in.",
    ),
]
Lowercase = Annotated[bool, typer.Option("--lowercase", help="Ignore case in BLEU, chrF and multi-bleu.")]
SplitHyphens = Annotated[
    bool, typer.Option("--split-hyphens", help="multi-bleu: rewrite a-b to a ##AT##-##AT## b first.")
]
Paired = Annotated[
    str | None, typer.Option(help="Test the differences to the baseline: bootstrap or randomization.")
]
Baseline = Annotated[
    str | None, typer.Option(help="The HYP or MODEL to compare with; added if not given. Default: the first.")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the translation of the (one) model there.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON with all numbers.")]


def evaluate(
    hypotheses: Hypotheses = None,
    reference: References = None,
    model: Models = None,
    source: Source = None,
    direction: DirectionName = None,
    metric: Metrics = None,
    metric_command: MetricCommands = None,
    lower_is_better: LowerIsBetter = None,
    tokenize: Tokenize = None,
    language: Language = None,
    lowercase: Lowercase = False,
    split_hyphens: SplitHyphens = False,
    paired: Paired = None,
    baseline: Baseline = None,
    samples: TestSamples = None,
    seed: TestSeed = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    groups: Groups = None,
    rounds: Rounds = None,
    batch_tokens: BatchTokens = None,
    set_: OtherSettings = None,
    device: Device = "auto",
    precision: Precision = "auto",
    shortlist: UseShortlist = False,
    shortlist_from: ShortlistFrom = None,
    seen: Seen = False,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Score translations with BLEU, chrF and TER (sacrebleu, with signatures) or multi-bleu; compare systems.

    deepwire evaluate hyp.txt --reference ref.txt --metric bleu --metric chrf

    deepwire evaluate base.txt new.txt --reference ref.txt --paired bootstrap

    deepwire evaluate --model runs/a --model runs/b@avg5 --source test.de --reference test.en

    deepwire evaluate --model runs/a   (on data.test of its run file; of several directions --direction de-en)
    """
    from deepwire.api.evaluate import EvaluationSettings, score_texts
    from deepwire.cli.line_by_line import warn
    from deepwire.evaluation.texts import SearchSettings, target_language

    models = list(model or ())
    files = _with_baseline([str(path) for path in hypotheses or ()], models, baseline)
    changes = with_others(search_settings(beam, length_penalty, groups, rounds, batch_tokens), set_)
    words = chosen_shortlist(shortlist, shortlist_from, seen)
    commands = _commands(metric_command or (), lower_is_better or ())
    metrics = _metrics(metric or [], commands, tokenize, lowercase, split_hyphens)
    reads_source = any(each.needs_source for each in metrics.of(language or ""))
    on_text = specified(
        source=None if reads_source else source,
        direction=direction,
        seen=seen or None,
        shortlist=words or None,
        device=None if device == "auto" else device,
        precision=None if precision == "auto" else precision,
    )
    _check_inputs([*files, *models], models, reference, source, output, on_text | changes)
    into = language or (target_language(models[0], _parsed_direction(direction)) if models else "")
    metrics.of(into)  # an unknown one is named before anything is read
    test = _test(paired, [*files, *models], baseline, samples, seed)
    search = SearchSettings(changes, device, precision, words, _parsed_direction(direction))
    settings = EvaluationSettings(metrics, into, search)
    texts, references, text = _texts(files, models, reference or (), source, settings)
    try:
        _write(output, texts[-1])
    finally:  # the scores are shown even when the disk is full
        _show(score_texts(texts, references, settings, test, warn, text), as_json)


def _parsed_direction(direction: str | None) -> Direction | None:
    from deepwire.evaluation.multilingual.direction_names import parse_direction

    return None if direction is None else parse_direction(direction)


def _check_inputs(
    systems: Sequence[str],
    models: Sequence[str],
    references: Sequence[Path] | None,
    source: Path | None,
    output: Path | None,
    for_models: Mapping[str, object],
) -> None:
    from deepwire.evaluation.texts import test_files
    from deepwire.io.output import check_output

    if not systems:
        raise UsageError("nothing to evaluate", "name hypothesis files, or a model with --model")
    for name in () if models else for_models:
        option = f"--{name.replace('_', '-')}"
        raise UsageError(f"{option} is for models, and there is no --model", "leave it out, or add --model")
    if not references and (not models or source is not None):
        raise UsageError("there is no reference", "add --reference FILE")
    if [*systems, str(source), *map(str, references or ())].count("-") > 1:
        raise UsageError("only one text can come from stdin (-)", "put the other texts into files")
    if output is not None and len(models) != 1:
        raise UsageError(f"--output needs exactly one --model, not {len(models)}", "run it once per model")
    if output is not None:
        read = [*map(Path, systems), *(references or ()), *([] if source is None else [source])]
        check_output(output, [*read, *(path for name in models for path in test_files(name))])


def _commands(commands: Sequence[str], lower_is_better: Sequence[str]) -> list[MetricCommand]:
    """The metrics that other programs compute."""
    from deepwire.evaluation.metric_command import MetricCommand

    made: dict[str, MetricCommand] = {}
    for text in commands:
        name, equals, command = text.partition("=")
        if not name.strip() or not equals or name in made:
            what = "is given twice" if name in made else "is not NAME=COMMAND"
            raise UsageError(
                f"--metric-command {text!r} {what}", "such as 'comet=comet-score -s {source} ...'"
            )
        made[name] = MetricCommand(name, command, higher_is_better=name not in lower_is_better)
    if unknown := sorted(set(lower_is_better).difference(made)):
        raise UsageError(f"--lower-is-better {unknown[0]}: there is no --metric-command of this name")
    return list(made.values())


def _metrics(
    names: Sequence[str],
    commands: Sequence[MetricCommand],
    tokenize: str | None,
    lowercase: bool,
    split_hyphens: bool,
) -> LanguageMetrics:
    """The metrics; an option of one that is not among them would leave its number out without a word."""
    from deepwire.evaluation.metric_choice import LanguageMetrics, metric_name, parse_tokenizers

    names = list(map(metric_name, names)) or ([] if commands else ["bleu"])
    require_metrics(names, tokenize, lowercase, split_hyphens)
    return LanguageMetrics(
        [*dict.fromkeys(names), *commands], parse_tokenizers(tokenize or ""), lowercase, split_hyphens
    )


def require_metrics(
    names: Sequence[object], tokenize: str | None, lowercase: bool, split_hyphens: bool = False
) -> None:
    """Check that each option of a metric has one among the metrics.

    Raises:
        UsageError: It has none.
    """
    for option, metric, wanted in (
        ("--tokenize", "bleu", tokenize is not None),
        ("--split-hyphens", "multi-bleu", split_hyphens),
    ):
        if wanted and metric not in names:
            raise UsageError(f"{option} is for {metric}", f"leave it out, or add --metric {metric}")
    if lowercase and not set(names) - {"ter"}:
        raise UsageError("--lowercase is for bleu, chrf and multi-bleu", "leave it out, or add one of them")


def _with_baseline(files: list[str], models: Sequence[str], baseline: str | None) -> list[str]:
    """The hypothesis files, with the baseline in front where it is a file that is not among them."""
    if baseline is None or baseline in models or (name := str(Path(baseline))) in files:
        return files
    return [name, *files]


def _test(
    paired: str | None, systems: Sequence[str], baseline: str | None, samples: int | None, seed: int | None
) -> PairedTest | None:
    """The test of differences that was asked for, if any."""
    from deepwire.evaluation.comparison import PairedTest

    if paired is None:
        for option, value in (("--baseline", baseline), ("--samples", samples), ("--seed", seed)):
            if value is not None:
                raise UsageError(f"{option} is for tests, and there is no --paired", "add --paired bootstrap")
        return None
    place = 0
    if baseline is not None:
        place = systems.index(baseline if baseline in systems else str(Path(baseline)))
    test = PairedTest(paired, place, samples, seed)
    test.check(len(systems))
    return test


def _texts(
    files: Sequence[str],
    models: Sequence[str],
    references: Sequence[Path],
    source: Path | None,
    settings: EvaluationSettings,
) -> tuple[list[Text], list[Text], Text | None]:
    """All systems, the models' at the end; references and source: those given, or of the first run."""
    from deepwire.api.evaluate import texts_of
    from deepwire.cli.line_by_line import warn
    from deepwire.evaluation.texts import read_text

    hypotheses = [read_text(Path(name)) for name in files]
    systems: list[tuple[str, ReadSystem]] = [(text.name, text) for text in hypotheses]
    systems += [(name, name) for name in models]
    answers = [read_text(path) for path in references]
    return texts_of(systems, answers, None if source is None else read_text(source), settings, warn)


def _write(output: Path | None, translation: Text) -> None:
    from deepwire.evaluation.texts import write_lines

    if output is not None:
        write_lines(output, translation.lines)


def _show(report: ScoreReport, as_json: bool) -> None:
    from deepwire.cli.line_by_line import warn
    from deepwire.evaluation import comparison as write
    from deepwire.io.json_lines import json_line

    for warning in report.warnings:
        warn(warning)
    print(json_line(write.as_json(report)) if as_json else write.as_text(report))
