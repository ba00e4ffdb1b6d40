"""``torchrun ... -m deepwire translate``: a large text, shared out to several processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from deepwire.cli.decoding_options import STDIO
from deepwire.cli.line_by_line import warn

if TYPE_CHECKING:
    from deepwire.cli.translation_job import TranslationJob
    from deepwire.decoding.shortlist.stored import ShortlistChoice
    from deepwire.decoding.translation import Request
    from deepwire.decoding.translator import Translator
    from deepwire.distributed.process_group import ProcessGroup
    from deepwire.model.state import DecoderState


def translate_in_parts(job: TranslationJob, processes: ProcessGroup, *, quiet: bool) -> None:
    """Translate in several processes; each calls this.

    Args:
        job: What and how.
        processes: Those that share the work.
        quiet: Whether to print no summary.

    Raises:
        UsageError: If the text comes from stdin, goes to stdout or is a stream, or parts of another job
            are there.
    """
    from deepwire.decoding.parts import PartsFolder, make_parts

    _require_files(job)
    begun = time.monotonic()
    translator, precision = load_alike(
        job.models, job.settings, job.device, job.precision, processes, job.shortlist
    )
    config = translator.config
    folder = PartsFolder.of(job.output)
    description = job.describe(config.model_dump(mode="json"), precision) if processes.main else {}

    to, from_ = job.languages

    def answers(first: int, requests: list[Request]) -> Iterator[str]:
        found = translator.translations(requests, window=config.window, first=first, to=to, from_=from_)
        return map(job.form, found)

    with folder.held(description) if processes.main else nullcontext():
        if processes.main and not quiet and (done := len(folder.done())):
            print(f"{done} parts of {config.window} lines are there already", file=sys.stderr)
        lines = job.text.requests(warn if processes.main else _ignore)
        count = make_parts(lines, answers, folder, size=config.window, workers=processes)
        if processes.main:
            folder.join(job.output, count)
    if processes.main and not quiet:
        seconds = time.monotonic() - begun
        print(f"{count:,} lines in {seconds:.1f} s by {processes.count} processes", file=sys.stderr)


def _require_files(job: TranslationJob) -> None:
    from deepwire.errors import UsageError

    if job.stream:
        raise UsageError("--stream is for one process")
    for path in job.text.files:
        if not path.is_file():
            raise UsageError(
                f"{path}: several processes read the text each, so it must be a file", "--input FILE"
            )
    if job.output == STDIO or (job.output.exists() and not job.output.is_file()):
        raise UsageError(f"{job.output}: several processes need a file to write to", "add --output FILE")


def load_alike(
    models: Sequence[str],
    settings: Mapping[str, object],
    device: str,
    precision: str,
    processes: ProcessGroup,
    shortlist: ShortlistChoice = False,
) -> tuple[Translator[DecoderState], str]:
    """The models on the device of this process, which compute as those of the main process; the precision."""
    import torch

    from deepwire.decoding.loading import fastest, pick_device
    from deepwire.decoding.translator import load
    from deepwire.ops.precision import set_fp32_matmul
    from deepwire.training.device import choose_device

    pick_device(device)
    place = choose_device(device, processes, "--device")
    if precision == "auto":
        precision = str(processes.broadcast_value(fastest(place) if processes.main else None))
    # An average that does not exist yet is made by one.
    translator = processes.run_on_main_first(
        lambda: load(models, str(place), precision, settings=settings, warn=warn, shortlist=shortlist)
    )
    products = processes.broadcast_value(torch.get_float32_matmul_precision())
    set_fp32_matmul("medium" if products == "medium" else "highest")
    return translator, precision


def _ignore(_warning: str) -> None:
    """Another process says it."""
