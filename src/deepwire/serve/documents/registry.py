"""Readers of documents, by the extension of the file name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath

from deepwire.config.counts import counted
from deepwire.data.text.placeholders import is_message
from deepwire.errors import UsageError
from deepwire.serve.documents.document import Document, Options
from deepwire.serve.documents.gettext_catalogue import read_po
from deepwire.serve.documents.hypertext import read_html
from deepwire.serve.documents.json_values import read_json
from deepwire.serve.documents.markdown import read_markdown
from deepwire.serve.documents.marked_text import read_text
from deepwire.serve.documents.office import read_docx, read_odt
from deepwire.serve.documents.subtitles import read_subtitles
from deepwire.serve.documents.xliff import XliffDocument

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
    """The extension of a file name in lower case, with its dot."""
    return PurePath(name).suffix.lower()


def require_reader(name: str) -> None:
    """Checks by the name of a file that there is a reader for it.

    Raises:
        UsageError: There is none.
    """
    kind = ending(name)
    if kind not in _READERS:
        problem = f"files ending in {kind} cannot be translated" if kind else "the file name has no ending"
        raise UsageError(problem, f"known are {', '.join(ENDINGS)}")


def read_document(name: str, content: bytes, options: Options) -> Document:
    """Reads a document.

    Args:
        name: The file name; its ending selects the reader.
        content: The bytes of the file.
        options: Languages, and what to translate.

    Raises:
        UsageError: As `require_reader`.
        DataError: It is damaged, of another kind than its name says, or too large.
    """
    require_reader(name)
    document = _READERS[ending(name)](content, options)
    skipped = [run.text for unit in document.units for run in unit if run.fixed and is_message(run.text)]
    if skipped:
        options.warn(
            f"{counted(len(skipped), 'ICU message')} left untranslated, the first {skipped[0][:40]!r}: "
            "a choice, a missing brace, or branches nested too deeply"
        )
    return document
