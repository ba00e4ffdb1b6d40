"""``deepwire translate-file``: a document in, the same document in another language out."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.cli.decoding_options import (
    STDIO,
    BatchTokens,
    Beam,
    Casing,
    Device,
    Groups,
    Guards,
    LengthPenalty,
    Models,
    OtherSettings,
    Placeholders,
    Precision,
    Quiet,
    Terms,
    TermSearch,
    Threads,
    To,
    search_settings,
    specified,
    term_settings,
    with_others,
)

if TYPE_CHECKING:
    from deepwire.api.model import Model
    from deepwire.cli.line_by_line import ProgressLine
    from deepwire.decoding.translation_io import Candidate
    from deepwire.decoding.translator import Translator
    from deepwire.serve.documents.document import Document, Options

Input = Annotated[Path, typer.Option("--input", "-i", help="Document; the ending of its name says its kind.")]
OutputFile = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="File to write. Default: beside the document, as report.en.docx."),
]
From = Annotated[str | None, typer.Option("--from", metavar="LANGUAGE", help="Language of the document.")]
JsonPath = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATH",
        help="JSON: translate the strings here only, for example items[*].title or **.label; repeatable.",
    ),
]

_MOST_BYTES = 1 << 30
_WINDOW = 512  # sentences between two looks at the progress


def translate_file(
    models: Models,
    input_: Input,
    output: OutputFile = None,
    to: To = None,
    from_: From = None,
    json_path: JsonPath = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    groups: Groups = None,
    batch_tokens: BatchTokens = None,
    set_: OtherSettings = None,
    terms: Terms = None,
    term_search: TermSearch = None,
    placeholders: Placeholders = False,
    guards: Guards = False,
    casing: Casing = False,
    precision: Precision = "auto",
    device: Device = "auto",
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Translate a document: .txt .md .html .srt .vtt .po .xlf .docx .odt .json; only its text changes.

    deepwire translate-file runs/demo --input report.docx

    deepwire translate-file runs/demo --input de.json --json-path "**.title" --output en.json
    """
    from deepwire.api.model import load
    from deepwire.cli.line_by_line import ProgressLine, tell, warn
    from deepwire.errors import UsageError
    from deepwire.io.atomic import require_absent
    from deepwire.io.output import check_output
    from deepwire.ops.process import configure_process
    from deepwire.serve.documents.document import Options
    from deepwire.serve.documents.registry import require_reader, require_same_kind

    if json_path and input_.suffix.lower() != ".json":
        raise UsageError("--json-path has an effect only on .json files")
    require_reader(input_.name)
    if output is not None:
        require_same_kind(str(input_), str(output))
    content = _content(input_)
    read = [input_, *([] if terms is None else [terms])]
    if output is not None:
        check_output(output, read)
    configure_process(threads=threads, flush_denormals=False)
    settings = search_settings(beam, length_penalty, groups, None, batch_tokens)
    settings |= specified(placeholders=placeholders, guards=guards, casing=casing)
    settings |= term_settings(terms, term_search)
    settings = with_others(settings, set_, terms=terms is not None, alignment=True, window=False)
    model = load(models, device, precision, settings=settings, warn=warn, terms=terms)
    source, target = _languages(model, from_, to)
    if output is None:
        output = input_.with_suffix(f".{target or 'translated'}{input_.suffix}")
        require_absent(output, f"replace it with --output {output}")
        check_output(output, read)
    with ProgressLine(live=False if quiet else None) as progress:

        def warn_of_document(text: str) -> None:
            progress.end()  # warnings have lines of their own
            warn(f"{input_}: {text}")

        progress.count(f"reading {input_.name}", 0)
        asked = Options(source, target, tuple(json_path or ()), warn_of_document)
        document = _read(input_, content, asked)
        translated = _translated(model, document, Options(source, target), to, from_, input_, progress)
    _write(output, translated)
    if not quiet and output != STDIO:
        tell(f"wrote {output}")


def _content(path: Path) -> bytes:
    from deepwire.errors import DataError

    if path.is_dir():
        raise DataError(f"{path}: is a folder, not a document")
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror}") from None
    if len(content) > _MOST_BYTES:
        raise DataError(f"{path}: has more than {_MOST_BYTES:,} bytes", "translate it in parts")
    return content


def _languages(model: Model, from_: str | None, to: str | None) -> tuple[str, str]:
    """The languages of the document and of its translation, as far as they are known."""
    if model.languages is None:
        source, target = model.direction or ("", "")
        return from_ or source, to or target
    targets = model.languages.targets
    sources = sorted({each.source for each in model.languages.directions if to in (None, each.target)})
    return from_ or (sources[0] if len(sources) == 1 else ""), to or (targets[0] if len(targets) == 1 else "")


def _read(path: Path, content: bytes, options: Options) -> Document:
    """The document.

    Raises:
        DataError: With the name of the file in front, and its line.
    """
    from deepwire.errors import DataError
    from deepwire.serve.documents.registry import read_document

    try:
        return read_document(path.name, content, options)
    except DataError as error:
        line = error.message.removeprefix("line ")  # a.po:3: what is wrong there
        said = f" {line}" if line == error.message else line
        raise DataError(f"{path}:{said}", error.hint) from None


def _translated(
    model: Model,
    document: Document,
    languages: Options,
    to: str | None,
    from_: str | None,
    path: Path,
    progress: ProgressLine,
) -> bytes:
    from deepwire.cli.line_by_line import warn
    from deepwire.data.text.sentences import SentenceSplitter
    from deepwire.serve.documents.translation_plan import TranslationPlan

    encode = model.vocabularies.source.encode_lines
    splitter = SentenceSplitter(
        languages.source,
        lambda texts: [len(ids) for ids in encode(texts)],
        model.config.max_source_length,
    )
    translator, aligned = _aligning(model, document)
    starts = {0} if model.context.used else None
    plan = TranslationPlan(document.units, splitter, languages.target, aligned=aligned, starts=starts)
    progress.end()  # warnings have lines of their own
    for beginning in plan.untranslated:
        warn(f"{path}: stays as it is, too long for the model and without a place for a cut: {beginning}")
    best: list[Candidate] = []
    for translation in translator.translations(plan.texts, window=_WINDOW, to=to, from_=from_):
        best.append(translation.candidates[0])
        progress.count("translating", len(best), len(plan.texts), "sentences")
    return document.written(
        plan.finished([candidate.text for candidate in best], [candidate.alignment for candidate in best])
    )


def _aligning(model: Model, document: Document) -> tuple[Translator, bool]:
    """The model, which aligns its translations if it can and there is markup to put at their words.

    Raises:
        UsageError: The settings name a layer or head that it does not have.
    """
    from deepwire.decoding.alignment import CannotAlignError

    if any(len(unit) > 1 for unit in document.units):
        with suppress(CannotAlignError):
            return model.aligning(), True
    return model, False


def _write(path: Path, content: bytes) -> None:
    """Write a file that appears only when it is complete."""
    from deepwire.io.atomic import disk_errors
    from deepwire.io.output import open_output

    if path == STDIO:
        sys.stdout.buffer.write(content)
        return
    with disk_errors(path), open_output(path) as stream:
        stream.buffer.write(content)
