"""Options made of the fields of the section `decoding`, and any other of its settings as KEY=VALUE."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from deepwire.cli.options import set_parameters
from deepwire.config.section import alternatives, sections
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.errors import UsageError

_Set = Annotated[list[str] | None, typer.Option("--set", hidden=True)]  # KEY=VALUE, as it was written once

SAMPLING = {"sample": "sampling"} | {
    name: f"sampling.{name}" for name in ("top_k", "top_p", "temperature", "seed")
}
"""Options of random translations and texts."""
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
    fields = {key: _field(key) for key in key_of.values()}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters
        words = next(iter(own))

        @wraps(command)
        def run(**given: Any) -> None:
            from deepwire.config.settings_reader import read_overrides  # YAML, of which --help needs none

            typed = [*(given.pop("set_") or ()), *filter(_SETTING.fullmatch, given[words] or ())]
            given[words] = [word for word in given[words] or () if not _SETTING.fullmatch(word)]
            if not given[words] and own[words].default is inspect.Parameter.empty:
                raise UsageError("there is no MODEL beside the settings", "name a run directory or a model")
            options = {
                f"--{name.replace('_', '-')}": _text(key, fields[key], given.pop(name))
                for name, key in key_of.items()
            }
            settings = [text.removeprefix("decoding.") for text in typed]
            random = [text for text in (*settings, *options.values()) if text.startswith("sampling")]
            if options.get("--seed") and len(random) == 1:
                raise UsageError("--seed is for random translations", "add --sample")
            command(**given, settings=read_overrides(DecodingConfig, settings, options))

        made = [inspect.Parameter("set_", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_Set)]
        made += [_parameter(name, fields[key]) for name, key in key_of.items()]
        parameters: list[inspect.Parameter] = []
        for each in own.values():
            parameters += made if each.name == "settings" else [each]
        set_parameters(run, parameters)
        return run

    return decorate


def _field(key: str) -> Any:
    section: Any = DecodingConfig
    *above, name = key.split(".")
    for part in above:
        (section,) = sections(section.model_fields[part].annotation)
    return section.model_fields[name]


def _is_switch(field: Any) -> bool:
    """Whether it is a truth value, or a section that is there with its defaults."""
    return bool in alternatives(field.annotation) or bool(sections(field.annotation))


def _parameter(name: str, field: Any) -> inspect.Parameter:
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


def _text(key: str, field: Any, value: str | bool | None) -> str:
    """KEY=VALUE of an option; empty where it was not given."""
    if value is True:
        return f"{key}=true" if field.annotation is bool else f"{key}={{}}"
    return "" if value in (None, False) else f"{key}={value}"
