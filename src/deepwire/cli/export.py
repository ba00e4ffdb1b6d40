"""``deepwire export``: a model in the format of another program."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire import __version__
from deepwire.cli.line_by_line import tell
from deepwire.cli.options import Quiet
from deepwire.errors import DeepwireError, UsageError
from deepwire.io.atomic import free_name, new_folder, require_absent, write_json

if TYPE_CHECKING:
    from deepwire.checkpoint.store import LoadedModel
    from deepwire.convert.export_format import ExportFormat

Model = Annotated[str, typer.Argument(metavar="MODEL", help="Run directory, RUN@avg5 or model folder.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder of the exported model.")]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        "--to",
        metavar="ctranslate2|onnx|torch_export|huggingface|huggingface-code|argos|marian",
        help="Format to write.",
    ),
]
Quantization = Annotated[
    str | None,
    typer.Option(
        metavar="float32|int8|float16|bfloat16|int16",
        help="Number format of the weights; the last three for CTranslate2 only. Default: float32.",
    ),
]
Int8 = Annotated[bool, typer.Option("--int8", help="Short for --quantization int8.")]
Text = Annotated[Path | None, typer.Option(help="Source text to compare translations on, also compressed.")]
Reference = Annotated[Path | None, typer.Option(help="Reference of --text, to compare BLEU too.")]
Into = Annotated[str, typer.Option(help="Language of --reference (multilingual models).")]
Lines = Annotated[int | None, typer.Option(min=1, help="Lines of --text to compare. Default: 200.")]
Unchecked = Annotated[bool, typer.Option("--unchecked", help="Do not compare translations.")]
FromName = Annotated[str, typer.Option(help="Argos: name of the source language, such as German.")]
ToName = Annotated[str, typer.Option(help="Argos: name of the target language, such as English.")]
MostDifferent = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Largest mean difference of a subword's log-probability; replaces all limits. Default: "
        "0.001 nats, 0.1 with quantized weights.",
    ),
]

LINES = 200
REJECTED = "rejected"


def export(
    model: Model,
    output: Output,
    format_name: Format = "ctranslate2",
    quantization: Quantization = None,
    int8: Int8 = False,
    text: Text = None,
    reference: Reference = None,
    into: Into = "",
    lines: Lines = None,
    unchecked: Unchecked = False,
    most_different: MostDifferent = None,
    from_name: FromName = "",
    to_name: ToName = "",
    quiet: Quiet = False,
) -> None:
    """Convert a model for another program, and check that it translates alike there.

    Both programs translate and score the first lines of --text; parity.json has the result. A
    model that differs too much is left as OUTPUT.rejected, with exit code 1.

    Examples: deepwire export runs/demo -o demo-ct2 --text test.de --reference test.en;
    deepwire export runs/demo@avg2 -o demo-onnx --format onnx --int8 --text test.de
    """
    from deepwire.checkpoint.model_path import find_model
    from deepwire.checkpoint.store import PARITY, load_model
    from deepwire.convert.parity import EXACT, ROUNDED, compare

    export_format = _format(format_name, from_name, to_name)
    kind = _quantization(export_format, quantization, int8)
    require_absent(output)
    if unchecked and (text or reference or into or lines or most_different is not None):
        raise UsageError("--unchecked compares nothing, so it needs no text", "leave out one or the other")
    if not unchecked and text is None:
        raise UsageError(
            "no text to compare translations on", "add --text FILE with source text, or --unchecked alone"
        )
    sources, references = _read(text, reference, lines or LINES)
    loaded = load_model(find_model(model))
    export_format.require(loaded)
    if references is not None and loaded.metadata.get("text") is not None:
        raise UsageError("--reference: a language model translates nothing", "leave it out")
    if not unchecked:
        _require_language(loaded, into)
    exact = kind == export_format.quantizations[0]
    mean = (EXACT if exact else ROUNDED) if most_different is None else most_different
    same = exact and most_different is None and export_format.computes_the_same
    with new_folder(output) as made:  # it gets its name when it has passed
        export_format.write(loaded, made, kind)
        parity = None
        if not unchecked:
            exported = export_format.read(made)
            parity = compare(loaded, exported, sources, references, into, export_format.never)
        record = {
            "model": model,
            "deepwire": __version__,
            "format": export_format.version(),
            "quantization": kind,
            "compared": parity and asdict(parity) | {"allowed_mean_difference": mean},
        }
        write_json(made / PARITY, record)
        if parity is not None and (fault := parity.fault(mean, same=same)) is not None:
            rejected = free_name(output, REJECTED)
            made.replace(rejected)
            raise DeepwireError(
                f"{rejected}: {export_format.name} computes something else: {parity}; {fault}",
                "--most-different allows more",
            )
        require_absent(output)  # another process may have made it meanwhile
    if not quiet:
        for note in export_format.notes(loaded):
            tell(f"note: {note}")
        tell("not compared" if parity is None else str(parity))
    print(output)


def _format(name: str, from_name: str, to_name: str) -> ExportFormat:
    from deepwire.convert.argos import Argos
    from deepwire.convert.formats import FORMATS

    if name not in FORMATS:
        raise UsageError(f"--format {name}: no such format", f"use {' or '.join(FORMATS)}")
    if not from_name and not to_name:
        return FORMATS[name]
    if name != Argos.name:
        raise UsageError(f"--format {name}: has no names of languages", "leave out --from-name and --to-name")
    return Argos(from_name, to_name)


def _quantization(export_format: ExportFormat, name: str | None, int8: bool) -> str:
    if int8 and name not in (None, "int8"):
        raise UsageError(f"--int8 and --quantization {name} contradict", "give one of them")
    kind = "int8" if int8 else name or export_format.quantizations[0]
    if kind not in export_format.quantizations:
        raise UsageError(
            f"--quantization {kind}: {export_format.name} has no such weights",
            f"use {', '.join(export_format.quantizations)}",
        )
    return kind


def _require_language(model: LoadedModel, name: str) -> None:
    from deepwire.decoding.model_inputs import LanguageSelector
    from deepwire.decoding.model_loading import languages_of

    languages = languages_of(model)
    if languages is not None and not name and len(languages.targets) > 1:
        raise UsageError(
            "say which language to translate --text into, with --into",
            f"the model translates into {', '.join(languages.targets)}",
        )
    LanguageSelector(languages, model.vocabularies, lambda _: None).select(name)


def _read(text: Path | None, reference: Path | None, count: int) -> tuple[list[str], list[str] | None]:
    from deepwire.evaluation.metric import check_line_counts
    from deepwire.evaluation.texts import read_text

    texts = [read_text(path) for path in (text, reference) if path is not None]
    if texts:
        check_line_counts([(each.name, each.lines) for each in texts])
    first = [each.lines[:count] for each in texts]
    return first[0] if first else [], first[1] if len(first) > 1 else None
