"""Which kind of document a file is, by the ending of its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath

from deepwire.config.counts import counted
from deepwire.data.text.placeholders import is_message
from deepwire.errors import UsageError
from deepwire.serve.documents.document import Document, Options
from deepwire.serve.documents.formats.gettext_catalogue import read_po
from deepwire.serve.documents.formats.hypertext import read_html
from deepwire.serve.documents.formats.json_values import read_json
from deepwire.serve.documents.formats.markdown import read_markdown
from deepwire.serve.documents.formats.office import read_docx, read_odt
from deepwire.serve.documents.formats.subtitles import read_subtitles
from deepwire.serve.documents.formats.xliff import XliffDocument
from deepwire.serve.documents.marked_text import read_text

_READERS: Mapping[str, Callable[[bytes, Options], Document]] = {
    ".txt": read_text,
    ".md": read_markdown,
    ".markdown": read_markdown,
    ".html": read_html,
    ".htm": read_html,
    ".srt": read_subtitles,
    ".vtt": read_subtitles,
    ".po": read_po,
    ".pot": read_po,
    ".xlf": XliffDocument,
    ".xliff": XliffDocument,
    ".docx": read_docx,
    ".odt": read_odt,
    ".json": read_json,
}
ENDINGS = tuple(_READERS)


def ending(name: str) -> str:
    """The ending of a file name in small letters, with its dot."""
    return PurePath(name).suffix.lower()


def require_reader(name: str) -> None:
    """Checks that a file can be read, by its name.

    Raises:
        UsageError: There is no such kind of document.
    """
    kind = ending(name)
    if kind not in _READERS:
        said = f"files ending in {kind} cannot be translated"
        raise UsageError(
            said if kind else "the name of a file needs an ending", f"known are {', '.join(ENDINGS)}"
        )


def require_same_kind(name: str, output: str) -> None:
    """Checks that the name of a translation does not say that it is of another kind than the document.

    Raises:
        UsageError: It does.
    """
    kind, other = ending(name), ending(output)
    same = kind == other or (_READERS[kind] is _READERS.get(other) and {kind, other} != {".srt", ".vtt"})
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
    document = _READERS[ending(name)](content, options)
    left = [run.text for unit in document.units for run in unit if run.fixed and is_message(run.text)]
    if left:
        options.warn(
            f"left {counted(len(left), 'message')} of ICU as it was, the first {left[0][:40]!r}: "
            "a choice, a brace that is missing, or branches too deep"
        )
    return document
