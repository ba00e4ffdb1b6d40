"""``deepwire export``: a model in the format of another program."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.errors import DeepwireError, UsageError

if TYPE_CHECKING:
    from deepwire.checkpoint.store import LoadedModel
    from deepwire.export.contract import Format
    from deepwire.export.parity import Parity

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A run, RUN@avg5, or a model directory.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder of the exported model.")]
To = Annotated[str, typer.Option("--to", help="Format: ctranslate2.")]
Quantization = Annotated[
    str | None, typer.Option(help="Weights as float32 (default), float16, bfloat16, int16 or int8.")
]
Text = Annotated[Path | None, typer.Option(help="Source text to compare translations on; also .gz/.zst/.xz.")]
Reference = Annotated[Path | None, typer.Option(help="Its translation, to compare BLEU too.")]
Lines = Annotated[int, typer.Option(min=1, help="Compare on so many lines of the text.")]
Unchecked = Annotated[bool, typer.Option("--unchecked", help="Do not compare translations.")]
MostDifferent = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Fail where log-probabilities of subwords differ by more than this on average; default 0.001 "
        "nats, 0.1 with quantized weights.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No summary on stderr.")]

PARITY = "parity.json"
REJECTED = ".rejected"


def export(
    model: Model,
    output: Output,
    to: To = "ctranslate2",
    quantization: Quantization = None,
    text: Text = None,
    reference: Reference = None,
    lines: Lines = 200,
    unchecked: Unchecked = False,
    most_different: MostDifferent = None,
    quiet: Quiet = False,
) -> None:
    """Write a model for another program, and see that it translates the same there.

    The first lines of --text are translated and scored by both programs; what was found stands in
    parity.json. A model that differs too much is left as OUTPUT.rejected, with exit code 1.

    Examples: deepwire export runs/demo -o demo-ct2 --text test.de --reference test.en;
    deepwire export runs/demo@avg5 -o demo-int8 --quantization int8 --text test.de
    """
    from deepwire.checkpoint.model_path import find_model
    from deepwire.checkpoint.store import load_model
    from deepwire.export.parity import EXACT, ROUNDED
    from deepwire.io.atomic import new_folder

    format_ = _format(to)
    kind = quantization or format_.quantizations[0]
    if kind not in format_.quantizations:
        raise UsageError(
            f"--quantization {kind}: {to} has no such weights", f"use {', '.join(format_.quantizations)}"
        )
    if output.exists():
        raise UsageError(f"{output}: exists already", "name another folder, or remove it first")
    if unchecked == (text is not None) or (reference is not None and text is None):
        raise UsageError(
            "no text to compare translations on" if text is None else "--text and --unchecked contradict",
            "add --text FILE with source text, or --unchecked",
        )
    sources, references = _read(text, reference, lines)
    loaded = load_model(find_model(model))
    format_.require(loaded)
    as_it_is = kind == format_.quantizations[0]
    allowed = most_different if most_different is not None else EXACT if as_it_is else ROUNDED
    rejected = output.with_name(f"{output.name}{REJECTED}")
    # It gets its name when it has passed.
    with new_folder(rejected) as folder:
        format_.write(loaded, folder, kind)
        parity = None if unchecked else _compare(format_, loaded, folder, sources, references)
        _record(folder / PARITY, format_, model, kind, parity, allowed)
    if parity is not None and not parity.mean_difference <= allowed:
        raise DeepwireError(
            f"{rejected}: {format_.name} computes something else: {parity}; "
            f"allowed is {allowed:g} on average",
            "--most-different allows more",
        )
    rejected.replace(output)
    if not quiet:
        print("not compared" if parity is None else str(parity), file=sys.stderr)
    print(output)


def _format(name: str) -> Format:
    from deepwire.export.formats import FORMATS

    if name not in FORMATS:
        raise UsageError(f"--to {name}: no such format", f"use {' or '.join(FORMATS)}")
    return FORMATS[name]


def _read(text: Path | None, reference: Path | None, count: int) -> tuple[list[str], list[str] | None]:
    """The first lines of both texts."""
    from deepwire.evaluation.base import check_line_counts
    from deepwire.evaluation.texts import read_text

    texts = [read_text(path) for path in (text, reference) if path is not None]
    if texts:
        check_line_counts([(each.name, each.lines) for each in texts])
    first = [each.lines[:count] for each in texts]
    return first[0] if first else [], first[1] if len(first) > 1 else None


def _compare(
    format_: Format, model: LoadedModel, folder: Path, sources: list[str], references: list[str] | None
) -> Parity:
    from deepwire.export.parity import compare

    return compare(model, format_.read(folder), sources, references)


def _record(
    path: Path, format_: Format, model: str, quantization: str, parity: Parity | None, allowed: float
) -> None:
    from deepwire import __version__
    from deepwire.io.atomic import write_json

    compared = None if parity is None else parity.to_json() | {"allowed_mean_difference": allowed}
    write_json(
        path,
        {
            "model": model,
            "deepwire": __version__,
            "format": format_.version(),
            "quantization": quantization,
            "compared": compared,
        },
    )
