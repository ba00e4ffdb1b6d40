"""Golden models written as checkpoints of the programs that they come from."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from deepwire.convert.importers.foreign_checkpoint import ForeignCheckpoint
from deepwire.convert.importers.importer import Importer, convert
from deepwire.data.vocabulary import Vocabularies
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel

GOLDEN = Path(__file__).parents[1] / "golden" / "data"

# What fairseq's arguments say of the golden models, beside names and shapes.
TRANSFORMER: Mapping[str, object] = {
    "arch": "transformer",
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "relu_dropout": 0.0,
    "source_lang": "de",
    "target_lang": "en",
}
DLCL: Mapping[str, object] = {
    **TRANSFORMER,
    "init_value": "avg",
    "weight_type": "scalar",
    "encoder_learnable": True,
    "decoder_learnable": True,
    "normalize_learned_weight": False,
    "normalize_embed": False,
    "history_dropout": 0.0,
    "history_window_size": -1,
    "encoder_history_type": "learnable_dense",
    "decoder_history_type": "learnable_dense",
}
DENSE = {**TRANSFORMER, "encoder_history_type": "dense", "decoder_history_type": "dense"}
NO_NORM = {
    **TRANSFORMER,
    "encoder_history_type": "learnable_dense_nonorm",
    "decoder_history_type": "learnable_dense_nonorm",
}
GTRANS: Mapping[str, object] = {
    **TRANSFORMER,
    "activation_fn": "relu",
    "activation_dropout": 0.0,
    "no_scale_embedding": False,
    "encoder_group_layers": 2,
    "decoder_group_layers": 2,
    "encoder_group_type": "sparse",
    "decoder_group_type": "sparse",
    "softmax_temperature": None,
    "variant": "transformer",
}
ARGUMENTS: Mapping[str, Mapping[str, object]] = {
    "fairseq_postnorm": TRANSFORMER,
    "fairseq_prenorm": TRANSFORMER,
    "dlcl_postnorm": DLCL,
    "dlcl_prenorm": DLCL,
    "dlcl_prenorm_softmax": {**DLCL, "normalize_learned_weight": True},
    "dlcl_prenorm_vector": {**DLCL, "weight_type": "vector"},
    "dlcl_prenorm_scalar4": {**DLCL, "weight_type": "scalar_4"},
    "dlcl_prenorm_window2": {**DLCL, "history_window_size": 2},
    "dlcl_prenorm_fixed_avg": {**DLCL, "encoder_learnable": False, "decoder_learnable": False},
    "dlcl_prenorm_nonorm": NO_NORM,
    "dlcl_prenorm_normembed": {**DLCL, "normalize_embed": True},
    "dlcl_postnorm_normembed": {**DLCL, "normalize_embed": True},
    "hist_dense_avg_prenorm": DENSE,
    "hist_dense_avg_postnorm": DENSE,
    "gtrans_sparse": GTRANS,
    "gtrans_sparse_without_ensemble": {**GTRANS, "decoder_group_type": "sparse-without-ensemble"},
    "gtrans_last": {**GTRANS, "decoder_group_type": "last", "decoder_group_layers": 4},
    "gtrans_releasearch": {**GTRANS, "activation_fn": "gelu", "no_scale_embedding": True},
}
NEUTRON = ("nmt_std_v1_bias", "nmt_std_v2", "nmt_std_v2_rel3", "nmt_glu")


def golden(name: str) -> dict[str, Tensor]:
    """All tensors of a golden case."""
    return load_file(GOLDEN / f"{name}.safetensors")


def parameters(name: str) -> dict[str, Tensor]:
    """The parameters of a golden case under their original names, those of the file it builds on included."""
    base: str | None = json.loads((GOLDEN / "index.json").read_text())[name]["params_from"]
    found = {} if base is None else parameters(base)
    own = {
        key.removeprefix("param/"): value for key, value in golden(name).items() if key.startswith("param/")
    }
    found |= own
    if name == "dlcl_prenorm_nonorm":  # the file it builds on has norms, this model has none
        found = {key: value for key, value in found.items() if ".history.layer_norms." not in key}
    return found


def imported(
    importer: Importer, foreign: ForeignCheckpoint, vocabularies: Vocabularies, **changes: Any
) -> TranslationModel:
    """The model that a checkpoint tells, with changes."""
    told: Any = {}
    for key, setting in importer.architecture(foreign).settings.items():
        section, *above, last = key.split(".")
        if section == "model":
            reduce(lambda below, name: below.setdefault(name, {}), above, told)[last] = setting
    tree = {"heads": 4, "dropout": 0.0, **told}
    for key, value in changes.items():
        tree[key] = {**tree[key], **value} if isinstance(value, Mapping) else value
    return convert(importer, foreign, ModelConfig.model_validate(tree), vocabularies)


def write_fairseq(folder: Path, name: str, form: str) -> Path:
    """A golden model as `pt` (version 0.5: `args`), `cfg` (1.0: sections), or bare `safetensors`."""
    model = parameters(name)
    if form == "safetensors":
        path = folder / f"{name}.safetensors"
        save_file(model, path)
        return path
    path = folder / f"{name}.pt"
    model = {
        **model,
        "decoder.embed_tokens.weight": model["encoder.embed_tokens.weight"],
        "encoder.version": torch.tensor([3.0]),
        "decoder.version": torch.tensor([3.0]),
    }
    if "encoder.embed_positions.weight" not in model:
        model |= {f"{side}.embed_positions._float_tensor": torch.ones(1) for side in ("encoder", "decoder")}
    arguments = argparse.Namespace(**ARGUMENTS[name])
    content: dict[str, object] = {"model": model, "args": arguments, "extra_state": {"epoch": 3}}
    if form == "cfg":
        model["decoder.output_projection.weight"] = model["encoder.embed_tokens.weight"]
        task = {"source_lang": "de", "target_lang": "en"}
        content = {"model": model, "args": None, "cfg": {"model": arguments, "task": task}}
    torch.save(content, path)
    return path


def write_dictionary(path: Path, pieces: int) -> Path:
    """A dict.txt of fairseq with so many pieces beside the special ones."""
    path.write_text("".join(f"word{number} {1000 - number}\n" for number in range(pieces)))
    return path


def write_neutron_vocabulary(path: Path, pieces: int) -> Path:
    """A vocabulary of Neutron: pieces of one count share a line."""
    names = [f"word{number}" for number in range(pieces)]
    lines = [" ".join((str(900 - start), *names[start : start + 5])) for start in range(0, pieces, 5)]
    path.write_text("\n".join(lines) + "\n")
    return path
