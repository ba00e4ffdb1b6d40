"""``deepwire evaluate`` and ``evaluate-directions``: scores, and tests of their differences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from deepwire.cli import options as opt
from deepwire.cli.line_by_line import tell, warn
from deepwire.cli.settings import with_settings
from deepwire.errors import UsageError
from deepwire.io.json_lines import json_line
from deepwire.io.output import check_output, write_output

if TYPE_CHECKING:
    from deepwire.api.evaluate import ReadSystem
    from deepwire.evaluation.metric_command import MetricCommand

Hypotheses = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[HYP]... [KEY=VALUE]...",
        help="Translations, one file per system; - is stdin. KEY=VALUE: decoding settings of models.",
    ),
]
References = Annotated[list[Path] | None, typer.Option("--reference", "-r", help="Reference; repeatable.")]
Models = Annotated[list[str] | None, typer.Option("--model", "-m", help="Model to evaluate; repeatable.")]
Source = Annotated[Path | None, typer.Option("--source", "-s", help="Source text to translate with --model.")]
MetricCommands = Annotated[
    list[str] | None,
    typer.Option(
        "--metric-command",
        metavar="NAME=COMMAND",
        help="Metric of another program: 'comet=comet-score -s {source} -t {hypothesis} "
        "-r {reference} --quiet --to_json {scores}'; repeatable.",
    ),
]
LowerIsBetter = Annotated[
    list[str] | None, typer.Option("--lower-is-better", metavar="NAME", help="Metric where lower is better.")
]
Language = Annotated[
    str | None,
    typer.Option(
        metavar="ja",
        help="Language for BLEU's tokenizer. Default: of the model, or the extension of the reference.",
    ),
]
SplitHyphens = Annotated[bool, typer.Option("--split-hyphens", help="multi-bleu: split words at hyphens.")]
Paired = Annotated[str | None, typer.Option(help="Significance test: bootstrap or randomization.")]
Baseline = Annotated[str | None, typer.Option(help="HYP or MODEL to compare with. Default: the first.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="File for the model's translations.")]


@with_settings("beam", "length_penalty")
def evaluate(
    hypotheses: Hypotheses = None,
    reference: References = None,
    model: Models = None,
    source: Source = None,
    test_set: opt.TestSet = None,
    direction: opt.DirectionName = None,
    metric: opt.Metrics = None,
    metric_command: MetricCommands = None,
    lower_is_better: LowerIsBetter = None,
    tokenize: opt.Tokenize = None,
    language: Language = None,
    lowercase: opt.Lowercase = False,
    split_hyphens: SplitHyphens = False,
    paired: Paired = None,
    baseline: Baseline = None,
    samples: opt.TestSamples = None,
    seed: opt.TestSeed = None,
    *,
    settings: opt.Settings,
    device: opt.Device = "auto",
    precision: opt.Precision = "auto",
    shortlist: opt.Shortlist = False,
    shortlist_from: opt.ShortlistFrom = None,
    seen: opt.Seen = False,
    output: Output = None,
    as_json: opt.Json = False,
) -> None:
    """Score translations with BLEU, chrF and TER (sacrebleu, with signatures) or multi-bleu; compare systems.

    deepwire evaluate hyp.txt --reference ref.txt --metric bleu --metric chrf

    deepwire evaluate base.txt new.txt --reference ref.txt --paired bootstrap

    deepwire evaluate --model runs/a --model runs/b@avg5 --source test.de --reference test.en

    deepwire evaluate --model runs/a   (on its data.test; multilingual models need --direction)

    deepwire evaluate --model runs/a --test-set wmt24 --direction en-de
    """
    from deepwire.api.evaluate import EvaluationSettings, score_texts, texts_of
    from deepwire.evaluation import comparison
    from deepwire.evaluation.metric_choice import LanguageMetrics, metric_name, parse_tokenizers
    from deepwire.evaluation.test_sets import known_direction, test_set_files
    from deepwire.evaluation.texts import SearchSettings, read_text, target_language

    models = list(model or ())
    files = [str(Path(name)) for name in hypotheses or ()]
    if baseline is not None and baseline not in models:
        baseline = str(Path(baseline))
        files = files if baseline in files else [baseline, *files]
    commands = _commands(metric_command or (), lower_is_better or ())
    names = list(map(metric_name, metric or ())) or ([] if commands else ["bleu"])
    tokenizers = parse_tokenizers(tokenize or "")
    metrics = LanguageMetrics([*dict.fromkeys(names), *commands], tokenizers, lowercase, split_hyphens)
    words = opt.chosen_shortlist(shortlist, shortlist_from, seen)
    of_models = [*settings, *opt.specified(direction=None if test_set else direction, shortlist=words)]
    if of_models and not models:
        _refuse(of_models[0])
    into = language or (target_language(models[0], direction) if models else "")
    if test_set is not None:
        opt.require_one({"--test-set": test_set, "--reference": reference, "--source": source})
        direction = direction or known_direction(models)
        source, reference = test_set_files(test_set, direction)
        into = into or direction.target
    _check_texts(files, models, reference or [], source, output)
    metrics.of(into)  # an unknown one is named before anything is read
    test = None
    if paired is not None:
        names_of_systems = [*files, *models]
        first = names_of_systems.index(baseline) if baseline else 0
        test = comparison.PairedTest(paired, first, samples, seed)
        test.check(len(names_of_systems))
    search = SearchSettings(settings, device, precision, words, direction)
    evaluation = EvaluationSettings(metrics, into, search)
    systems: list[tuple[str, ReadSystem]] = [(text.name, text) for text in map(read_text, map(Path, files))]
    systems += [(name, name) for name in models]
    read = None if source is None else read_text(source)
    texts, references, text = texts_of(systems, [*map(read_text, reference or ())], read, evaluation, warn)
    try:
        if output is not None:
            write_output(output, "".join(f"{line}\n" for line in texts[-1].lines))
    finally:  # the scores are shown even when the disk is full
        report = score_texts(texts, references, evaluation, test, warn, text)
        for warning in report.warnings:
            warn(warning)
        print(json_line(comparison.as_json(report)) if as_json else comparison.as_text(report))


def _refuse(option: str) -> NoReturn:
    raise UsageError(f"{option} is for models, and there is no --model", "leave it out, or add --model")


def _check_texts(
    files: Sequence[str],
    models: Sequence[str],
    references: Sequence[Path],
    source: Path | None,
    output: Path | None,
) -> None:
    from deepwire.evaluation.texts import test_files

    if not files and not models:
        raise UsageError("nothing to evaluate", "name hypothesis files, or a model with --model")
    if not references and (not models or source is not None):
        raise UsageError("there is no reference", "add --reference FILE")
    if [*files, str(source), *map(str, references)].count("-") > 1:
        raise UsageError("only one text can come from stdin (-)", "put the other texts into files")
    if output is not None and len(models) != 1:
        raise UsageError(f"--output needs exactly one --model, not {len(models)}", "run it once per model")
    if output is not None:
        read = [*map(Path, files), *references, *([] if source is None else [source])]
        check_output(output, [*read, *(path for name in models for path in test_files(name))])


def _commands(commands: Sequence[str], lower_is_better: Sequence[str]) -> list[MetricCommand]:
    from deepwire.evaluation.metric_command import MetricCommand

    made = []
    for text in commands:
        name, _, command = text.partition("=")
        if not name.strip() or not command:
            raise UsageError(
                f"--metric-command {text!r} is not NAME=COMMAND", "such as 'comet=comet-score ...'"
            )
        made.append(MetricCommand(name, command, higher_is_better=name not in lower_is_better))
    return made


Systems = Annotated[
    list[str],
    typer.Argument(
        metavar="SYSTEM [BASELINE] [KEY=VALUE]...",
        help="Each is a model, a folder of DIRECTION.hyp, or a pattern of models or files with "
        "{direction}. KEY=VALUE: decoding settings.",
    ),
]
TestPlace = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="Test sets: a prefix (PREFIX.en, PREFIX.de; {pair} stands for de-en), or the folder of "
        "OPUS-100. Default: data.test of the run.",
    ),
]
Directions = Annotated[
    str | None, typer.Option(metavar="en-de,de-en", help="Directions. Default: all of SYSTEM.")
]
ZeroShot = Annotated[bool, typer.Option("--zero-shot", help="Add directions that were not trained.")]
Centre = Annotated[str, typer.Option(help="Central language: averages out of, into, without it.")]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group", metavar="NAME=de,fr", help="Average over the directions of these languages; repeatable."
    ),
]
PairedOrNot = Annotated[str, typer.Option(help="Significance test: bootstrap, randomization or none.")]
OutputFolder = Annotated[Path | None, typer.Option("--output", "-o", help="Folder for the translations.")]


@with_settings("beam", "length_penalty")
def evaluate_directions(
    systems: Systems,
    test: TestPlace = None,
    directions: Directions = None,
    zero_shot: ZeroShot = False,
    metric: opt.Metrics = None,
    tokenize: opt.Tokenize = None,
    lowercase: opt.Lowercase = False,
    centre: Centre = "en",
    group: Groups = None,
    paired: PairedOrNot = "bootstrap",
    samples: opt.TestSamples = None,
    seed: opt.TestSeed = None,
    output: OutputFolder = None,
    *,
    settings: opt.Settings,
    device: opt.Device = "auto",
    precision: opt.Precision = "auto",
    seen: opt.Seen = False,
    as_json: opt.Json = False,
) -> None:
    """Evaluate all directions of a multilingual model: each, on average, by group, against a baseline.

    deepwire evaluate-directions runs/six --test multi30k/test_2016_flickr

    deepwire evaluate-directions runs/six 'runs/{direction}' --group high=de,fr

    deepwire evaluate-directions hyps/ours hyps/theirs --test opus-100-corpus --tokenize 13a
    """
    from deepwire.evaluation import directions as work
    from deepwire.evaluation.comparison import PairedTest
    from deepwire.evaluation.metric_choice import LanguageMetrics, metric_name, parse_tokenizers
    from deepwire.evaluation.texts import SearchSettings, parse_direction

    if len(systems) > 2:
        raise UsageError(f"SYSTEM and BASELINE are two, not {len(systems)}", "compare two at a time")
    tests = None if paired == "none" else PairedTest(paired, 0, samples, seed)
    if tests is not None:
        tests.check(2)
    names = list(dict.fromkeys(map(metric_name, metric or ("bleu", "chrf"))))
    scoring = LanguageMetrics(names, parse_tokenizers(tokenize or ""), lowercase)
    request = work.DirectionsRequest(
        system=systems[0],
        baseline=systems[1] if len(systems) > 1 else None,
        test=test,
        directions=[parse_direction(name.strip()) for name in directions.split(",")] if directions else [],
        zero_shot=zero_shot,
        metrics=scoring,
        centre=centre,
        groups=dict(map(_group, group or ())),
        paired=tests,
        output=output,
        search=SearchSettings(settings, device, precision, "seen" if seen else False),
    )
    report = work.evaluate_directions(request, warn, tell)
    print(json_line(report.to_json()) if as_json else report.as_text())


def _group(text: str) -> tuple[str, frozenset[str]]:
    """Reads `NAME=de,fr` or `de,fr`, which is its own name."""
    name, _, members = text.rpartition("=")
    return name.strip() or members, frozenset(part.strip() for part in members.split(","))
