"""``deepwire distill`` and ``deepwire back-translate``: synthetic parallel text, in parts that stay done."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire import __version__
from deepwire.cli import options as opt
from deepwire.cli.line_by_line import warn
from deepwire.cli.settings import with_settings
from deepwire.config.counts import counted
from deepwire.errors import DataError, UsageError
from deepwire.io.output import check_output

if TYPE_CHECKING:
    from deepwire.api.model import Model
    from deepwire.decoding.resumable_parts import LineCounts, SyntheticCorpus
    from deepwire.distributed.process_group import ProcessGroup

SourceText = Annotated[Path, typer.Option("--source", "--input", "-i", help="Source of the training text.")]
MonolingualText = Annotated[
    Path, typer.Option("--input", "-i", help="Text in the language that MODEL reads.")
]
OutputPrefix = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="PREFIX[.gz]",
        help="Prefix of the two files, for data.train of a run file; .gz, .zst or .xz at its end compresses.",
    ),
]
Tag = Annotated[str, typer.Option(help="A word in front of each translation, such as <BT>.")]
Languages = Annotated[
    str | None,
    typer.Option(
        metavar="de-en",
        help="Endings of the files: of the text, of the translations. Default: the model's own.",
    ),
]


@with_settings("beam", "length_penalty")
def distill(
    models: opt.Models,
    source: SourceText,
    output: OutputPrefix,
    from_: opt.From = None,
    to: opt.To = None,
    languages: Languages = None,
    *,
    settings: opt.Settings,
    precision: opt.Precision = "auto",
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
) -> None:
    """Translate training text with a teacher, for a student (sequence-level knowledge distillation).

    Writes PREFIX.de (the text), PREFIX.en (the translations) and PREFIX.json (how they were made). The same
    command goes on where it was interrupted; window=10k sets how many lines make a part that stays done.

    deepwire distill runs/teacher@avg5 --source train.de.gz --output distilled.gz

    torchrun --nproc-per-node 4 -m deepwire distill runs/teacher --source train.de --output distilled
    """
    opt.use_threads(threads)
    named = from_ or "", to or ""
    _Work("distill", models, source, output, settings, "", named, languages, device, precision).run(quiet)


@with_settings(
    "beam",
    "length_penalty",
    sample="sampling",
    top_k="sampling.top_k",
    top_p="sampling.top_p",
    temperature="sampling.temperature",
    seed="sampling.seed",
)
def back_translate(
    models: opt.Models,
    input_: MonolingualText,
    output: OutputPrefix,
    tag: Tag = "",
    from_: opt.From = None,
    to: opt.To = None,
    languages: Languages = None,
    *,
    settings: opt.Settings,
    precision: opt.Precision = "auto",
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
) -> None:
    """Translate monolingual target text back into the source language, as additional training text.

    MODEL translates the other way round: English to German to make text for German to English. Writes
    PREFIX.en (the text), PREFIX.de (the translations) and PREFIX.json (how they were made). The same command
    goes on where it was interrupted.

    deepwire back-translate runs/en-de --input mono.en.gz --output back.gz --sample --tag "<BT>"
    """
    from deepwire.decoding.resumable_parts import check_tag

    tag, named = check_tag(tag), (from_ or "", to or "")
    opt.use_threads(threads)
    _Work("back-translate", models, input_, output, settings, tag, named, languages, device, precision).run(
        quiet
    )


@dataclass(frozen=True)
class _Work:
    """The work of a command."""

    command: str
    models: Sequence[str]
    text: Path
    output: Path
    settings: opt.Settings
    tag: str
    named: tuple[str, str]
    endings: str | None
    device: str
    precision: str

    def run(self, quiet: bool) -> None:
        """Do it, in all processes that torchrun has started."""
        from deepwire.decoding.resumable_parts import finished_counts, synthesize
        from deepwire.decoding.translation_io import read_text
        from deepwire.distributed.launch import join_process_group

        begun = time.monotonic()
        with join_process_group() as processes:
            corpus = processes.run_on_main_first(self.corpus)
            self.check_files(corpus)
            translator, formats = self.load(corpus, processes)
            job = self.describe(translator.config.model_dump(mode="json"), formats)
            counts = finished_counts(corpus, job) if processes.main else None
            if processes.broadcast_value(counts is not None):
                if counts is not None and not quiet:
                    print(f"nothing to do: {corpus.made} is there, {_said(counts)}", file=sys.stderr)
                return
            said: set[str] = set()

            def tell(warning: str) -> None:
                """Print it once, though the text is read twice."""
                if processes.main and warning not in said:
                    said.add(warning)
                    warn(warning)

            counts = synthesize(
                translator,
                corpus,
                lambda: read_text(self.text, tell),
                job,
                workers=processes,
                tag=self.tag,
                direction=self.direction,
            )
            if counts is not None and not quiet:
                print(f"{_said(counts)}, in {time.monotonic() - begun:.1f} s", file=sys.stderr)
                print(f"next: data.train={corpus.prefix} in a run file; how it was made: {corpus.provenance}")

    def check_files(self, corpus: SyntheticCorpus) -> None:
        """Check that there is a text, which is not written over.

        Raises:
            UsageError: It comes from stdin, or would be written over.
            DataError: It is not there, or empty.
        """
        from deepwire.decoding.translation_io import read_text

        if self.text == opt.STDIO:
            raise UsageError(
                f"deepwire {self.command} reads no stdin (-): an interrupted command goes on with its text",
                "put the text into a file",
            )
        if next(iter(read_text(self.text, lambda _: None)), None) is None:
            raise DataError(f"{self.text}: is empty", "give a file of text, one sentence a line")
        for path in (corpus.given, corpus.made):
            check_output(path, [self.text])

    @cached_property
    def _stored(self) -> Mapping[str, object]:
        from deepwire.checkpoint.model_path import find_model
        from deepwire.checkpoint.store import read_metadata

        return read_metadata(find_model(self.models[0]))

    @cached_property
    def direction(self) -> tuple[str, str]:
        """The languages named, and those that follow where the model has one direction with these."""
        from deepwire.data.languages import Languages

        languages = Languages.from_metadata(self._stored)
        fitting = [
            direction
            for direction in (() if languages is None else languages.directions)
            if all(named in ("", name) for named, name in zip(self.named, direction, strict=True))
        ]
        return fitting[0] if len(fitting) == 1 else self.named

    def corpus(self) -> SyntheticCorpus:
        """The files to make, named by the languages of the model.

        Raises:
            UsageError: They are not known.
        """
        from deepwire.data.languages import Direction
        from deepwire.decoding.resumable_parts import SyntheticCorpus

        names = [
            named or str(self._stored.get(side, ""))
            for named, side in zip(self.direction, ("source", "target"), strict=True)
        ]
        if self.endings is not None:
            names = self.endings.split("-")
            with suppress(ValueError):  # any other endings are taken as well
                names = list(Direction.parse(self.endings))
        plain = all(re.fullmatch(r"\w[\w-]*", name) for name in names)
        if len(names) == 2 and plain and names[0] != names[1]:
            return SyntheticCorpus.of(self.output, *names)
        several = self._stored.get("directions")
        if isinstance(several, list) and self.endings is None:
            raise UsageError(
                f"{self.models[0]} has several directions",
                f"say which: --from de --to en; it has {', '.join(map(str, several))}",
            )
        known = "the model does not say its languages" if self.endings is None else repr(self.endings)
        raise UsageError(f"--languages: {known}", "give the endings of both files: --languages de-en")

    def describe(self, config: Mapping[str, object], formats: Mapping[str, str]) -> dict[str, object]:
        """All that the result depends on, and where it came from."""
        from deepwire.checkpoint.model_files import fingerprint
        from deepwire.checkpoint.model_path import find_model

        state = self.text.stat()
        return {
            "command": f"deepwire {self.command}",
            "version": __version__,
            "models": {name: fingerprint(find_model(name)) for name in self.models},
            "text": {"path": str(self.text.resolve()), "bytes": state.st_size, "changed": state.st_mtime_ns},
            "decoding": dict(config),
            "formats": dict(formats),
            "tag": self.tag,
            "direction": self.direction,
        }

    def load(self, corpus: SyntheticCorpus, processes: ProcessGroup) -> tuple[Model, dict[str, str]]:
        """The model and its number formats, which timing may choose: those of an earlier call, if any."""
        import torch

        from deepwire.cli.translate import load_in_processes
        from deepwire.decoding.resumable_parts import recorded_job
        from deepwire.ops.precision import set_fp32_matmul

        earlier = processes.broadcast_value(recorded_job(corpus).get("formats") if processes.main else None)
        formats = earlier if isinstance(earlier, dict) else {}
        precision = self.precision
        if precision == "auto":
            precision = str(formats.get("precision", precision))
        model, precision = load_in_processes(self.models, self.settings, self.device, precision, processes)
        products = formats.get("products", torch.get_float32_matmul_precision())
        products = set_fp32_matmul("medium" if products == "medium" else "highest")
        return model, {"precision": precision, "products": products}


def _said(counts: LineCounts) -> str:
    odd = {
        "empty": counts.empty,
        "with an empty translation": counts.untranslated,
        "that the translation repeats": counts.copied,
    }
    return ", ".join(
        [counted(counts.lines, "line"), *(f"{count:,} {kind}" for kind, count in odd.items() if count)]
    )
