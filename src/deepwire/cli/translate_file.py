"""``deepwire translate-file``: translates a document and keeps its format."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import deepwire
from deepwire.cli import options as opt
from deepwire.cli.line_by_line import tell, warn
from deepwire.cli.settings import with_settings
from deepwire.errors import DataError, UsageError
from deepwire.io.atomic import disk_errors, require_absent
from deepwire.io.output import check_output, open_output
from deepwire.io.progress_line import ProgressLine

if TYPE_CHECKING:
    from deepwire.api.model import Model
    from deepwire.decoding.translation_io import Candidate
    from deepwire.serve.documents.document import Document, Options

DocumentFile = Annotated[Path, typer.Option("--input", "-i", help="Document; its extension says the format.")]
OutputFile = Annotated[Path | None, typer.Option("--output", "-o", help="Default: a.en.docx beside a.docx.")]
JsonPath = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATH", help="JSON: translate only these strings: items[*].title, **.label; repeatable."
    ),
]

_WINDOW = 512  # sentences translated between updates of the progress line


@with_settings("beam", "length_penalty", "term_search", "guards", "placeholders")
def translate_file(
    models: opt.Models,
    input_: DocumentFile,
    output: OutputFile = None,
    to: opt.To = None,
    from_: opt.From = None,
    json_path: JsonPath = None,
    *,
    settings: opt.Settings,
    terms: opt.Terms = None,
    precision: opt.Precision = "auto",
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
) -> None:
    """Translate a document: .txt .md .html .srt .vtt .po .xlf .docx .odt .json; only its text changes.

    deepwire translate-file runs/demo --input report.docx

    deepwire translate-file runs/demo --input de.json --json-path "**.title" --output en.json
    """
    from deepwire.data.text.files import read_bytes
    from deepwire.ops.process import configure_process, quick_start
    from deepwire.serve.documents.document import Options
    from deepwire.serve.documents.registry import ENDINGS, ending, require_reader

    if json_path and input_.suffix.lower() != ".json":
        raise UsageError("--json-path has an effect only on .json files")
    require_reader(input_.name)
    content = b"".join(read_bytes(input_))
    inputs = [input_] if terms is None else [input_, terms]
    if output is not None:
        kind = ending(input_.name)
        if ending(output.name) in set(ENDINGS) - {kind}:
            raise UsageError(f"--output {output}: the translation of {input_} is a {kind} file too")
        check_output(output, inputs)
    with quick_start():
        configure_process(threads=threads, flush_denormals=False)
        model = deepwire.load(models, device, precision, settings=settings, warn=warn, terms=terms)
    source, target = _languages(model, from_, to)
    if output is None:
        output = input_.with_suffix(f".{target or 'translated'}{input_.suffix}")
        require_absent(output, f"replace it with --output {output}")
        check_output(output, inputs)
    with ProgressLine(live=False if quiet else None) as progress:

        def warn_on_own_line(text: str) -> None:
            progress.end()
            warn(f"{input_}: {text}")

        progress.count(f"reading {input_.name}", 0)
        options = Options(source, target, tuple(json_path or ()), warn_on_own_line)
        document = _parse(input_, content, options)
        translated = _translate(model, document, options, progress, from_=from_, to=to)
    if output == opt.STDIO:
        sys.stdout.buffer.write(translated)
        return
    with disk_errors(output), open_output(output) as stream:
        stream.buffer.write(translated)
    if not quiet:
        tell(f"wrote {output}")


def _languages(model: Model, from_: str | None, to: str | None) -> tuple[str, str]:
    """The languages of the document and of its translation, `""` where unknown."""
    if model.languages is None:
        source, target = model.direction or ("", "")
        return from_ or source, to or target
    targets = model.languages.targets
    if to is None and len(targets) > 1:
        known = f"the model translates into {', '.join(targets)}"
        raise UsageError("say which language to translate into, with --to", known)
    sources = sorted({each.source for each in model.languages.directions if to in (None, each.target)})
    return from_ or (sources[0] if len(sources) == 1 else ""), to or targets[0]


def _parse(path: Path, content: bytes, options: Options) -> Document:
    """Parses a document; its errors begin with the name of the file, and the line."""
    from deepwire.serve.documents.registry import read_document

    try:
        return read_document(path.name, content, options)
    except DataError as error:
        message = error.message
        if message.startswith("line "):
            raise DataError(f"{path}:{message.removeprefix('line ')}", error.hint) from None
        raise DataError(f"{path}: {message}", error.hint) from None


def _translate(
    model: Model,
    document: Document,
    options: Options,
    progress: ProgressLine,
    *,
    from_: str | None,
    to: str | None,
) -> bytes:
    from deepwire.data.text.sentences import SentenceSplitter
    from deepwire.decoding.alignment import CannotAlignError
    from deepwire.serve.documents.translation_plan import TranslationPlan

    def lengths(texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in model.vocabularies.source.encode_lines(texts)]

    plan = TranslationPlan(
        document.units,
        SentenceSplitter(options.source, lengths, model.config.max_source_length),
        options.target,
        starts={0} if model.context.used else None,
    )
    translator = model
    if plan.has_markup:
        with suppress(CannotAlignError):
            translator = model.aligning()
    for beginning in plan.untranslated:
        options.warn(f"left untranslated, too long for the model and cannot be split: {beginning}")
    best: list[Candidate] = []
    for translation in translator.translations(plan.texts, window=_WINDOW, to=to, from_=from_):
        best.append(translation.candidates[0])
        progress.count("translating", len(best), len(plan.texts), "sentences")
    return document.render(plan.translated_units(best))
