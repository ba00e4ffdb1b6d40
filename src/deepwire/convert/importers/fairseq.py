"""Checkpoints of fairseq: Transformer, DLCL and GTrans, of versions 0.5 to 1.0.

Structure comes from names and shapes, the rest from the arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from deepwire.config.yaml_tree import PlainValue
from deepwire.convert.importers.foreign_checkpoint import ForeignCheckpoint
from deepwire.convert.importers.importer import (
    Architecture,
    Destination,
    Destinations,
    Importer,
    number_of_layers,
    tied_tables,
)
from deepwire.convert.plain import swapped
from deepwire.data.text.files import BadLine, display, read_lines
from deepwire.errors import DataError, ModelError
from deepwire.model.config import ModelConfig
from deepwire.model.fusions.groups import MixedGroups
from deepwire.model.stack_spec import SIDES, Side
from deepwire.model.translation_model import TranslationModel

_IGNORED = re.compile(r"(encoder|decoder)\.(version|embed_positions\.(_float_tensor|weights))")
_LAYER = re.compile(r"(?:encoder|decoder)\.layers\.(\d+)\.(.+?)[._](weight|bias|position_keys)")
_HISTORY_NORM = re.compile(r"(encoder|decoder)\.history\.layer_norms\.(\d+)\.(weight|bias)")
# The norms of a layer, by the names of later versions, in the order of its sub-layers; old ones number them.
_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
_WHOLE = {
    "embed_positions.weight": "{embedding}.positions.table",
    "layernorm_embedding.weight": "{embedding}.norm.weight",
    "layernorm_embedding.bias": "{embedding}.norm.bias",
    "encoder_fusion_weight": "{side}.fusion.gates",
    "loss_weight": "{side}.fusion.weights",
    "history.weight": "{side}.aggregation.mix",
    "layer_norm.weight": "{side}.connection.final_norm.weight",
    "layer_norm.bias": "{side}.connection.final_norm.bias",
    "fusion_layer_norm.weight": "{side}.fusion.norm.weight",
    "fusion_layer_norm.bias": "{side}.fusion.norm.bias",
}
# Queries, keys and values are one matrix in old versions and three in later ones; here 3, or 1 and 2.
_IN_LAYER: Mapping[str, Destinations] = {
    "self_attn.in_proj": (Destination("mixers.{}.query_key_value"),),
    "self_attn.q_proj": (Destination("mixers.{}.query_key_value", 0, 3),),
    "self_attn.k_proj": (Destination("mixers.{}.query_key_value", 1, 3),),
    "self_attn.v_proj": (Destination("mixers.{}.query_key_value", 2, 3),),
    "self_attn.out_proj": (Destination("mixers.{}.output"),),
    "encoder_attn.in_proj": (Destination("crosses.{}.query"), Destination("crosses.{}.key_value")),
    "encoder_attn.q_proj": (Destination("crosses.{}.query"),),
    "encoder_attn.k_proj": (Destination("crosses.{}.key_value", 0, 2),),
    "encoder_attn.v_proj": (Destination("crosses.{}.key_value", 1, 2),),
    "encoder_attn.out_proj": (Destination("crosses.{}.output"),),
    "fc1": (Destination("feed_forwards.{}.input"),),
    "fc2": (Destination("feed_forwards.{}.output"),),
}
_RELATIVE = "layers.0.self_attn.relative_position_keys"
# Arguments that change what is computed without a trace in names, and the value that is known here.
_REFUSED: Mapping[str, object] = {
    "enc_calculate_num": 1,
    "dec_calculate_num": 1,
    "cross_self_attention": False,
    "no_cross_attention": False,
    "no_decoder_final_norm": False,
    "adaptive_input": False,
    "variant": "transformer",
}
# Other models of fairseq, some of which have parameters of the same names.
_OTHER_FAMILY = re.compile(
    r"lightconv|dynamicconv|fconv|lstm|convtransformer|nonautoregressive|nacrf|cmlm|insertion|levenshtein"
    r"|latent|monotonic|waitk|unidirectional|pointer_generator|linformer|transformer_xl|_lm\b|_lm_|s2t|tts"
)
_DECODING: Mapping[str, PlainValue] = {
    "decoding.beam": 5,
    "decoding.length_penalty": 1.0,
    "decoding.length_penalty_form": "average",
    "decoding.max_length_ratio": 0.0,
    "decoding.max_length_extra": 200,
    "decoding.unknown_penalty": 0.0,
}
_RUN_FILE = "write the architecture into a run file and add --run RUNFILE"


class FairseqImporter(Importer):
    """fairseq. Its decoder starts with the end symbol; sources end with it and begin with nothing."""

    name = "fairseq"
    source_bos = False
    files = ("dict.txt", "dict.{source}.txt", "dict.{target}.txt")
    tables = (
        ("encoder.embed_tokens.weight",),
        ("decoder.embed_tokens.weight",),
        ("decoder.output_projection.weight", "decoder.embed_out"),
    )

    def architecture(self, foreign: ForeignCheckpoint) -> Architecture:
        """From arguments, names and shapes."""
        return _Reader(foreign).read()

    def final_config(self, config: ModelConfig) -> ModelConfig:
        """The decoder starts with EOS."""
        return config.model_copy(update={"embeddings": config.embeddings.model_copy(update={"start": "eos"})})

    def rows(self, table: Tensor) -> Tensor:
        """BOS is 0 there, and PAD is 1."""
        return swapped(table)

    def destinations_of(
        self, name: str, model: TranslationModel, foreign: ForeignCheckpoint
    ) -> Destinations | None:
        """Where a tensor goes; version numbers and remains of sinusoids nowhere."""
        side, _, rest = name.partition(".")
        if side not in SIDES:
            return None
        if _IGNORED.fullmatch(name) is not None:
            return ()
        if rest in ("decoder_fusion_weight", "loss_weight"):
            return _group_weights(rest, model, foreign)
        if rest in _WHOLE:
            embedding = "source_embedding" if side == "encoder" else "target_embedding"
            return (Destination(_WHOLE[rest].format(side=side, embedding=embedding)),)
        if (norm := _HISTORY_NORM.fullmatch(name)) is not None:
            depth = len(model.stack("encoder" if side == "encoder" else "decoder").mixers)
            # Some versions count norms from the first layer, others from the embedding.
            shift = 1 if _history_norms(foreign, side)[-1] < depth else 0
            return (Destination(f"{side}.aggregation.norms.{int(norm[2]) + shift}.{norm[3]}"),)
        layer = _LAYER.fullmatch(name)
        return None if layer is None else _in_layer(side, int(layer[1]), layer[2], layer[3])

    def read_pieces(self, path: Path) -> list[str]:
        """The pieces of a `dict.txt`: a piece and its count a line."""
        pieces: dict[str, None] = {}
        for number, line in enumerate(read_lines(path), 1):
            text = None if isinstance(line, BadLine) else line.rstrip().removesuffix(" #fairseq:overwrite")
            piece, _, count = (text or "").rpartition(" ")
            if not piece or not count.isdecimal():
                raise DataError(
                    f"{display(path)}:{number}: not a piece and its count",
                    "a dictionary of fairseq is what fairseq-preprocess writes as dict.LANGUAGE.txt",
                )
            if piece in pieces:
                raise DataError(f"{display(path)}:{number}: {piece!r} occurs twice")
            pieces[piece] = None
        return list(pieces)


def _group_weights(rest: str, model: TranslationModel, foreign: ForeignCheckpoint) -> Destinations | None:
    """GTrans: gates of the groups or of their layers; the weight of a single prediction says nothing."""
    mixed = isinstance(model.decoder.fusion, MixedGroups)
    if rest == "decoder_fusion_weight":
        return (Destination(f"decoder.fusion.{'layer_gates' if mixed else 'gates'}"),)
    if mixed:
        return (Destination("decoder.fusion.weights"),)
    single = foreign.tensors.get("decoder.loss_weight")
    return () if single is not None and single.numel() == 1 else None


def _in_layer(side: str, layer: int, part: str, leaf: str) -> Destinations | None:
    norms = _NORMS[side]
    for number, name in enumerate(norms):
        if part in (name, f"layer_norms.{number}"):
            return (Destination(f"{side}.connection.norms.{layer * len(norms) + number}.{leaf}"),)
    if (part, leaf) == ("self_attn.relative", "position_keys"):
        return (Destination(f"{side}.mixers.{layer}.relative.table"),)
    if part not in _IN_LAYER:
        return None
    return tuple(each._replace(name=f"{side}.{each.name.format(layer)}.{leaf}") for each in _IN_LAYER[part])


def _history_norms(foreign: ForeignCheckpoint, side: str) -> list[int]:
    matches = filter(None, map(_HISTORY_NORM.fullmatch, foreign.tensors))
    return sorted(int(match[2]) for match in matches if (match[1], match[3]) == (side, "weight"))


@dataclass
class _Reader:
    foreign: ForeignCheckpoint

    def read(self) -> Architecture:
        self._refuse_unknown_kinds()
        settings = self.foreign.settings
        known = self._measures() | self._embeddings() | self._positions()
        known["data.source_bos"] = False
        assumed: dict[str, PlainValue] = dict(_DECODING)
        for side in SIDES:
            known |= self._stack(side)
            combinations = {
                f"model.{side}.aggregation": self._history(side),
                f"model.{side}.fusion": self._encoder_groups()
                if side == "encoder"
                else self._decoder_groups(),
            }
            # Names and shapes tell that layers are combined, but not all of how.
            (known if settings else assumed).update({k: v for k, v in combinations.items() if v is not None})
        for key, argument, default in (
            ("model.activation", "activation_fn", "relu"),
            ("data.source", "source_lang", "source"),
            ("data.target", "target_lang", "target"),
        ):
            value = settings.get(argument)
            if isinstance(value, str):
                known[key] = value
            else:
                assumed[key] = default
        unscaled = settings.get("no_scale_embedding")
        (assumed if unscaled is None else known)["model.embeddings.scale"] = not unscaled
        return Architecture(known, assumed, () if "model.heads" in known else ("model.heads",))

    def _measures(self) -> dict[str, PlainValue]:
        new_names = self._has("encoder.layers.0.self_attn.q_proj.weight")
        return {
            **self._sizes("d_model", *map(self._width, SIDES)),
            **self._sizes("feed_forward", *(self._shape(f"{side}.layers.0.fc1.weight", 0) for side in SIDES)),
            **self._sizes("heads", *map(self._heads, SIDES)),
            "model.norm_eps": 1e-5,
            "model.bias.attention": True,
            "model.bias.feed_forward": "both",
            "model.bias.output": False,
            "model.initialization": "fairseq" if new_names else "xavier",
        }

    def _width(self, side: Side) -> int | None:
        width = self._shape(f"{side}.embed_tokens.weight", 1)
        return self._shape("encoder.embed_tokens.weight", 1) if width is None else width

    def _heads(self, side: Side) -> int | None:
        """From the arguments, or from relative positions: one table, as wide as a head, serves all."""
        heads, width = self.foreign.settings.get(f"{side}_attention_heads"), self._width(side)
        if isinstance(heads, int):
            return heads
        table = self._shape(f"{side}.{_RELATIVE}", 1)
        return None if table is None or width is None else width // table

    def _sizes(self, name: str, encoder: int | None, decoder: int | None) -> dict[str, PlainValue]:
        """A measure of both stacks; that of the encoder is its own where it differs from the decoder's."""
        both = encoder if decoder is None else decoder
        sizes: dict[str, PlainValue] = {} if both is None else {f"model.{name}": both}
        return sizes if encoder in (None, both) else {**sizes, f"model.encoder.size.{name}": encoder}

    def _embeddings(self) -> dict[str, PlainValue]:
        source = self.foreign.tensors["encoder.embed_tokens.weight"]
        target = self.foreign.tensors.get("decoder.embed_tokens.weight", source)
        names = FairseqImporter.tables[2]
        output = next((self.foreign.tensors[name] for name in names if self._has(name)), target)
        return {
            "model.embeddings.tie": tied_tables(source, target, output),
            "model.embeddings.norm": self._has("encoder.layernorm_embedding.weight"),
        }

    def _positions(self) -> dict[str, PlainValue]:
        rows = {self._shape(f"{side}.embed_positions.weight", 0) for side in SIDES} - {None}
        if len(rows) > 1:
            raise ModelError(f"{self.foreign.path}: encoder and decoder differ in max_length")
        if rows:
            # The table begins with rows for what has no position, up to the number of the padding symbol.
            return {
                "model.positions": {"type": "learned", "first": 2},
                "model.max_length": (rows.pop() or 0) - 2,
            }
        if self.foreign.settings.get("no_token_positional_embeddings"):
            return {"model.positions": "none"}
        return {"model.positions": {"type": "sinusoidal", "layout": "halves", "first": 2}}

    def _stack(self, side: Side) -> dict[str, PlainValue]:
        known: dict[str, PlainValue] = {
            f"model.{side}.layers": self._layers(side),
            f"model.{side}.connection": "pre_norm" if self._pre_norm(side) else "post_norm",
        }
        if (relative := self._shape(f"{side}.{_RELATIVE}", 0)) is not None:
            mixer: PlainValue = {
                "type": "self_attention",
                "relative": relative // 2,
                "relative_table": "full",
            }
            known[f"model.{side}.mixer"] = mixer
        return known

    def _history(self, side: Side) -> PlainValue:
        """DLCL and its relatives; None for the ordinary stack."""
        settings, weight = self.foreign.settings, self.foreign.tensors.get(f"{side}.history.weight")
        kind, norms = settings.get(f"{side}_history_type"), _history_norms(self.foreign, side)
        if kind not in (None, "learnable_dense", "learnable_dense_nonorm", "dense"):
            raise self._unknown(f"{side}_history_type", kind)
        if weight is None and kind == "dense":
            sums = settings.get(f"{side}_integration_type", "avg") == "sum"
            return {"type": "dense", "weights": "sum" if sums else "average", "embedding_norm": "none"}
        if weight is None:
            if norms:
                raise ModelError(
                    f"{self.foreign.path}: {side}.history has norms but no weights: average, sum or another "
                    "kind cannot be told",
                    _RUN_FILE,
                )
            return None
        count = weight.size(2) if weight.dim() > 2 else 1
        # Entries count from the embedding, so with its norm there is one more than layers.
        first = "once" if self._pre_norm(side) else "twice"
        window, dropout = settings.get("history_window_size"), settings.get("history_dropout")
        windowed = isinstance(window, int) and window > 0
        combined: dict[str, PlainValue] = {
            "type": "dlcl",
            "initial": "one" if settings.get("init_value") == "one" else "average",
            "learned": settings.get(f"{side}_learnable", True) is not False,
            "norm": "auto" if norms else "none",
            "embedding_norm": first if len(norms) > self._layers(side) else "none",
            "weights": {1: "scalar", self._width(side): "vector"}.get(count, count),
            "softmax": settings.get("normalize_learned_weight") is True,
            "window": int(str(window)) if windowed else None,
            "dropout": dropout if isinstance(dropout, float) else 0.0,
        }
        return {**combined, "window_form": "initial"} if windowed else combined

    def _encoder_groups(self) -> PlainValue:
        groups = self._shape("encoder.encoder_fusion_weight", 0)
        if groups is None:
            return None
        if self._pre_norm("encoder"):
            raise ModelError(
                f"{self.foreign.path}: GTrans with pre-norm leaves out the encoder's final norm, which no "
                "fusion here does"
            )
        return {"type": "groups", "size": self._group_size("encoder", groups)}

    def _decoder_groups(self) -> PlainValue:
        mixed, gates = (
            self._shape(f"decoder.{name}", 0) for name in ("loss_weight", "decoder_fusion_weight")
        )
        if mixed is None:
            return None
        kind = self.foreign.settings.get("decoder_group_type")
        if kind is None:
            dense = gates == self._layers("decoder") and mixed > 1
            kind = "sparse" if gates is None else "dense" if dense else "sparse-without-ensemble"
        if kind == "last" or (kind == "sparse" and mixed == 1):
            return "top"
        if kind == "sparse-without-ensemble" and gates is not None:
            size = self._group_size("decoder", gates)
            return {"type": "groups", "size": size, "representation": "last", "combine": "average"}
        if kind not in ("sparse", "dense"):
            raise self._unknown("decoder_group_type", kind)
        temperature = self.foreign.settings.get("softmax_temperature")
        return {
            "type": "groups",
            "size": self._group_size("decoder", mixed),
            "representation": "last" if kind == "sparse" else "mean",
            "probabilities": "geometric",
            "temperature": float(temperature) if isinstance(temperature, int | float) else None,
        }

    def _group_size(self, side: Side, groups: int) -> int:
        depth = self._layers(side)
        size = self.foreign.settings.get(f"{side}_group_layers", depth // groups)
        if not isinstance(size, int) or size * groups != depth:
            raise ModelError(
                f"{self.foreign.path}: {groups} {side} groups of {depth} layers: the released GTrans leaves "
                "the layers above the last whole group unused, which no fusion here does"
            )
        return size

    def _refuse_unknown_kinds(self) -> None:
        settings, path = self.foreign.settings, self.foreign.path
        names = ["encoder.embed_tokens.weight", *(f"{side}.layers.0.fc1.weight" for side in SIDES)]
        if missing := [name for name in names if not self._has(name)]:
            raise ModelError(f"{path}: has no {missing[0]}, so it is no Transformer of fairseq")
        arch = settings.get("arch")
        if isinstance(arch, str) and _OTHER_FAMILY.search(arch):
            raise self._unknown("arch", arch)
        for side in SIDES:
            if str(settings.get(f"{side}_group_type")).startswith("ls:"):  # weights of each language
                raise self._unknown(f"{side}_group_type", settings[f"{side}_group_type"])
        for argument, value in _REFUSED.items():
            if settings.get(argument) not in (None, value):
                raise self._unknown(argument, settings[argument])

    def _unknown(self, argument: str, value: object) -> ModelError:
        return ModelError(
            f"{self.foreign.path}: was made with {argument}={value}, which the importer does not know",
            _RUN_FILE,
        )

    def _layers(self, side: Side) -> int:
        return number_of_layers(self.foreign, rf"{side}\.layers\.(\d+)\.")

    def _pre_norm(self, side: Side) -> bool:
        return self._has(f"{side}.layer_norm.weight")

    def _has(self, name: str) -> bool:
        return name in self.foreign.tensors

    def _shape(self, name: str, axis: int) -> int | None:
        tensor = self.foreign.tensors.get(name)
        return None if tensor is None or not tensor.dim() else tensor.size(axis)
