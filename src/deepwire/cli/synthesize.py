"""``deepwire distill`` and ``deepwire back-translate``: synthetic parallel text, in parts that stay done."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import deepwire
from deepwire import __version__
from deepwire.cli import options as opt
from deepwire.cli.line_by_line import warn
from deepwire.cli.settings import SAMPLING, with_settings
from deepwire.config.counts import counted
from deepwire.data.languages import closest_label, known_directions, named_direction
from deepwire.errors import DataError, UsageError
from deepwire.io.output import check_output

if TYPE_CHECKING:
    from deepwire.api.model import Model
    from deepwire.decoding.resumable_parts import SyntheticCorpus
    from deepwire.distributed.process_group import ProcessGroup

SourceText = Annotated[Path, typer.Option("--source", "--input", "-i", help="Source side of training text.")]
MonolingualText = Annotated[Path, typer.Option("--input", "-i", help="Text in MODEL's source language.")]
OutputPrefix = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="PREFIX[.gz]",
        help="Prefix of the two files, for data.train; with .gz, .zst or .xz compressed.",
    ),
]
Tag = Annotated[str, typer.Option(help="Tag in front of each translation, such as <BT>.")]


@with_settings("beam", "length_penalty")
def distill(
    models: opt.Models,
    source: SourceText,
    output: OutputPrefix,
    from_: opt.From = None,
    to: opt.To = None,
    *,
    settings: opt.Settings,
    precision: opt.Precision = "auto",
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
) -> None:
    """Translate training text with a teacher, for a student (sequence-level knowledge distillation).

    Writes PREFIX.de (the text), PREFIX.en (the translations) and PREFIX.json (how they were made). The same
    command continues; lines are finished in parts of window=10k.

    deepwire distill runs/teacher@avg5 --source train.de.gz --output distilled.gz

    torchrun --nproc-per-node 4 -m deepwire distill runs/teacher --source train.de --output distilled
    """
    opt.use_threads(threads)
    where = _Corpus(models, source, output, (from_ or "", to or ""))
    _synthesize("deepwire distill", where, "", settings, device, precision, quiet=quiet)


@with_settings("beam", "length_penalty", **SAMPLING)
def back_translate(
    models: opt.Models,
    input_: MonolingualText,
    output: OutputPrefix,
    tag: Tag = "",
    from_: opt.From = None,
    to: opt.To = None,
    *,
    settings: opt.Settings,
    precision: opt.Precision = "auto",
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
) -> None:
    """Translate monolingual target text back into the source language, as additional training text.

    To train German to English, MODEL translates English to German. Writes PREFIX.en (the text), PREFIX.de
    (the translations) and PREFIX.json (how they were made). The same command continues.

    deepwire back-translate runs/en-de --input mono.en.gz --output back.gz --sample --tag "<BT>"
    """
    opt.use_threads(threads)
    where = _Corpus(models, input_, output, (from_ or "", to or ""))
    _synthesize("deepwire back-translate", where, tag, settings, device, precision, quiet=quiet)


@dataclass(frozen=True)
class _Corpus:
    """The text to translate, the models, and the names of the files to make."""

    models: Sequence[str]
    text: Path
    output: Path
    named: tuple[str, str]

    def files(self, stored: Mapping[str, object]) -> SyntheticCorpus:
        """The files to make, named by the languages of the model."""
        from deepwire.decoding.resumable_parts import SyntheticCorpus
        from deepwire.decoding.translation_io import read_text

        if self.text == opt.STDIO:
            raise UsageError(
                "no stdin (-): an interrupted command goes on with its text", "put the text into a file"
            )
        if next(iter(read_text(self.text, lambda _: None)), None) is None:
            raise DataError(f"{self.text}: is empty", "give a file of text, one sentence a line")
        corpus = SyntheticCorpus.of(self.output, *self._languages(stored))
        for path in (corpus.given, corpus.made):
            check_output(path, [self.text])
        return corpus

    def _languages(self, stored: Mapping[str, object]) -> tuple[str, str]:
        """The languages of the only direction that fits those named; or these, as the model may go beyond."""
        known = known_directions(stored)
        fitting = [
            direction
            for direction in known
            if all(
                closest_label(one, [language]) in ("", language)
                for one, language in zip(self.named, direction, strict=True)
            )
        ]
        if len(fitting) == 1:
            return fitting[0]
        sides = zip(self.named, ("source", "target"), strict=True)
        source, target = (named or str(stored.get(side, "")) for named, side in sides)
        if source and target and source != target and named_direction(stored) is None:
            return source, target
        raise UsageError(
            f"{self.models[0]}: name both languages: --from de --to en",
            f"it has {', '.join(map(str, known))}" if known else "it does not say its own",
        )

    def direction(self, stored: Mapping[str, object]) -> tuple[str, str]:
        """The languages to name to the model: none, where it has one direction."""
        return self._languages(stored) if "directions" in stored else ("", "")


def _synthesize(
    command: str,
    where: _Corpus,
    tag: str,
    settings: opt.Settings,
    device: str,
    precision: str,
    *,
    quiet: bool,
) -> None:
    """Translate in all processes that torchrun has started; what an interrupted call has done stays done."""
    from deepwire.checkpoint.model_files import fingerprint
    from deepwire.checkpoint.model_path import find_model
    from deepwire.decoding.resumable_parts import check_tag, finished_lines, synthesize
    from deepwire.decoding.translation_io import read_text
    from deepwire.distributed.launch import join_process_group
    from deepwire.evaluation.texts import metadata

    begun, tag = time.monotonic(), check_tag(tag)
    with join_process_group() as processes:
        # The first process makes an average that does not exist yet.
        stored = processes.run_on_main_first(lambda: metadata(where.models[0]))
        corpus = processes.run_on_main_first(lambda: where.files(stored))
        translator, formats = _load(where.models, settings, device, precision, corpus, processes)
        state = where.text.stat()
        job = {
            "command": command,
            "version": __version__,
            "models": {name: fingerprint(find_model(name)) for name in where.models},
            "text": {"path": str(where.text.resolve()), "bytes": state.st_size, "changed": state.st_mtime_ns},
            "decoding": translator.config.model_dump(mode="json"),
            "formats": formats,
            "tag": tag,
            "direction": where.direction(stored),
        }
        lines = finished_lines(corpus, job) if processes.main else None
        if processes.broadcast_value(lines is not None):
            if lines is not None and not quiet:
                print(f"nothing to do: {corpus.made} is there, {counted(lines, 'line')}", file=sys.stderr)
            return
        tell = lru_cache(warn if processes.main else lambda _: None)  # once, though the text is read twice
        lines = synthesize(
            translator,
            corpus,
            lambda: read_text(where.text, tell),
            job,
            workers=processes,
            tag=tag,
            direction=where.direction(stored),
        )
        if lines is not None and not quiet:
            print(f"{counted(lines, 'line')}, in {time.monotonic() - begun:.1f} s", file=sys.stderr)
            print(f"next: data.train={corpus.prefix} in a run file; how it was made: {corpus.provenance}")


def _load(
    models: Sequence[str],
    settings: opt.Settings,
    device: str,
    precision: str,
    corpus: SyntheticCorpus,
    processes: ProcessGroup,
) -> tuple[Model, dict[str, str]]:
    """The model, computing as that of the main process, and its number formats.

    Timing may choose these: those of an earlier call count, if there was one.
    """
    import torch

    from deepwire.decoding.model_loading import fastest_precision, pick_device
    from deepwire.decoding.resumable_parts import recorded_job
    from deepwire.ops.precision import set_fp32_matmul
    from deepwire.training.device import choose_device

    pick_device(device)
    own_device = choose_device(device, processes, "--device")
    earlier = recorded_job(corpus).get("formats") if processes.main else None
    formats = dict(earlier) if isinstance(earlier, dict) else {}
    if precision == "auto":
        precision = str(formats.get("precision") or fastest_precision(own_device))
    precision = str(processes.broadcast_value(precision))
    tell = warn if processes.main else lambda _: None
    model = processes.run_on_main_first(  # makes an average that does not exist yet
        lambda: deepwire.load(models, str(own_device), precision, settings=settings, warn=tell)
    )
    products = formats.get("products", torch.get_float32_matmul_precision())
    products = processes.broadcast_value(products)
    products = set_fp32_matmul("medium" if products == "medium" else "highest")
    return model, {"precision": precision, "products": products}
