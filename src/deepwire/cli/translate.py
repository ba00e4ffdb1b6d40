"""``deepwire translate``: text in, text out, by one process, or in parts by those that torchrun starts."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.cli.decoding_options import (
    STDIO,
    Alignment,
    AlignmentHead,
    AlignmentLayer,
    AlignmentStep,
    AlignmentUnits,
    BatchTokens,
    Beam,
    Casing,
    Device,
    Epsilon,
    Groups,
    Guards,
    Json,
    LengthPenalty,
    MinimumBayesRisk,
    Models,
    OtherSettings,
    Output,
    Placeholders,
    Precision,
    Quiet,
    Rounds,
    Seed,
    Seen,
    ShortlistFrom,
    Temperature,
    Terms,
    TermSearch,
    Threads,
    To,
    TopK,
    TopP,
    UseShortlist,
    alignment_settings,
    chosen_shortlist,
    sampling_settings,
    search_settings,
    specified,
    term_settings,
    with_others,
)
from deepwire.config.counts import counted
from deepwire.errors import UsageError

if TYPE_CHECKING:
    from deepwire.decoding.shortlist import ShortlistChoice
    from deepwire.decoding.translation_io import Request, Translation
    from deepwire.distributed.process_group import ProcessGroup
    from deepwire.errors import Tell


@dataclass(frozen=True)
class InputText:
    """The text to translate.

    Attributes:
        path: The text; - is stdin.
        prefixes: What each translation must begin with, line by line; None = free.
        json: Whether the text is JSON lines.
        language_column: The column with the language to translate a line into, from 1; None = there is none.

    Raises:
        UsageError: Two of these exclude each other.
    """

    path: Path
    prefixes: Path | None = None
    json: bool = False
    language_column: int | None = None

    def __post_init__(self) -> None:
        if self.prefixes is not None and self.json:
            raise UsageError(
                "--prefix and --json-input exclude each other", 'write "prefix" into the JSON lines'
            )
        if self.language_column is not None and (self.prefixes is not None or self.json):
            raise UsageError(
                "--language-column excludes --prefix and --json-input",
                'write JSON lines with "to" and "prefix"',
            )
        if self.prefixes == self.path == STDIO:
            raise UsageError("only one text can come from stdin (-)", "put the other one into a file")

    @property
    def files(self) -> list[Path]:
        """All that is read."""
        return [self.path] if self.prefixes is None else [self.path, self.prefixes]

    def requests(self, warn: Tell) -> Iterator[Request]:
        """The requests, line by line."""
        from deepwire.decoding.translation_io import column_requests, json_requests, text_requests

        if self.language_column is not None:
            return column_requests(self.path, self.language_column, warn)
        return json_requests(self.path, warn) if self.json else text_requests(self.path, self.prefixes, warn)


@dataclass(frozen=True)
class TranslationJob:
    """The text to translate, and how.

    Attributes:
        models: MODEL names.
        text: What is read.
        output: The file to write; - is stdout.
        format: How translations are written, one of `deepwire.decoding.translation_io.FORMATS`.
        languages: Those to translate into and from, or empty.
        settings: Decoding settings that replace those of the model.
        device, precision: As in the options of the command.
        shortlist: Whether to use that of the first model, or the folder of another.
        stream: Whether each line is answered before the next is read.
        terms: File of terms; None = none.
        alignment: Whether alignments are written, too.

    Raises:
        UsageError: Both the job and the lines name a language.
    """

    models: Sequence[str]
    text: InputText
    output: Path
    format: str
    languages: tuple[str, str]
    settings: Mapping[str, object]
    device: str
    precision: str
    shortlist: ShortlistChoice
    stream: bool
    terms: Path | None = None
    alignment: bool = False

    def __post_init__(self) -> None:
        if self.languages[0] and self.text.language_column is not None:
            raise UsageError("--language-column excludes --to", "leave out one of them")

    def describe(self, config: Mapping[str, object], precision: str) -> dict[str, object]:
        """All that the output depends on; parts of an interrupted job count only if it is the same."""
        from deepwire.checkpoint.model_files import fingerprint
        from deepwire.checkpoint.model_path import find_model
        from deepwire.decoding.shortlist import shortlist_folder

        words = shortlist_folder(self.shortlist, find_model(self.models[0]))
        languages = [*self.languages, str(self.text.language_column or "")]
        states = [(path, path.stat()) for path in self.text.files]
        return {
            "models": [fingerprint(find_model(name)) for name in self.models],
            "text": [[str(path.resolve()), state.st_size, state.st_mtime_ns] for path, state in states],
            "decoding settings": dict(config),
            "precision": precision,
            "format": [self.format, self.text.json],
            **({"alignment": True} if self.alignment else {}),
            **({"languages": languages} if any(languages) else {}),
            **({"terms": self.terms.read_text("utf-8", "replace")} if self.terms is not None else {}),
            **({"shortlist": fingerprint(words)} if words is not None else {}),
        }


def run_translation(job: TranslationJob, *, threads: int | None, quiet: bool) -> None:
    """Translate, in all processes that torchrun has started or in this one, which finishes begun parts, too.

    Args:
        job: What and how.
        threads: CPU threads of each process; None leaves them as they are.
        quiet: Whether to print no summary.

    Raises:
        UsageError: The translations cannot be written there, or parts of another job are there. With several
            processes also: the text comes from stdin, goes to stdout or is a stream.
    """
    from deepwire.decoding.resumable_parts import PartsFolder
    from deepwire.distributed.launch import join_process_group
    from deepwire.io.output import check_output
    from deepwire.ops.process import configure_process

    check_output(job.output, [*job.text.files, *([] if job.terms is None else [job.terms])])
    configure_process(threads=threads, flush_denormals=False)
    with join_process_group() as processes:
        if processes.count > 1 or PartsFolder.of(job.output).begun():
            _translate_in_parts(job, processes, quiet=quiet)
        else:
            _translate_alone(job, quiet=quiet)


def _translate_alone(job: TranslationJob, *, quiet: bool) -> None:
    from deepwire.api.model import load
    from deepwire.cli.line_by_line import CountedLines, warn, write_answers
    from deepwire.decoding.translation_io import FORMATS, EmptyTranslations

    model = load(
        job.models,
        job.device,
        job.precision,
        settings=job.settings,
        warn=warn,
        shortlist=job.shortlist,
        terms=job.terms,
    )
    translator = model.aligning() if job.alignment else model
    requests = CountedLines(job.text.requests(warn))
    to, from_ = job.languages
    translations = translator.translations(requests, window=1 if job.stream else None, to=to, from_=from_)
    empty, form = EmptyTranslations(warn), FORMATS[job.format]

    def written(translation: Translation) -> str:
        empty.see(translation.request.text, translation.text)
        return form(translation)

    write_answers(requests, translations, written, job.output, flush=job.stream, quiet=quiet)
    empty.end()


def _translate_in_parts(job: TranslationJob, processes: ProcessGroup, *, quiet: bool) -> None:
    """Translate in parts that the processes share; each of them calls this."""
    from deepwire.cli.line_by_line import warn
    from deepwire.cli.loading_in_processes import load_in_processes
    from deepwire.decoding.document_context import require_no_context
    from deepwire.decoding.resumable_parts import PartsFolder, translate_parts
    from deepwire.decoding.translation_io import FORMATS

    folder = PartsFolder.of(job.output)
    if processes.count > 1:
        _require_files(job)
    elif job.stream or not all(path.is_file() for path in job.text.files):
        raise folder.of_another_job()
    begun = time.monotonic()
    model, precision = load_in_processes(
        job.models, job.settings, job.device, job.precision, processes, job.shortlist, job.terms
    )
    if processes.count > 1:
        require_no_context(model.context, "but several processes translate parts of a text")
    translator = model.aligning() if job.alignment else model
    config = translator.config
    description = job.describe(config.model_dump(mode="json"), precision) if processes.main else {}

    to, from_ = job.languages

    def translate(first: int, requests: list[Request]) -> Iterator[str]:
        translations = translator.translations(
            requests, window=config.window, first=first, to=to, from_=from_
        )
        return map(FORMATS[job.format], translations)

    with folder.held(description) if processes.main else nullcontext():
        if processes.main and not quiet and (done := len(folder.done())):
            print(f"{done} parts of {config.window} lines are there already", file=sys.stderr)
        requests = job.text.requests(warn if processes.main else lambda _: None)
        count = translate_parts(requests, translate, folder, size=config.window, workers=processes)
        if processes.main:
            folder.join(job.output, count)
    if processes.main and not quiet:
        seconds = time.monotonic() - begun
        workers = f" by {processes.count} processes" if processes.count > 1 else ""
        print(f"{counted(count, 'line')} in {seconds:.1f} s{workers}", file=sys.stderr)


def _require_files(job: TranslationJob) -> None:
    for path in job.text.files:
        if not path.is_file():
            raise UsageError(
                f"{path}: several processes read the text each, so it must be a file", "--input FILE"
            )
    if job.stream:
        raise UsageError("--stream is for one process")
    if job.output == STDIO or (job.output.exists() and not job.output.is_file()):
        raise UsageError(f"{job.output}: several processes need a file to write to", "add --output FILE")


Input = Annotated[
    Path, typer.Option("--input", "-i", help="Text to translate; - is stdin; also .gz/.zst/.xz.")
]
NBest = Annotated[
    int | None,
    typer.Option(min=1, help="Write this many candidates a line: `0 ||| text ||| Score= ||| score`."),
]
Sample = Annotated[bool, typer.Option("--sample", help="Draw translations at random instead of searching.")]
Prefix = Annotated[
    Path | None, typer.Option(help="Text that each translation must begin with, one line for each line.")
]
JsonInput = Annotated[
    bool,
    typer.Option(
        "--json-input",
        help='Read JSON lines: {"text": ..., "prefix": ..., "to": ...}; others are kept.',
    ),
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="LANGUAGE", help="Language of the text; says when it was not trained so."),
]
LanguageColumn = Annotated[
    int | None,
    typer.Option(min=1, max=2, help="Lines are LANGUAGE<tab>TEXT (1) or TEXT<tab>LANGUAGE (2)."),
]
Scores = Annotated[bool, typer.Option("--scores", help="Write score, tab, translation.")]
Stream = Annotated[bool, typer.Option("--stream", help="Answer each line as it comes, as at a terminal.")]


def translate(
    models: Models,
    input_: Input = STDIO,
    output: Output = STDIO,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    groups: Groups = None,
    rounds: Rounds = None,
    n_best: NBest = None,
    sample: Sample = False,
    top_k: TopK = None,
    top_p: TopP = None,
    epsilon: Epsilon = None,
    mbr: MinimumBayesRisk = None,
    temperature: Temperature = None,
    seed: Seed = None,
    prefix: Prefix = None,
    as_json: Json = False,
    json_input: JsonInput = False,
    to: To = None,
    from_: From = None,
    language_column: LanguageColumn = None,
    scores: Scores = False,
    stream: Stream = False,
    batch_tokens: BatchTokens = None,
    set_: OtherSettings = None,
    shortlist: UseShortlist = False,
    shortlist_from: ShortlistFrom = None,
    seen: Seen = False,
    terms: Terms = None,
    term_search: TermSearch = None,
    placeholders: Placeholders = False,
    guards: Guards = False,
    alignment: Alignment = False,
    alignment_layer: AlignmentLayer = None,
    alignment_head: AlignmentHead = None,
    alignment_step: AlignmentStep = None,
    alignment_units: AlignmentUnits = None,
    casing: Casing = False,
    precision: Precision = "auto",
    device: Device = "auto",
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Translate raw text: one line out for each line in, in the same order; an empty line stays empty.

    deepwire translate runs/demo < test.de > test.en

    deepwire translate runs/a runs/b@avg5 --input test.de.gz --beam 8 --n-best 4

    torchrun --nproc-per-node 4 -m deepwire translate runs/demo --input big.de --output big.en
    """
    changes = search_settings(beam, length_penalty, groups, rounds, batch_tokens)
    changes |= specified(n_best=n_best, placeholders=placeholders, guards=guards, casing=casing)
    changes |= term_settings(terms, term_search)
    changes |= alignment_settings(alignment, alignment_layer, alignment_head, alignment_step, alignment_units)
    changes |= specified(
        sampling=sampling_settings(models, sample, top_k, top_p, temperature, seed, beam, epsilon, mbr)
    )
    changes = with_others(
        changes, set_, n_best=True, terms=terms is not None, alignment=alignment, window=not stream
    )
    text = InputText(input_, prefix, json_input, language_column)
    form = _format(as_json, "n_best" in changes, scores)
    typed = input_ == STDIO and sys.stdin.isatty()
    if typed and not quiet:
        print("type a sentence a line; Ctrl-D ends", file=sys.stderr)
    chosen = chosen_shortlist(shortlist, shortlist_from, seen)
    languages = (to or "", from_ or "")
    job = TranslationJob(
        models, text, output, form, languages, changes, device, precision, chosen, stream or typed
    )
    run_translation(replace(job, terms=terms, alignment=alignment), threads=threads, quiet=quiet)


def _format(as_json: bool, n_best: bool, scores: bool) -> str:
    """The name of the format in which translations are written.

    Raises:
        UsageError: Two formats exclude each other.
    """
    if scores and (as_json or n_best):
        raise UsageError("--scores is for plain text", "JSON and n-best lists hold scores anyway")
    return "as_json" if as_json else "n_best" if n_best else "scored" if scores else "plain"
