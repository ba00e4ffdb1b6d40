"""JSON: the strings under some paths; keys, numbers, order and spaces stay as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from deepwire.errors import DataError, UsageError
from deepwire.serve.documents.document import Options
from deepwire.serve.documents.marked_text import Block, ReplacedText, block_of, decoded
from deepwire.serve.documents.placeholders import items_of

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
# What a character of a string is written as; beyond 16 bits, two escapes are one.
_CHARACTER = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\?.", re.DOTALL)
# Half of two such escapes is no character.
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_STEP = re.compile(
    r"""\[(?P<place>\*|\d+)\]|\[(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\]|(?P<key>[^.\[\]]+)"""
)
_DEEPEST = 200


def read_json(content: bytes, options: Options) -> ReplacedText:
    """Read a file.

    Raises:
        DataError: It is not JSON, or nested too deeply; or no string is under the paths.
        UsageError: A path cannot be understood.
    """
    source = decoded(content)
    start = len(source) - len(source.removeprefix("\ufeff"))
    try:
        json.loads(source[start:], parse_int=str)  # numbers stay as they are, however long
    except json.JSONDecodeError as fault:
        raise DataError(f"line {fault.lineno}: not JSON: {fault.msg}") from None
    except RecursionError:
        raise DataError("not JSON that anybody reads: nested too deeply") from None
    patterns = {path: _pattern(path) for path in options.paths}
    blocks: list[Block] = []
    found: set[str] = set()
    for path, begin, end in _strings(source, start):
        under = [name for name, pattern in patterns.items() if pattern.fullmatch(path)]
        if under or not patterns:
            blocks.append(_block(begin, end, source))
        found.update(under)
    if patterns and not blocks:
        raise DataError(f"no string is under {', '.join(options.paths)}")
    for name in patterns:
        if name not in found:
            options.warn(f"no string is under {name}")
    # In ASCII where all of the file is, and needs escapes for it.
    in_ascii = source.isascii() and "\\u" in source
    return ReplacedText(source, blocks, lambda text, _: json.dumps(text, ensure_ascii=in_ascii)[1:-1])


def _block(begin: int, end: int, source: str) -> Block:
    text = _HALF_PAIR.sub("\ufffd", json.loads(f'"{source[begin:end]}"'))
    places = [*(match.start() for match in _CHARACTER.finditer(source, begin, end)), end]
    (items,) = items_of(text)
    items = [item._replace(begin=places[item.begin], end=places[item.end]) for item in items]
    return block_of(source, items, trimmed=False)


def _pattern(path: str) -> re.Pattern[str]:
    """A pattern for paths as `_strings` writes them."""
    steps: list[str] = []
    at = 0
    plain = path.removeprefix("$").removeprefix(".")
    while at < len(plain):
        if plain[at] == ".":
            at += 1
        match = _STEP.match(plain, at)
        if match is None:
            raise UsageError(
                f"{path}: is no path into JSON", "such as title, items[*].title or ['menu.open']"
            )
        if quoted := match["quoted"]:
            steps.append(_written(re.sub(r"\\(.)", r"\1", quoted[1:-1])))
        else:
            step = match["place"] or match["key"]
            steps.append(_ANY.get(step) or _written(step))
        at = match.end()
    if not steps:
        raise UsageError("a path into JSON is empty", "such as title, items[*].title or **.label")
    return re.compile("".join(steps))


_ANY = {"*": r'"(?:[^"\\]|\\.)*"', "**": r'(?:"(?:[^"\\]|\\.)*")*'}
"""Patterns for any key or place, and for any number of them."""


def _written(step: str) -> str:
    """A pattern for a key, or a place as a number."""
    return re.escape(json.dumps(step))


def _strings(source: str, start: int) -> Iterator[tuple[str, int, int]]:
    """The strings that are values, each with its path, of keys in quotes, and its place within its own."""
    path: list[str | int] = []
    key_next = False
    for match in _TOKEN.finditer(source, start):
        token = match[0]
        if token in "{[":
            path.append("" if token == "{" else 0)
            key_next = token == "{"
            if len(path) > _DEEPEST:
                raise DataError(f"nested more than {_DEEPEST} levels deep")
        elif token in "}]":
            path.pop()
            key_next = False
        elif token == ",":
            top = path[-1]
            key_next = isinstance(top, str)
            path[-1] = "" if isinstance(top, str) else top + 1
        elif token == ":":
            key_next = False
        elif key_next:
            path[-1] = json.loads(token)
        elif token[0] == '"':
            yield "".join(json.dumps(str(step)) for step in path), match.start() + 1, match.end() - 1
