"""``deepwire import``: a checkpoint of another program as a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.cli.line_by_line import tell
from deepwire.cli.options import Quiet
from deepwire.config.section import flatten
from deepwire.errors import ModelError, UsageError
from deepwire.io.atomic import require_absent

if TYPE_CHECKING:
    from deepwire.convert.importers.foreign_checkpoint import ForeignCheckpoint
    from deepwire.convert.importers.importer import Importer
    from deepwire.data.languages import Languages
    from deepwire.data.vocabulary import Vocabularies
    from deepwire.model.translation_model import TranslationModel
    from deepwire.runfile import LoadedRunFile, RunFile

FamilyName = Annotated[
    str, typer.Argument(metavar="fairseq|neutron|huggingface|marian", help="Toolkit that wrote it.")
]
Checkpoint = Annotated[
    Path,
    typer.Argument(
        metavar="CHECKPOINT", help="A .safetensors or .pt file, or a folder (transformers, Marian)."
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings that the checkpoint lacks: model.heads=8."),
]
Vocabulary = Annotated[Path | None, typer.Option(help="Dictionary, or folder with one a language.")]
TargetVocabulary = Annotated[Path | None, typer.Option(help="Target dictionary, if it is another file.")]
Run = Annotated[
    str | None, typer.Option(metavar="RUNFILE|RECIPE", help="Architecture, instead of the checkpoint's.")
]
Codes = Annotated[Path | None, typer.Option(help="BPE merges (subword-nmt). Without: segmented input.")]
TargetCodes = Annotated[Path | None, typer.Option(help="BPE merges of the target side, if they differ.")]
LanguageNames = Annotated[
    str | None,
    typer.Option("--languages", metavar="de,fr,...", help="Languages of MuLang and GTrans ls:sparse, by id."),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder of the new model.")]

_NOT_NOTED = ("model.dropout.", "decoding.", "data.")
"""Beginnings of assumed settings that no note names, as they change no probability."""


def import_model(
    family: FamilyName,
    checkpoint: Checkpoint,
    output: Output,
    overrides: Overrides = None,
    vocabulary: Vocabulary = None,
    run: Run = None,
    target_vocabulary: TargetVocabulary = None,
    codes: Codes = None,
    target_codes: TargetCodes = None,
    languages: LanguageNames = None,
    quiet: Quiet = False,
) -> None:
    """Convert a checkpoint of fairseq, Neutron, transformers or Marian. Code in it is never run.

    deepwire import fairseq checkpoint_best.pt --vocabulary data-bin --codes bpe.codes --output wmt-en-de

    deepwire import neutron model.pt --vocabulary common.vcb --output base model.heads=8

    deepwire import huggingface opus-mt-de-en --output opus

    deepwire import marian firefox-de-en --output firefox

    deepwire import neutron mulang.pt --vocabulary common.vcb --languages fr,de,en --output many model.heads=8
    """
    from deepwire.checkpoint.model_files import digest
    from deepwire.checkpoint.store import save_model
    from deepwire.convert.importers import IMPORTERS
    from deepwire.convert.importers.importer import convert
    from deepwire.decoding.shortlist import Shortlist, shortlist_path

    importer = IMPORTERS.get(family)
    if importer is None:
        raise UsageError(f"{family}: not a family of checkpoints", f"use {' or '.join(IMPORTERS)}")
    require_absent(output)
    if target_codes is not None and codes is None:
        raise UsageError("--target-codes needs --codes", "give the merges of the source side, too")
    foreign = importer.read(checkpoint)
    names = _names(languages, importer, foreign)
    if run is None:
        config, notes = _from_checkpoint(importer, foreign, overrides or [], names)
        source_bos = config.data.source_bos
    else:
        loaded, notes = _from_run(importer, foreign, run, overrides or []), []
        config = loaded.config
        source_bos = config.data.source_bos if "data.source_bos" in loaded.origins else importer.source_bos
    data = config.data
    if names:
        foreign = importer.with_language_order(foreign, _order(names, data.languages))
    vocabularies = importer.own_vocabularies(foreign)
    if vocabularies is None:
        vocabularies = _read_vocabularies(
            importer, vocabulary, target_vocabulary, codes, target_codes, (data.source, data.target)
        )
    elif vocabulary or target_vocabulary or codes or target_codes:
        raise UsageError(f"{checkpoint}: has its own vocabulary", "leave out its files")
    model = convert(importer, foreign, config.model, vocabularies)
    origin = {"family": importer.name, "checkpoint": checkpoint.name, "blake2b": digest(foreign.path)}
    pair = {"source": data.source, "target": data.target}
    metadata = {
        **(pair if data.languages is None else data.languages.to_metadata()),
        "source_bos": source_bos,
        "decoding": config.decoding.model_dump(mode="json"),
        "imported": origin,
    }
    save_model(output, model, vocabularies, metadata)
    if (table := importer.shortlist(foreign)) is not None:
        Shortlist({"": table}, vocabularies.digest).save(shortlist_path(output))
    if not quiet:
        _summarise(importer, model, config, notes)
    print(output)


def _names(written: str | None, importer: Importer, foreign: ForeignCheckpoint) -> list[str]:
    """The languages of a checkpoint with parameters of each, in its order; none for one language pair."""
    count = importer.languages(foreign)
    names = [] if written is None else [name.strip() for name in written.split(",")]
    if len(set(names)) != count or len(names) != count:
        raise UsageError(
            f"{foreign.path}: has parameters of {count} languages, and --languages names {len(set(names))}",
            "name them in the order of their numbers: --languages de,fr,...; none for one language pair",
        )
    return names


def _order(names: list[str], languages: Languages | None) -> list[int]:
    known = () if languages is None else languages.names
    if set(known) != set(names):
        raise UsageError(
            f"data.directions has the languages {', '.join(known)}, and --languages {', '.join(names)}",
            "give data.directions with the languages of the checkpoint",
        )
    return [names.index(name) for name in known]


def _read_vocabularies(
    importer: Importer,
    vocabulary: Path | None,
    target: Path | None,
    codes: Path | None,
    target_codes: Path | None,
    languages: tuple[str, str],
) -> Vocabularies:
    from deepwire.convert.importers.importer import read_vocabularies

    if vocabulary is None:
        raise UsageError(f"a checkpoint of {importer.name} needs its dictionary", "add --vocabulary FILE")
    source, other = vocabulary, vocabulary
    if vocabulary.is_dir():
        source, other = importer.vocabulary_files(vocabulary, *languages)
    return read_vocabularies(importer, source, target or other, codes, target_codes)


def _from_checkpoint(
    importer: Importer, foreign: ForeignCheckpoint, overrides: list[str], names: list[str]
) -> tuple[RunFile, list[str]]:
    """The run file that would have made the checkpoint, with overrides; and notes of what it assumes."""
    from deepwire.runfile import load_run_file

    architecture = importer.architecture(foreign)
    written = [text.partition("=")[0].strip() for text in overrides]
    for key in architecture.needed:
        if key not in written:
            raise UsageError(f"{foreign.path}: does not tell {key}", f"add {key}=N, or --run RUNFILE")
    settings = architecture.settings
    settings["data.train"] = foreign.path.name  # a run file names its training text; nothing reads it here
    if names:
        settings |= {"data.directions": [{"between": list(names)}], "data.tag": "none"}
    told = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    config = load_run_file({}, [*told, *overrides]).config
    notes = [
        f"{key}={json.dumps(value).replace(chr(34), '')}"
        for key, value in architecture.assumed.items()
        if not key.startswith(_NOT_NOTED) and not any(f"{text}.".startswith(f"{key}.") for text in written)
    ]
    return config, notes


def _from_run(
    importer: Importer, foreign: ForeignCheckpoint, run: str, overrides: list[str]
) -> LoadedRunFile:
    """The run file, which must agree with the checkpoint except for settings of the command line."""
    from deepwire.config.settings_reader import COMMAND_LINE
    from deepwire.runfile import load_run_file

    loaded = load_run_file(run, overrides)
    try:
        known = importer.architecture(foreign).known
    except ModelError:
        return loaded  # its names do not show the architecture: the run file alone decides
    overridden = {key for key, origin in loaded.origins.items() if origin == COMMAND_LINE}
    settings = flatten(loaded.resolved)
    for key, value in flatten(known).items():
        place = f"{key}.type" if f"{key}.type" in settings else key
        found = settings.get(place, value)
        is_overridden = any(f"{place}.".startswith(f"{setting}.") for setting in overridden)
        if found != value and not is_overridden and "dropout" not in key and "initial" not in key:
            raise ModelError(
                f"{foreign.path}: is not the model of {run}: {key} is {value}, not {found}",
                "use the run file of this checkpoint, leave out --run, or insist with key=value",
            )
    return loaded


def _summarise(importer: Importer, model: TranslationModel, config: RunFile, notes: list[str]) -> None:
    total = sum(parameter.numel() for parameter in model.parameters())
    layers = f"{config.model.encoder.layers}+{config.model.decoder.layers} layers"
    tell(f"{importer.name}: {layers}, {total:,} parameters, {model.target_vocabulary:,} target subwords")
    for note in notes:
        tell(f"note: not told by the checkpoint, assumed: {note}")
