"""Which kind of document a file is, by the ending of its name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import PurePath

from deepwire.config.counts import counted
from deepwire.data.text.placeholders import is_message
from deepwire.errors import UsageError
from deepwire.serve.documents.document import Document, Options

Reader = Callable[[bytes, Options], Document]

_KINDS = (
    (".txt", "replaced_text:read_text", ""),
    (".md .markdown", "markdown:read_markdown", "markdown_it"),
    (".html .htm", "hypertext:read_html", ""),
    (".srt .vtt", "subtitles:read_subtitles", ""),
    (".po .pot", "gettext_catalogue:read_po", ""),
    (".xlf .xliff", "xliff:read_xliff", "lxml"),
    (".docx", "office:read_docx", "lxml"),
    (".odt", "office:read_odt", "lxml"),
    (".json", "json_values:read_json", ""),
)
"""Endings of the names of files, their reader, and the package that it needs."""
_READERS = {ending: (reader, needed) for endings, reader, needed in _KINDS for ending in endings.split()}
ENDINGS = tuple(_READERS)


def ending(name: str) -> str:
    """The ending of a file name in small letters, with its dot."""
    return PurePath(name).suffix.lower()


def require_reader(name: str) -> None:
    """Checks that a file can be read, by its name.

    Raises:
        UsageError: There is no such kind of document, or a package for it is missing.
    """
    kind = ending(name)
    if kind not in _READERS:
        said = (
            f"files ending in {kind} cannot be translated" if kind else "the name of a file needs an ending"
        )
        raise UsageError(said, f"known are {', '.join(ENDINGS)}")
    package = _READERS[kind][1]
    if package and find_spec(package) is None:
        missing = package.replace("_", "-")
        raise UsageError(
            f"files ending in {kind} need the package {missing}", "pip install 'deepwire[documents]'"
        )


def require_same_kind(name: str, output: str) -> None:
    """Checks that the name of a translation does not say that it is of another kind than the document.

    Raises:
        UsageError: It does.
    """
    kind, other = ending(name), ending(output)
    same = kind == other or (_READERS[kind] == _READERS.get(other) and {kind, other} != {".srt", ".vtt"})
    if other in _READERS and not same:
        raise UsageError(
            f"--output {output}: the translation of {name} is a {kind} file too",
            f"such as --output {PurePath(output).with_suffix(kind)}",
        )


def read_document(name: str, content: bytes, options: Options) -> Document:
    """Read a file.

    Args:
        name: Its name; the ending says what it is.
        content: All of it.
        options: Languages, and what is to be translated.

    Raises:
        UsageError: As `require_reader`.
        DataError: It is not what its name says, damaged, or larger than anybody reads.
    """
    require_reader(name)
    module, _, function = _READERS[ending(name)][0].partition(":")
    reader: Reader = getattr(import_module(f"deepwire.serve.documents.formats.{module}"), function)
    document = reader(content, options)
    left = [run.text for unit in document.units for run in unit if run.fixed and is_message(run.text)]
    if left:
        options.warn(
            f"left {counted(len(left), 'message')} of ICU as it was, the first {left[0][:40]!r}: "
            "a choice, a brace that is missing, or branches too deep"
        )
    return document
