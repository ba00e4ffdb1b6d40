"""Options that several commands have."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from deepwire.errors import UsageError

if TYPE_CHECKING:
    from deepwire.data.languages import Direction

STDIO = Path("-")
Settings: TypeAlias = Mapping[str, object]
"""Decoding settings that replace those of the model."""

Models = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL... [KEY=VALUE]...",
        help="Run directory (its best checkpoint), RUN@last, RUN@avg5 or model folder; several make an "
        "ensemble. KEY=VALUE: any setting of the section decoding, such as no_repeat_ngram=3.",
    ),
]
Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Run directory, RUN@last, RUN@avg5 (mean of 5) or model.")
]
RunFileName = Annotated[str, typer.Argument(metavar="RUN.yaml", help="Run file, or the name of a recipe.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change, such as training.max_updates=5k."),
]
Input = Annotated[
    Path, typer.Option("--input", "-i", help="Text file, read line by line, also compressed; - is stdin.")
]
Output = Annotated[Path, typer.Option("--output", "-o", help="Output file; - is stdout.")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON, one object a line.")]
Terms = Annotated[Path | None, typer.Option(metavar="FILE", help="Terminology: SOURCE<tab>TARGET a line.")]
Precision = Annotated[
    str,
    typer.Option(
        metavar="auto|fp32|bf16|fp16|int8",
        help="Precision. fp16, int8: of the weights only, on CPUs. auto: the fastest here, never int8.",
    ),
]
Shortlist = Annotated[bool, typer.Option("--shortlist", help="Use the shortlist of `deepwire shortlist`.")]
ShortlistFrom = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder of another shortlist.")]
Seen = Annotated[bool, typer.Option("--seen", help="Use the subwords of `deepwire shortlist --seen`.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, or auto: a GPU if there is one.")]
Threads = Annotated[int | None, typer.Option(min=1, max=4096, help="CPU threads. Default: all.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no summary on stderr.")]
To = Annotated[str | None, typer.Option(metavar="LANGUAGE", help="Target language (multilingual models).")]
From = Annotated[
    str | None, typer.Option("--from", metavar="LANGUAGE", help="Source language (multilingual models).")
]


def _direction(text: str) -> Direction:
    from deepwire.evaluation.texts import parse_direction

    return parse_direction(text)


DirectionName = Annotated[
    Any,
    typer.Option("--direction", metavar="en-de", parser=_direction, help="Direction (multilingual models)."),
]
TestSet = Annotated[
    str | None,
    typer.Option(
        metavar="wmt24", help="Name of a test set of sacrebleu, which is downloaded if it is missing."
    ),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="bleu|chrf|chrf++|ter|multi-bleu|spbleu",
        help="Metric; repeatable. Default: bleu; of many directions bleu and chrf.",
    ),
]
Tokenize = Annotated[
    str | None,
    typer.Option(
        metavar="13a|ja=char,...",
        help="BLEU's tokenizer, for all or by language: 13a, intl, zh, ja-mecab, ko-mecab, flores200, char, "
        "none. Default: that of the target language.",
    ),
]
Lowercase = Annotated[bool, typer.Option("--lowercase", help="Ignore case (TER always does).")]
TestSamples = Annotated[
    int | None, typer.Option(min=1, help="Bootstrap resamples (1000) or shuffles (10000).")
]
TestSeed = Annotated[int | None, typer.Option(min=0, help="Seed of the test. Default: sacrebleu's, 12345.")]


def set_parameters(command: Callable[..., None], parameters: Iterable[inspect.Parameter]) -> None:
    """Let a command that takes anything by name have these parameters for the parser of options."""
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {each.name: each.annotation for each in parameters}


def require_one(options: Mapping[str, object], hint: str = "leave out one of them") -> None:
    """Check that at most one of several options is given.

    Args:
        options: Their values by their names; None and False are not given.
        hint: What to do about two.

    Raises:
        UsageError: Two of them are.
    """
    given = list(specified(**options))
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} are mutually exclusive", hint)


def specified(**options: object) -> dict[str, object]:
    """The options that have a value; a switch only where it is on."""
    return {name: value for name, value in options.items() if value is not None and value is not False}


def chosen_shortlist(likely: bool, folder: Path | None, seen: bool) -> bool | str | Path:
    """The shortlist that the options ask for, as `deepwire.load` takes it.

    Raises:
        UsageError: Both kinds are asked for.
    """
    require_one({"--seen": seen, "--shortlist": likely or folder is not None})
    return "seen" if seen else folder or likely


def use_threads(count: int | None) -> None:
    """Let torch use this many CPU threads; None leaves its own choice."""
    if count is not None:
        import torch

        torch.set_num_threads(count)
