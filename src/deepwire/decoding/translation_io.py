"""Texts to translate and their translations: what they hold, how they are read, and how they are written.

Text or JSON lines are read, never one line more or less than the file has. Translations are written as plain
text, with scores, as n-best lists like those of Moses, or as JSON lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from deepwire.config.counts import counted, shown
from deepwire.data.text.files import HEAD_BYTES, MAX_LINE_BYTES, BadLine, ReadNotes, display, read_lines
from deepwire.data.text.pairs import is_blank, plain, without_surrogates
from deepwire.decoding.text_alignment import Link, TextAlignment, joined
from deepwire.errors import DataError, LogFn, UsageError
from deepwire.io.json_lines import json_line, unique_keys

_END = object()
_LINE_BREAK = re.compile("(\r?\n)")
_LAST_BREAK = re.compile(r"\r?\n\Z")
_REPAIRED = {
    "too_long": f"longer than {MAX_LINE_BYTES:,} bytes; only the first {HEAD_BYTES} of such lines are used",
    "nul": "NUL characters are read as spaces",
}


ContextLine = tuple[str, str]
"""A previous line of a document, and its translation; empty where that does not matter."""


@dataclass(frozen=True)
class Request:
    """A line to translate."""

    text: str
    prefix: str = ""
    """Text that the translation must begin with; it ends at a word boundary."""
    fields: Mapping[str, object] = field(default_factory=dict)
    """Other fields of the line; handed through unchanged."""
    to: str = ""
    """The language to translate into; empty: the one that is chosen for all lines."""
    from_: str = ""
    """The language of the text, where it is known: for a note where the model was not trained so."""
    context: tuple[ContextLine, ...] = ()
    """Previous lines of its document, the earliest first, for models that were trained with context."""
    where: str = field(default="", compare=False)
    """`file:line` of a line that can bring its languages along: a wrong one is a fault of the file."""


@dataclass(frozen=True)
class Candidate:
    """One translation of a line."""

    text: str
    tokens: tuple[str, ...]
    """The subwords of `text`, as the vocabulary writes them."""
    log_probability: float
    """Natural logarithm, summed over the subwords and EOS."""
    score: float
    """The log-probability under the length penalty; what candidates are ranked by."""
    alignment: TextAlignment | None = None
    """Which words it has from which of the line, where that was asked for."""


@dataclass(frozen=True)
class Translation:
    """The translations of one line, best first; an empty line has one empty candidate with score 0."""

    line: int
    """Counted from 1."""
    request: Request
    candidates: tuple[Candidate, ...]

    @property
    def text(self) -> str:
        """The best translation."""
        return self.candidates[0].text

    @property
    def score(self) -> float:
        """The score of the best translation."""
        return self.candidates[0].score


def require_several(values: object, name: str = "texts", example: str = '["..."]') -> None:
    """Refuse a single text: it is a sequence of its characters, which nobody wants translated one by one."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise UsageError(f"not {name} but {type(values).__name__}", f"give a list of {name}: {example}")


def checked_texts(texts: Iterable[object], *, lines: bool) -> Iterator[str]:
    """Texts one after the other; of lines, a line break at the end counts as none.

    Raises:
        UsageError: One of them is no text, or they are none at all: this is said at once.
    """
    require_several(texts)
    checked = (request_of(number, text).text for number, text in enumerate(texts, 1))
    return (_LAST_BREAK.sub("", text) if lines else text for text in checked)


def request_of(line: int, text: object) -> Request:
    """A request for a text that stands at `line`, counted from 1."""
    if not isinstance(text, str | Request):
        raise UsageError(f"line {line}: must be a text, not {type(text).__name__}")
    return text if isinstance(text, Request) else Request(text)


def requests_of(
    texts: Iterable[object], prefixes: Iterable[str] | None = None, to: Iterable[str] | None = None
) -> list[Request]:
    """A request for each text.

    Raises:
        UsageError: One of them is no text, or there are more or fewer than there are texts.
    """
    require_several(texts)
    requests = [request_of(number, text) for number, text in enumerate(texts, 1)]
    if prefixes is not None:
        pairs = _with_each(requests, prefixes, "prefixes")
        requests = [replace(request, prefix=prefix) for request, prefix in pairs]
    if to is not None:
        requests = [replace(request, to=language) for request, language in _with_each(requests, to, "to")]
    return requests


def _with_each(requests: list[Request], values: Iterable[str], name: str) -> Iterable[tuple[Request, str]]:
    require_several(values, name)
    each = list(values)
    if len(each) != len(requests):
        raise UsageError(f"{name}: {len(each)} for {len(requests)} texts", "give one for each text")
    return zip(requests, each, strict=True)


def checked_pairs(pairs: Iterable[object]) -> Iterator[tuple[str, str]]:
    """Source and target texts, checked one after the other."""
    require_several(pairs, "pairs", '[("...", "...")]')
    for number, pair in enumerate(pairs, 1):
        match pair:
            case [str(source), str(target)]:
                yield source, target
            case _:
                raise UsageError(f"pair {number}: must be a source and a target text, not {shown(pair)}")


def split_lines(request: Request) -> tuple[list[Request], list[str]]:
    """A request for each line of a text, and what comes after each of them in the text.

    The prefix is that of the first line. A line break at the end of the text counts as none, as that of a
    line read from a file.
    """
    parts = [*_LINE_BREAK.split(_LAST_BREAK.sub("", request.text)), ""]
    first = replace(request, text=parts[0])
    return [first, *(replace(first, text=line, prefix="") for line in parts[2::2])], parts[1::2]


class AlignedText(NamedTuple):
    """A translation, and what of it comes from where.

    Attributes:
        text: The translation.
        links: Words of the source and of the translation that belong together, `(0, 1)` the first and the
            second one.
    """

    text: str
    links: tuple[Link, ...]


def aligned_lines(
    lines: Sequence[Request], candidates: Sequence[Candidate], line_breaks: Sequence[str]
) -> AlignedText:
    """A text of several lines, what comes after each, and the best translation of each, which is aligned."""
    parts, texts = [], ["", ""]
    for request, candidate, line_break in zip(lines, candidates, line_breaks, strict=True):
        if candidate.alignment is not None:
            parts.append((candidate.alignment, len(texts[0]), len(texts[1])))
        texts = [texts[0] + plain(request.text) + line_break, texts[1] + candidate.text + line_break]
    return AlignedText(texts[1], joined(texts[0], texts[1], parts).links)


def read_text(path: Path, warn: LogFn) -> Iterator[str]:
    """The lines of a file (`-` = stdin) as text, one for each line whatever it holds.

    Bytes that are not UTF-8 become U+FFFD, NUL a space, of a line above the reader's limit the beginning is
    left; with a warning at the first of each kind.
    """
    notes, warned = ReadNotes(), set[str]()
    for number, line in enumerate(read_lines(path, on_bad_utf8="replace", notes=notes), 1):
        fault = line.fault if isinstance(line, BadLine) else ""
        if fault and fault not in warned:
            warned.add(fault)
            warn(f"{display(path)}:{number}: {_REPAIRED.get(fault, fault)}")
        yield line.text.replace("\0", " ") if isinstance(line, BadLine) else line
    if notes.replaced_lines:
        lines = counted(notes.replaced_lines, "line")
        warn(f"{display(path)}: bytes of {lines} are not UTF-8 and were read as U+FFFD")


def text_requests(path: Path, prefixes: Path | None, warn: LogFn) -> Iterator[Request]:
    """A request for each line of a text file, with the prefix of the same line of another file if given.

    Raises:
        DataError: a file cannot be read, or their line counts differ.
    """
    if prefixes is None:
        yield from map(Request, read_text(path, warn))
        return
    for text, prefix in sentence_pairs(path, prefixes, warn):
        yield Request(text, prefix)


def column_requests(path: Path, column: int, warn: LogFn) -> Iterator[Request]:
    """A request for each line of a text file with the language to translate into in a column of its own.

    Raises:
        DataError: a line that is not empty has no tab or no language.
    """
    form = "LANGUAGE<tab>TEXT" if column == 1 else "TEXT<tab>LANGUAGE"
    for number, line in enumerate(read_text(path, warn), 1):
        if is_blank(line):
            yield Request("")
            continue
        where = f"{display(path)}:{number}"
        first, tab, second = line.partition("\t") if column == 1 else line.rpartition("\t")
        to, text = (first, second) if column == 1 else (second, first)
        if not tab or is_blank(to):
            raise DataError(f"{where}: no column {column} with a language", f"expected {form}")
        yield Request(text, to=to.strip(), where=where)


def json_requests(path: Path, warn: LogFn) -> Iterator[Request]:
    """A request for each JSON line: `text`, optionally `prefix`, `to` and `from`; others are handed through.

    Raises:
        DataError: a line is no JSON object with a text.
    """
    for number, line in enumerate(read_text(path, warn), 1):
        where = f"{display(path)}:{number}"
        try:
            fields = json.loads(
                line, object_pairs_hook=unique_keys, parse_constant=_refuse, parse_float=_float
            )
        except (ValueError, RecursionError) as fault:
            raise DataError(f"{where}: not JSON: {fault}", 'one object a line: {"text": "..."}') from None
        if not isinstance(fields, dict) or not isinstance(fields.get("text"), str):
            has_text = isinstance(fields, dict) and "text" in fields
            reason = "text is not a string" if has_text else "no field text"
            raise DataError(f"{where}: {reason}", 'one object a line: {"text": "..."}')
        prefix = fields.get("prefix", "")
        if not isinstance(prefix, str):
            raise DataError(f"{where}: prefix must be a string")
        # What a model of one direction hands through need not be a language, and not even a text.
        to, from_ = (name if isinstance(name := fields.get(key), str) else "" for key in ("to", "from"))
        text, prefix = (plain(without_surrogates(each)) for each in (fields["text"], prefix))
        yield Request(text, prefix, fields, to, from_, where=where)


def sentence_pairs(first: Path, second: Path, warn: LogFn) -> Iterator[tuple[str, str]]:
    """Line by line the texts of two files.

    Raises:
        DataError: a file cannot be read, or their line counts differ (found at the end of the shorter).
    """
    counts = [0, 0]
    unequal = False
    for left, right in zip_longest(read_text(first, warn), read_text(second, warn), fillvalue=_END):
        counts[0] += left is not _END
        counts[1] += right is not _END
        if isinstance(left, str) and isinstance(right, str):
            yield left, right
        else:
            unequal = True
    if unequal:
        raise DataError(f"line counts differ: {display(first)} {counts[0]}, {display(second)} {counts[1]}")


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON number")


def _float(text: str) -> float:
    if not isfinite(number := float(text)):  # it could not be written again
        raise ValueError(f"{text} is too large a number")
    return number


TranslationFormat = Callable[[Translation], str]
"""The line or lines of a translation, without the last line end."""


def format_plain(translation: Translation) -> str:
    """The best translation; behind it ` ||| ` and its alignment, if it has one."""
    return translation.text + _alignment_of(translation.candidates[0])


def format_scored(translation: Translation) -> str:
    """Score, tab, and what `format_plain` writes."""
    return f"{translation.score:.4f}\t{format_plain(translation)}"


def format_n_best(translation: Translation) -> str:
    """One line for each candidate: `line ||| text ||| Score= log-probability ||| score`, lines from 0.

    The alignment is one column more.
    """
    return "\n".join(
        f"{translation.line - 1} ||| {candidate.text} ||| Score= {candidate.log_probability:.4f} "
        f"||| {candidate.score:.4f}{_alignment_of(candidate)}"
        for candidate in translation.candidates
    )


def _alignment_of(candidate: Candidate) -> str:
    return "" if candidate.alignment is None else f" ||| {candidate.alignment.pharaoh()}"


def alignment_record(candidate: Candidate) -> dict[str, object]:
    """The alignment as JSON, pairs of numbers of words from 0."""
    return {} if candidate.alignment is None else {"alignment": [*map(list, candidate.alignment.links)]}


_REPEATED = {"text", "to"}


def format_json(translation: Translation) -> str:
    """A JSON object: the fields that came with the line, its text, all candidates and the best one's text.

    Fields that came with the line and have a name of ours are in an object ``input``.
    """
    best = translation.candidates[0]
    record: dict[str, object] = {
        **({"to": translation.request.to} if translation.request.to else {}),
        "line": translation.line,
        "text": translation.request.text,
        "translation": best.text,
        "score": best.score,
        "log_probability": best.log_probability,
        "tokens": best.tokens,
        **alignment_record(best),
    }
    if len(translation.candidates) > 1:
        record["n_best"] = [
            {
                "translation": candidate.text,
                "score": candidate.score,
                "log_probability": candidate.log_probability,
                **alignment_record(candidate),
            }
            for candidate in translation.candidates
        ]
    fields = translation.request.fields
    if ours := {name: value for name, value in fields.items() if name in record and name not in _REPEATED}:
        record["input"] = ours | ({"input": fields["input"]} if "input" in fields else {})
    return json_line({**fields, **record})


FORMATS: Mapping[str, TranslationFormat] = {
    "plain": format_plain,
    "scored": format_scored,
    "n_best": format_n_best,
    "as_json": format_json,
}
"""The formats by name; the names are kept with the parts of an interrupted job."""
