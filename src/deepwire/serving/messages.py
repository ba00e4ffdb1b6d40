"""What is wrong with a body, in the words of JSON: what pydantic finds, for those who write clients."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from deepwire.serving.refusal import Refusal

_SHOWN = 80
_EXAMPLE = '{"text": "Ein Hund."}'

# What other servers and toolkits call it, where the letters do not tell.
_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("q", "query", "src", "input", "sentence", "data", "string"), "text"),
    **dict.fromkeys(("sentences", "inputs", "lines"), "texts"),
    **dict.fromkeys(("to", "tgt", "lang", "language", "target_lang", "tgt_lang"), "target"),
    **dict.fromkeys(("from", "source_lang", "src_lang"), "source"),
    **dict.fromkeys(("num_beams", "width"), "beam"),
    **dict.fromkeys(("alternatives", "num_hypotheses", "num_return_sequences"), "n_best"),
}

_MUST_BE: Mapping[str, str] = {
    "string": "a string",
    "list": "a list of strings",
    "int": "a whole number",
    "finite_number": "a whole number",
    "model": f"a JSON object such as {_EXAMPLE}",
}


def refusal_of(error: ValidationError, body: type[BaseModel]) -> Refusal:
    """The first fault, without what the client has sent but for the names of its keys."""
    fault = error.errors(include_url=False)[0]
    index = next((part for part in fault["loc"] if isinstance(part, int)), None)
    where = f"text {index}" if index is not None else ".".join(map(_key, fault["loc"]))
    text = _text(fault, body)
    return Refusal("invalid", f"{where}: {text}" if where else text, index=index)


def printable(text: str) -> str:
    """`text` with ? for halves of surrogate pairs, which no UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode()


def _key(part: str | int) -> str:
    return printable(str(part))[:_SHOWN] or '""'


def _text(fault: ErrorDetails, body: type[BaseModel]) -> str:
    kind, context = fault["type"], fault.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key{_other_key(str(fault['loc'][-1]), list(body.model_fields))}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "string_unicode":
        return "half a surrogate pair is no character" + ("" if fault["loc"] else ", not even in a key")
    if kind == "greater_than_equal":
        return f"must be at least {context['ge']}"
    if kind == "string_too_long":
        return f"must have at most {context['max_length']} characters"
    wanted = next((words for start, words in _MUST_BE.items() if kind.startswith(start)), None)
    if wanted is None:  # nothing that the fields of today can give
        return fault["msg"][:1].lower() + fault["msg"][1:]
    subject = "" if fault["loc"] else "the body "
    return f"{subject}must be {wanted}, not {_kind(fault['input'])}{_other_form(fault)}"


def _kind(value: object) -> str:
    """What JSON calls a value; not the value, which may be a text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    kinds = ((str, "a string"), (list, "a list"), (dict, "an object"), (int, "a number"))
    return next(
        (name for kind, name in kinds if isinstance(value, kind)), "a number with a point or an exponent"
    )


def _other_form(fault: ErrorDetails) -> str:
    """Where one text was sent as several, or several as one."""
    if fault["loc"] == ("texts",) and isinstance(fault["input"], str):
        return "; a single text goes under text"
    if fault["loc"] == ("text",) and isinstance(fault["input"], list):
        return "; several texts go under texts"
    return ""


def _other_key(word: str, keys: list[str]) -> str:
    close = [_ELSEWHERE[word.lower()]] if word.lower() in _ELSEWHERE else []
    close += difflib.get_close_matches(word[:_SHOWN].lower(), keys, n=1)
    return f" (did you mean {close[0]}?)" if close else f"; known are {', '.join(keys)}"
