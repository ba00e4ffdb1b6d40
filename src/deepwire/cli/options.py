"""Options that several commands have, and those made of the fields of the section `decoding`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args, get_origin

import typer

from deepwire.config.section import alternatives, sections
from deepwire.config.settings_reader import read_overrides
from deepwire.decoding.decoding_config import DecodingConfig
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
        help="Run directory (its best checkpoint), RUN@avg5 or model; several = an ensemble. KEY=VALUE: any "
        "setting of a run file's decoding section, such as no_repeat_ngram=3 or sampling.top_k=10.",
    ),
]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="Run directory, RUN@last, RUN@avg5 or model.")]
RunFileName = Annotated[str, typer.Argument(metavar="RUN.yaml", help="Run file, or the name of a recipe.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...", help="Changes to the run file or recipe: training.max_updates=5k."
    ),
]
Input = Annotated[
    Path, typer.Option("--input", "-i", help="Text, line by line; - is stdin; also .gz/.zst/.xz.")
]
Output = Annotated[Path, typer.Option("--output", "-o", help="File for the answers; - is stdout.")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON: one object a line.")]
Terms = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Terms to use: SOURCE<tab>TARGET in a line.")
]
Precision = Annotated[
    str,
    typer.Option(
        metavar="auto|fp32|bf16|fp16|int8",
        help="fp16 or int8: weights of so many bits (CPU); auto: the fast one here, never int8.",
    ),
]
Shortlist = Annotated[bool, typer.Option("--shortlist", help="Only likely subwords: `deepwire shortlist`.")]
ShortlistFrom = Annotated[Path | None, typer.Option(metavar="FOLDER", help="The same, from elsewhere.")]
Seen = Annotated[
    bool, typer.Option("--seen", help="Only subwords of the language: `deepwire shortlist --seen`.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, or auto: a GPU if there is one.")]
Threads = Annotated[int | None, typer.Option(min=1, max=4096, help="CPU threads. Default: all.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No summary on stderr.")]
To = Annotated[str | None, typer.Option(metavar="LANGUAGE", help="Language to translate into, of several.")]
From = Annotated[str | None, typer.Option("--from", metavar="LANGUAGE", help="Language of the text.")]


def _direction(text: str) -> Direction:
    from deepwire.evaluation.multilingual.direction_names import parse_direction

    return parse_direction(text)


DirectionName = Annotated[
    Any,  # `Direction` or None
    typer.Option(
        "--direction",
        metavar="en-de",
        parser=_direction,
        help="For models of several directions: which one.",
    ),
]
TestSamples = Annotated[int | None, typer.Option(min=1, help="Resamples (1000) or shuffles (10000).")]
TestSeed = Annotated[int | None, typer.Option(min=0, help="Seed of the test. Default: sacrebleu's, 12345.")]
_Set = Annotated[list[str] | None, typer.Option("--set", hidden=True)]  # KEY=VALUE, as it was written once

_SETTING = re.compile(r"[a-z]\w*(\.\w+)*=.*", re.DOTALL)  # a model named a=b is written ./a=b


def with_settings(*keys: str, **others: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command options for keys of the section `decoding`, and let it take any other as KEY=VALUE.

    KEY=VALUE stands among the words of the command's first parameter. The command gets all that is given as
    plain values in its parameter ``settings``, in whose place its help has the options.

    Args:
        keys: Those with an option of their name.
        others: Those whose option has another name: ``sample="sampling"``.
    """
    key_of = {key: key for key in keys} | others

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters
        words = next(iter(own))

        @wraps(command)
        def run(**given: Any) -> None:
            typed = [*(given.pop("set_") or ()), *filter(_SETTING.fullmatch, given[words] or ())]
            given[words] = [word for word in given[words] or () if not _SETTING.fullmatch(word)]
            if not given[words] and own[words].default is inspect.Parameter.empty:
                raise UsageError("there is no MODEL beside the settings", "name a run directory or a model")
            options = {
                f"--{name.replace('_', '-')}": _text(key, given.pop(name)) for name, key in key_of.items()
            }
            settings = [text.removeprefix("decoding.") for text in typed]
            command(**given, settings=read_overrides(DecodingConfig, settings, options))

        made = [inspect.Parameter("set_", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_Set)]
        made += [_parameter(name, key) for name, key in key_of.items()]
        parameters: list[inspect.Parameter] = []
        for each in own.values():
            parameters += made if each.name == "settings" else [each]
        set_parameters(run, parameters)
        return run

    return decorate


def set_parameters(command: Callable[..., None], parameters: Iterable[inspect.Parameter]) -> None:
    """Let a command that takes anything by name have these parameters for the parser of options."""
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {each.name: each.annotation for each in parameters}


def _field(key: str) -> Any:
    *above, name = key.split(".")
    section: Any = DecodingConfig
    for part in above:
        (section,) = sections(section.model_fields[part].annotation)
    return section.model_fields[name]


def _is_switch(field: Any) -> bool:
    """Whether it is a truth value, or a section that is there with its defaults."""
    return bool in alternatives(field.annotation) or bool(sections(field.annotation))


def _parameter(name: str, key: str) -> inspect.Parameter:
    field = _field(key)
    kinds: list[Any] = [kind for kind in alternatives(field.annotation) if kind is not type(None)]
    choices = [value for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)]
    metavar = None if _is_switch(field) else "|".join(choices) or ("TEXT" if str in kinds else "NUMBER")
    option = typer.Option(
        f"--{name.replace('_', '-')}",
        metavar=metavar,
        help=f"{field.description[:1].upper()}{field.description[1:]}.",
        show_default=False if _is_switch(field) else "the model's own",
    )
    annotation: Any = Annotated[bool if _is_switch(field) else str | None, option]
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if _is_switch(field) else None,
        annotation=annotation,
    )


def _text(key: str, value: str | bool | None) -> str:
    """KEY=VALUE of an option; empty where it was not given."""
    if value is True:
        return f"{key}={{}}" if sections(_field(key).annotation) else f"{key}=true"
    return "" if value in (None, False) else f"{key}={value}"


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
