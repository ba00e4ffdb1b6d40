"""A text to translate, how, and where to: by one process, or by the several that torchrun starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deepwire.cli.decoding_options import STDIO
from deepwire.errors import UsageError

if TYPE_CHECKING:
    from deepwire.decoding.formats import TranslationFormat
    from deepwire.decoding.shortlist.stored import ShortlistChoice
    from deepwire.decoding.source import Warn
    from deepwire.decoding.translation import Request


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
        from deepwire.decoding.requests import column_requests, json_requests, text_requests

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
        form: How answers are written.
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
    form: TranslationFormat
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
        from deepwire.checkpoint.locate import resolve
        from deepwire.checkpoint.manifest import fingerprint
        from deepwire.decoding.shortlist.stored import shortlist_folder

        words = shortlist_folder(self.shortlist, resolve(self.models[0]))
        languages = [*self.languages, str(self.text.language_column or "")]
        states = [(path, path.stat()) for path in self.text.files]
        return {
            "models": [fingerprint(resolve(name)) for name in self.models],
            "text": [[str(path.resolve()), state.st_size, state.st_mtime_ns] for path, state in states],
            "decoding settings": dict(config),
            "precision": precision,
            "format": [self.form.__name__, self.text.json],
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
        UsageError: The answers cannot be written there.
    """
    from deepwire.cli.parts import translate_in_parts
    from deepwire.data.text.output import check_output
    from deepwire.distributed.launch import join_process_group
    from deepwire.ops.process import configure_process

    check_output(job.output, job.text.files)
    configure_process(threads=threads, flush_denormals=False)
    with join_process_group() as processes:
        if processes.count > 1:
            translate_in_parts(job, processes, quiet=quiet)
        else:
            _translate_alone(job, quiet=quiet)


def _translate_alone(job: TranslationJob, *, quiet: bool) -> None:
    from deepwire.cli.line_by_line import Counted, warn, write_answers
    from deepwire.decoding.translator import load

    translator = load(
        job.models, job.device, job.precision, settings=job.settings, warn=warn, shortlist=job.shortlist
    )
    requests = Counted(job.text.requests(warn))
    to, from_ = job.languages
    answers = translator.translations(requests, window=1 if job.stream else None, to=to, from_=from_)
    write_answers(requests, answers, job.form, job.output, flush=job.stream, quiet=quiet)
