"""A text to translate, how, and where to: by one process, or in parts by the several that torchrun starts."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deepwire.cli.decoding_options import STDIO
from deepwire.config.counts import counted
from deepwire.errors import UsageError

if TYPE_CHECKING:
    from deepwire.decoding.model_inputs import Warn
    from deepwire.decoding.shortlist import ShortlistChoice
    from deepwire.decoding.translation_io import Request
    from deepwire.decoding.translator import Translator
    from deepwire.distributed.process_group import ProcessGroup
    from deepwire.model.decoder_state import DecoderState


@dataclass(frozen=True)
class InputText:
    """What is read.

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

    def requests(self, warn: Warn) -> Iterator[Request]:
        """What is asked for, line by line."""
        from deepwire.decoding.translation_io import column_requests, json_requests, text_requests

        if self.language_column is not None:
            return column_requests(self.path, self.language_column, warn)
        return json_requests(self.path, warn) if self.json else text_requests(self.path, self.prefixes, warn)


@dataclass(frozen=True)
class TranslationJob:
    """What is to be translated, and how.

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
            **({"languages": languages} if any(languages) else {}),
            **({"shortlist": fingerprint(words)} if words is not None else {}),
        }


def run(job: TranslationJob, *, threads: int | None, quiet: bool) -> None:
    """Translate, in all processes that torchrun has started or in this one.

    Args:
        job: What and how.
        threads: CPU threads of each process; None leaves them as they are.
        quiet: Whether to print no summary.

    Raises:
        UsageError: The translations cannot be written there. With several processes also: the text comes from
            stdin, goes to stdout or is a stream, or parts of another job are there.
    """
    from deepwire.distributed.launch import join_process_group
    from deepwire.io.output import check_output
    from deepwire.ops.process import configure_process

    check_output(job.output, job.text.files)
    configure_process(threads=threads, flush_denormals=False)
    with join_process_group() as processes:
        if processes.count > 1:
            _translate_in_processes(job, processes, quiet=quiet)
        else:
            _translate_alone(job, quiet=quiet)


def _translate_alone(job: TranslationJob, *, quiet: bool) -> None:
    from deepwire.cli.line_by_line import CountedLines, warn, write_answers
    from deepwire.decoding.load_translator import load
    from deepwire.decoding.translation_io import FORMATS

    translator = load(
        job.models, job.device, job.precision, settings=job.settings, warn=warn, shortlist=job.shortlist
    )
    requests = CountedLines(job.text.requests(warn))
    to, from_ = job.languages
    translations = translator.translations(requests, window=1 if job.stream else None, to=to, from_=from_)
    write_answers(requests, translations, FORMATS[job.format], job.output, flush=job.stream, quiet=quiet)


def _translate_in_processes(job: TranslationJob, processes: ProcessGroup, *, quiet: bool) -> None:
    """Translate in parts that several processes share; each of them calls this."""
    from deepwire.cli.line_by_line import warn
    from deepwire.decoding.resumable_parts import PartsFolder, translate_parts
    from deepwire.decoding.translation_io import FORMATS

    _require_files(job)
    begun = time.monotonic()
    translator, precision = load_in_processes(
        job.models, job.settings, job.device, job.precision, processes, job.shortlist
    )
    config = translator.config
    folder = PartsFolder.of(job.output)
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
        requests = job.text.requests(warn if processes.main else _do_nothing)
        count = translate_parts(requests, translate, folder, size=config.window, workers=processes)
        if processes.main:
            folder.join(job.output, count)
    if processes.main and not quiet:
        seconds = time.monotonic() - begun
        print(f"{counted(count, 'line')} in {seconds:.1f} s by {processes.count} processes", file=sys.stderr)


def _require_files(job: TranslationJob) -> None:
    if job.stream:
        raise UsageError("--stream is for one process")
    for path in job.text.files:
        if not path.is_file():
            raise UsageError(
                f"{path}: several processes read the text each, so it must be a file", "--input FILE"
            )
    if job.output == STDIO or (job.output.exists() and not job.output.is_file()):
        raise UsageError(f"{job.output}: several processes need a file to write to", "add --output FILE")


def load_in_processes(
    models: Sequence[str],
    settings: Mapping[str, object],
    device: str,
    precision: str,
    processes: ProcessGroup,
    shortlist: ShortlistChoice = False,
) -> tuple[Translator[DecoderState], str]:
    """The models on the device of this process, which compute as those of the main process; the precision."""
    import torch

    from deepwire.cli.line_by_line import warn
    from deepwire.decoding.load_translator import load
    from deepwire.decoding.model_loading import fastest_precision, pick_device
    from deepwire.ops.precision import set_fp32_matmul
    from deepwire.training.device import choose_device

    pick_device(device)
    own_device = choose_device(device, processes, "--device")
    if precision == "auto":
        precision = str(processes.broadcast_value(fastest_precision(own_device) if processes.main else None))
    # An average that does not exist yet is made by one process.
    translator = processes.run_on_main_first(
        lambda: load(models, str(own_device), precision, settings=settings, warn=warn, shortlist=shortlist)
    )
    products = processes.broadcast_value(torch.get_float32_matmul_precision())
    set_fp32_matmul("medium" if products == "medium" else "highest")
    return translator, precision


def _do_nothing(_warning: str) -> None:
    """Another process says it."""
