"""``deepwire translate``: text in, text out, by one process, or in parts by those that torchrun starts."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import deepwire
from deepwire.cli import options as opt
from deepwire.cli.line_by_line import CountedLines, warn, write_answers
from deepwire.cli.settings import with_settings
from deepwire.config.counts import counted
from deepwire.errors import LogFn, UsageError
from deepwire.io.output import check_output

if TYPE_CHECKING:
    from deepwire.api.model import Model
    from deepwire.decoding.shortlist import ShortlistChoice
    from deepwire.decoding.translation_io import Request
    from deepwire.distributed.process_group import ProcessGroup

Prefix = Annotated[Path | None, typer.Option(help="Beginnings of the translations, line by line.")]
JsonInput = Annotated[
    bool, typer.Option("--json-input", help='Read {"text": ..., "prefix": ..., "to": ...}.')
]
LanguageColumn = Annotated[
    int | None, typer.Option(min=1, max=2, help="Lines are LANGUAGE<tab>TEXT (1) or TEXT<tab>LANGUAGE (2).")
]
Alignment = Annotated[
    bool, typer.Option("--alignment", help="Also alignments: `A dog runs. ||| 0-0 1-1 2-2`.")
]
Scores = Annotated[bool, typer.Option("--scores", help="Write score, tab, translation.")]
Stream = Annotated[bool, typer.Option("--stream", help="Answer each line as it comes, as at a terminal.")]


@dataclass(frozen=True)
class TranslationJob:
    """The options of the command, by their names."""

    models: Sequence[str]
    settings: opt.Settings
    input: Path
    prefix: Path | None
    json_input: bool
    language_column: int | None
    output: Path
    format: str
    to: str
    from_: str
    stream: bool
    alignment: bool
    terms: Path | None
    shortlist: ShortlistChoice
    precision: str
    device: str
    quiet: bool

    @property
    def texts(self) -> list[Path]:
        """The files that are read line by line."""
        return [self.input] if self.prefix is None else [self.input, self.prefix]

    def requests(self, warn: LogFn) -> Iterator[Request]:
        """The text, line by line."""
        from deepwire.decoding.translation_io import column_requests, json_requests, text_requests

        if self.language_column is not None:
            return column_requests(self.input, self.language_column, warn)
        if self.json_input:
            return json_requests(self.input, warn)
        return text_requests(self.input, self.prefix, warn)

    def describe(self, config: Mapping[str, object], precision: str) -> dict[str, object]:
        """All that the output depends on; parts of an interrupted job count only if it is the same."""
        from deepwire.checkpoint.model_files import fingerprint
        from deepwire.checkpoint.model_path import find_model
        from deepwire.decoding.shortlist import shortlist_folder

        words = shortlist_folder(self.shortlist, find_model(self.models[0]))
        languages = [self.to, self.from_, str(self.language_column or "")]
        states = [(path, path.stat()) for path in self.texts]
        return {
            "models": [fingerprint(find_model(name)) for name in self.models],
            "text": [[str(path.resolve()), state.st_size, state.st_mtime_ns] for path, state in states],
            "decoding settings": dict(config),
            "precision": precision,
            "format": [self.format, self.json_input],
            **({"alignment": True} if self.alignment else {}),
            **({"languages": languages} if any(languages) else {}),
            **({"terms": self.terms.read_text("utf-8", "replace")} if self.terms is not None else {}),
            **({"shortlist": fingerprint(words)} if words is not None else {}),
        }


@with_settings(
    "beam",
    "length_penalty",
    "n_best",
    "term_search",
    "guards",
    "placeholders",
    sample="sampling",
    seed="sampling.seed",
)
def translate(
    models: opt.Models,
    input_: opt.Input = opt.STDIO,
    output: opt.Output = opt.STDIO,
    to: opt.To = None,
    from_: opt.From = None,
    prefix: Prefix = None,
    json_input: JsonInput = False,
    language_column: LanguageColumn = None,
    as_json: opt.Json = False,
    scores: Scores = False,
    stream: Stream = False,
    *,
    settings: opt.Settings,
    terms: opt.Terms = None,
    alignment: Alignment = False,
    shortlist: opt.Shortlist = False,
    shortlist_from: opt.ShortlistFrom = None,
    seen: opt.Seen = False,
    precision: opt.Precision = "auto",
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
) -> None:
    """Translate raw text: one line out for each line in, in the same order; an empty line stays empty.

    deepwire translate runs/demo < test.de > test.en

    deepwire translate runs/a runs/b@avg5 --input test.de.gz --beam 8 --n-best 4

    deepwire translate runs/demo --input test.de sampling.top_k=10 sampling.seed=3

    torchrun --nproc-per-node 4 -m deepwire translate runs/demo --input big.de --output big.en
    """
    from deepwire.decoding.resumable_parts import PartsFolder
    from deepwire.distributed.launch import join_process_group
    from deepwire.ops.process import configure_process

    in_json = 'JSON lines can have "to" and "prefix"'
    opt.require_one(
        {"--prefix": prefix, "--json-input": json_input, "--language-column": language_column}, in_json
    )
    opt.require_one({"--to": to, "--language-column": language_column})
    n_best = "n_best" in settings
    opt.require_one({"--scores": scores, "--json": as_json, "--n-best": n_best and not as_json})
    if prefix == input_ == opt.STDIO:
        raise UsageError("only one text can come from stdin (-)", "put the other one into a file")
    typed = input_ == opt.STDIO and sys.stdin.isatty()
    if typed and not quiet:
        print("type a sentence a line; Ctrl-D ends", file=sys.stderr)
    job = TranslationJob(
        models=models,
        settings=settings,
        input=input_,
        prefix=prefix,
        json_input=json_input,
        language_column=language_column,
        output=output,
        format="as_json" if as_json else "n_best" if n_best else "scored" if scores else "plain",
        to=to or "",
        from_=from_ or "",
        stream=stream or typed,
        alignment=alignment,
        terms=terms,
        shortlist=opt.chosen_shortlist(shortlist, shortlist_from, seen),
        precision=precision,
        device=device,
        quiet=quiet,
    )
    check_output(output, [*job.texts, *([] if terms is None else [terms])])
    configure_process(threads=threads, flush_denormals=False)
    with join_process_group() as processes:
        if processes.count > 1 or PartsFolder.of(output).begun():
            _translate_in_parts(job, processes)
        else:
            _translate_alone(job)


def _translate_alone(job: TranslationJob) -> None:
    from deepwire.decoding.translation_io import FORMATS

    model = deepwire.load(
        job.models,
        job.device,
        job.precision,
        settings=job.settings,
        warn=warn,
        shortlist=job.shortlist,
        terms=job.terms,
    )
    translator = model.aligning() if job.alignment else model
    requests = CountedLines(job.requests(warn))
    window = 1 if job.stream else None
    translations = translator.translations(requests, window=window, to=job.to, from_=job.from_)
    write_answers(requests, translations, FORMATS[job.format], job.output, flush=job.stream, quiet=job.quiet)


def _translate_in_parts(job: TranslationJob, processes: ProcessGroup) -> None:
    """Translate in parts that the processes share; each of them calls this."""
    from deepwire.decoding.document_context import require_no_context
    from deepwire.decoding.resumable_parts import PartsFolder, translate_parts
    from deepwire.decoding.translation_io import FORMATS

    folder = PartsFolder.of(job.output)
    if processes.count > 1:
        _require_files(job)
    elif job.stream or not all(path.is_file() for path in job.texts):
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
    said = processes.main and not job.quiet

    def translate(first: int, requests: list[Request]) -> Iterator[str]:
        translations = translator.translations(
            requests, window=config.window, first=first, to=job.to, from_=job.from_
        )
        return map(FORMATS[job.format], translations)

    with folder.held(description) if processes.main else nullcontext():
        if said and (done := len(folder.done())):
            print(f"{done} parts of {config.window} lines are there already", file=sys.stderr)
        requests = job.requests(warn if processes.main else lambda _: None)
        count = translate_parts(requests, translate, folder, size=config.window, workers=processes)
        if processes.main:
            folder.join(job.output, count)
    if said:
        workers = f" by {processes.count} processes" if processes.count > 1 else ""
        print(f"{counted(count, 'line')} in {time.monotonic() - begun:.1f} s{workers}", file=sys.stderr)


def _require_files(job: TranslationJob) -> None:
    for path in job.texts:
        if not path.is_file():
            raise UsageError(f"{path}: several processes need a file to read from", "add --input FILE")
    if job.stream:
        raise UsageError("--stream is for one process")
    if job.output == opt.STDIO or (job.output.exists() and not job.output.is_file()):
        raise UsageError(f"{job.output}: several processes need a file to write to", "add --output FILE")


def load_in_processes(
    models: Sequence[str],
    settings: opt.Settings,
    device: str,
    precision: str,
    processes: ProcessGroup,
    shortlist: ShortlistChoice = False,
    terms: Path | None = None,
) -> tuple[Model, str]:
    """Load models on the device of this process, which compute as those of the main process.

    Returns:
        The models, and the precision that ``auto`` stands for.
    """
    import torch

    from deepwire.decoding.model_loading import fastest_precision, pick_device
    from deepwire.ops.precision import set_fp32_matmul
    from deepwire.training.device import choose_device

    pick_device(device)
    own_device = choose_device(device, processes, "--device")
    if precision == "auto":
        precision = str(processes.broadcast_value(fastest_precision(own_device) if processes.main else None))
    loaded: list[Model] = []

    def tell(text: str) -> None:
        """Print a warning of the main process; all processes read the same."""
        if processes.main or loaded:
            warn(text)

    def load_here() -> Model:
        return deepwire.load(
            models, str(own_device), precision, settings=settings, warn=tell, shortlist=shortlist, terms=terms
        )

    model = processes.run_on_main_first(load_here)  # makes an average that does not exist yet
    loaded.append(model)
    products = processes.broadcast_value(torch.get_float32_matmul_precision())
    set_fp32_matmul("medium" if products == "medium" else "highest")
    return model, precision
