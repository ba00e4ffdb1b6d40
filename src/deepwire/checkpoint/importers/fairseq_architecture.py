"""The architecture of a fairseq checkpoint: structure from names and shapes, the rest from its arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from deepwire.checkpoint.importers.foreign_checkpoint import ForeignCheckpoint
from deepwire.checkpoint.importers.importer import Architecture, number_of_layers
from deepwire.config.yaml_tree import PlainValue
from deepwire.errors import ModelError
from deepwire.model.stack_spec import SIDES, Side

# GTrans, decoder group types ls:sparse and ls:sparse-without-ensemble: weights of each target language.
OF_LANGUAGE = re.compile(r"decoder\.(loss_weight|decoder_fusion_weight)\.(\d+)")
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


def fairseq_architecture(foreign: ForeignCheckpoint) -> Architecture:
    """The settings of a Transformer, DLCL or GTrans checkpoint.

    Raises:
        ModelError: It is of a kind that is not known here, or its structure cannot be told.
    """
    return _Reader(foreign).read()


@dataclass
class _Reader:
    foreign: ForeignCheckpoint

    def read(self) -> Architecture:
        """All settings; see `Architecture`."""
        self._refuse_unknown_kinds()
        known = self._measures() | self._embeddings() | self._positions()
        known["data.source_bos"] = False
        assumed: dict[str, PlainValue] = dict(_DECODING)
        for side in SIDES:
            known |= self._stack(side)
            # Names and shapes tell that layers are combined, but not all of how.
            (known if self.foreign.settings else assumed).update(self._combinations(side))
        if group_languages(self.foreign):
            known["model.languages"] = {"fusion": "decoder"}
        self._told("model.activation", "activation_fn", "relu", known, assumed)
        unscaled = self.foreign.settings.get("no_scale_embedding")
        (assumed if unscaled is None else known)["model.embeddings.scale"] = not unscaled
        for key, name in (("data.source", "source_lang"), ("data.target", "target_lang")):
            self._told(key, name, key.removeprefix("data."), known, assumed)
        assumed |= self._dropout()
        return Architecture(known, assumed, () if "model.heads" in known else ("model.heads",))

    def _measures(self) -> dict[str, PlainValue]:
        known: dict[str, PlainValue] = {
            **self._sizes("d_model", {side: self._width(side) for side in SIDES}),
            **self._sizes(
                "feed_forward", {side: self._shape(f"{side}.layers.0.fc1.weight", 0) for side in SIDES}
            ),
            "model.norm_eps": 1e-5,
            "model.bias.attention": True,
            "model.bias.feed_forward": "both",
            "model.bias.output": False,
            "model.initialization": "fairseq"
            if self._has("encoder.layers.0.self_attn.q_proj.weight")
            else "xavier",
        }
        return known | self._sizes("heads", {side: self._heads(side) for side in SIDES})

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

    def _sizes(self, name: str, values: Mapping[Side, int | None]) -> dict[str, PlainValue]:
        """A measure of both stacks; that of the encoder is its own where it differs from the decoder's."""
        encoder, decoder = values["encoder"], values["decoder"]
        both = encoder if decoder is None else decoder
        if both is None:
            return {}
        sizes: dict[str, PlainValue] = {f"model.{name}": both}
        return sizes if encoder in (None, both) else {**sizes, f"model.encoder.size.{name}": encoder}

    def _embeddings(self) -> dict[str, PlainValue]:
        source = self.foreign.tensors["encoder.embed_tokens.weight"]
        target = self.foreign.tensors.get("decoder.embed_tokens.weight", source)
        names = ("decoder.output_projection.weight", "decoder.embed_out")
        output = next((self.foreign.tensors[name] for name in names if self._has(name)), target)
        tied = {(True, True): "all", (False, True): "output", (True, False): "inputs", (False, False): "none"}
        norm = self._has("encoder.layernorm_embedding.weight")
        return {
            "model.embeddings.tie": tied[_same(source, target), _same(target, output)],
            "model.embeddings.norm": norm,
        }

    def _positions(self) -> dict[str, PlainValue]:
        rows = [self._shape(f"{side}.embed_positions.weight", 0) for side in SIDES]
        if any(rows):
            # The table begins with rows for what has no position, up to the number of the padding symbol.
            return {
                "model.positions": {"type": "learned", "first": 2},
                "model.max_length": self._one("max_length", *rows) - 2,
            }
        if self.foreign.settings.get("no_token_positional_embeddings"):
            return {"model.positions": "none"}
        return {"model.positions": {"type": "sinusoidal", "layout": "halves", "first": 2}}

    def _stack(self, side: Side) -> dict[str, PlainValue]:
        pre_norm = self._has(f"{side}.layer_norm.weight")
        known: dict[str, PlainValue] = {
            f"model.{side}.layers": self.layers(side),
            f"model.{side}.connection": "pre_norm" if pre_norm else "post_norm",
        }
        relative = self._shape(f"{side}.{_RELATIVE}", 0)
        if relative is not None:
            known[f"model.{side}.mixer"] = {
                "type": "self_attention",
                "relative": relative // 2,
                "relative_table": "full",
            }
        return known

    def _combinations(self, side: Side) -> dict[str, PlainValue]:
        depth, pre_norm = self.layers(side), self._has(f"{side}.layer_norm.weight")
        fusion = self._encoder_groups(depth, pre_norm) if side == "encoder" else self._decoder_groups(depth)
        settings = {
            f"model.{side}.aggregation": self._history(side, depth, pre_norm),
            f"model.{side}.fusion": fusion,
        }
        return {key: value for key, value in settings.items() if value is not None}

    def _history(self, side: Side, depth: int, pre_norm: bool) -> PlainValue:
        """DLCL and its relatives; None for the ordinary stack."""
        settings, weight = self.foreign.settings, self._shape(f"{side}.history.weight", -1)
        kind = settings.get(f"{side}_history_type")
        norms = history_norms(self.foreign, side)
        if kind not in (None, "learnable_dense", "learnable_dense_nonorm", "dense"):
            raise self._unknown(f"{side}_history_type", kind)
        if kind == "dense" and weight is None:
            sums = settings.get(f"{side}_integration_type", "avg") == "sum"
            return {"type": "dense", "weights": "sum" if sums else "average", "embedding_norm": "none"}
        if weight is None:
            if norms:
                raise ModelError(
                    f"{self.foreign.path}: {side}.history has norms but no weights: average, sum or another "
                    "kind cannot be told",
                    "write the architecture into a run file and add --run RUNFILE",
                )
            return None
        return self._combination(side, depth, pre_norm, norms)

    def _combination(self, side: Side, depth: int, pre_norm: bool, norms: list[int]) -> PlainValue:
        """DLCL, with the arguments of the released code where they are known."""
        settings = self.foreign.settings
        shape = self.foreign.tensors[f"{side}.history.weight"].shape
        count = shape[2] if len(shape) > 2 else 1
        width = self._width(side)
        # Entries count from the embedding, so with its norm there is one more than layers.
        first = ("once" if pre_norm else "twice") if len(norms) > depth else "none"
        window, dropout = settings.get("history_window_size"), settings.get("history_dropout")
        combined: dict[str, PlainValue] = {
            "type": "dlcl",
            "initial": "one" if settings.get("init_value") == "one" else "average",
            "learned": settings.get(f"{side}_learnable", True) is not False,
            "norm": "auto" if norms else "none",
            "embedding_norm": first,
            "weights": {1: "scalar", width: "vector"}.get(count, count),
            "softmax": settings.get("normalize_learned_weight") is True,
            "window": window if isinstance(window, int) and window > 0 else None,
            "dropout": dropout if isinstance(dropout, float) else 0.0,
        }
        return {**combined, "window_form": "initial"} if combined["window"] else combined

    def _encoder_groups(self, depth: int, pre_norm: bool) -> PlainValue:
        groups = self._shape("encoder.encoder_fusion_weight", 0)
        kind = self.foreign.settings.get("encoder_group_type")
        if isinstance(kind, str) and kind.startswith("ls:"):
            raise self._unknown("encoder_group_type", kind)  # the released code cannot compute it
        if groups is None:
            return None
        if pre_norm:
            raise ModelError(
                f"{self.foreign.path}: GTrans with pre-norm leaves out the encoder's final norm, which no "
                "fusion here does"
            )
        return {
            "type": "groups",
            "size": self._group_size("encoder", depth, groups),
        }

    def _decoder_groups(self, depth: int) -> PlainValue:
        mixed, gates = (
            self._shape(f"decoder.{name}", 0) or self._shape(f"decoder.{name}.0", 0)
            for name in ("loss_weight", "decoder_fusion_weight")
        )
        if mixed is None:
            return None
        kind = self.foreign.settings.get("decoder_group_type")
        if isinstance(kind, str) and group_languages(self.foreign):
            kind = kind.removeprefix("ls:")
        if kind is None:
            kind = "sparse" if gates is None else "dense" if gates == depth and mixed > 1 else None
            kind = kind or "sparse-without-ensemble"
        if kind == "last" or (kind == "sparse" and mixed == 1):
            return "top"
        if kind == "sparse-without-ensemble" and gates is not None:
            size = self._group_size("decoder", depth, gates)
            return {"type": "groups", "size": size, "representation": "last", "combine": "average"}
        if kind not in ("sparse", "dense"):
            raise self._unknown("decoder_group_type", kind)
        temperature = self.foreign.settings.get("softmax_temperature")
        return {
            "type": "groups",
            "size": self._group_size("decoder", depth, mixed),
            "representation": "last" if kind == "sparse" else "mean",
            "probabilities": "geometric",
            "temperature": float(temperature) if isinstance(temperature, int | float) else None,
        }

    def _group_size(self, side: Side, depth: int, groups: int) -> int:
        size = self.foreign.settings.get(f"{side}_group_layers", depth // groups)
        if not isinstance(size, int) or size * groups != depth:
            raise ModelError(
                f"{self.foreign.path}: {groups} {side} groups of {depth} layers: the released GTrans leaves "
                "the layers above the last whole group unused, which no fusion here does"
            )
        return size

    def _dropout(self) -> dict[str, PlainValue]:
        """Where it was written; it matters for further training only."""
        settings = self.foreign.settings
        names = {
            "embedding": ("dropout",),
            "sublayer": ("dropout",),
            "attention": ("attention_dropout",),
            "activation": ("activation_dropout", "relu_dropout"),
        }
        rates: dict[str, PlainValue] = {}
        for place, arguments in names.items():
            values = [settings[name] for name in arguments if isinstance(settings.get(name), int | float)]
            if values:
                rates[f"model.dropout.{place}"] = float(str(values[0]))
        return rates

    def _told(
        self,
        key: str,
        argument: str,
        default: str,
        known: dict[str, PlainValue],
        assumed: dict[str, PlainValue],
    ) -> None:
        value = self.foreign.settings.get(argument)
        if isinstance(value, str):
            known[key] = value
        else:
            assumed[key] = default

    def _refuse_unknown_kinds(self) -> None:
        for side in SIDES:
            for name in (f"{side}.embed_tokens.weight", f"{side}.layers.0.fc1.weight"):
                tied = name == "decoder.embed_tokens.weight" and self._has("encoder.embed_tokens.weight")
                if not tied and not self._has(name):
                    raise ModelError(
                        f"{self.foreign.path}: has no {name}, so it is no Transformer of fairseq",
                        f"it holds {', '.join(sorted(self.foreign.tensors)[:3])}, ...",
                    )
        arch = self.foreign.settings.get("arch")
        if isinstance(arch, str) and _OTHER_FAMILY.search(arch):
            raise self._unknown("arch", arch)
        for argument, value in _REFUSED.items():
            stored = self.foreign.settings.get(argument, value)
            if stored != value and stored is not None:
                raise self._unknown(argument, stored)
        for side in SIDES:
            self._refuse_contradictions(side)

    def _refuse_contradictions(self, side: Side) -> None:
        """Arguments of one side that are not those of its tensors."""
        found = {
            "layers": self.layers(side),
            "embed_dim": self._width(side),
            "ffn_embed_dim": self._shape(f"{side}.layers.0.fc1.weight", 0),
            "normalize_before": self._has(f"{side}.layer_norm.weight"),
        }
        for name, value in found.items():
            stored = self.foreign.settings.get(f"{side}_{name}")
            if isinstance(stored, int) and stored != value:
                raise ModelError(
                    f"{self.foreign.path}: was made with {side}_{name}={stored}, but its tensors have "
                    f"{value}",
                    "is the file whole? Otherwise write the architecture into a run file and add "
                    "--run RUNFILE",
                )

    def _unknown(self, argument: str, value: object) -> ModelError:
        return ModelError(
            f"{self.foreign.path}: was made with {argument}={value}, which the importer does not know",
            "write the architecture into a run file and add --run RUNFILE",
        )

    def layers(self, side: Side) -> int:
        """Number of layers of a stack."""
        return number_of_layers(self.foreign, rf"{side}\.layers\.(\d+)\.")

    def _has(self, name: str) -> bool:
        return name in self.foreign.tensors

    def _shape(self, name: str, axis: int) -> int | None:
        tensor = self.foreign.tensors.get(name)
        return None if tensor is None or not tensor.dim() else tensor.size(axis)

    def _one(self, name: str, *values: int | None) -> int:
        """The value that both stacks share."""
        different = {value for value in values if value is not None}
        if len(different) != 1:
            raise ModelError(
                f"{self.foreign.path}: encoder and decoder differ in {name}: "
                f"{' and '.join(map(str, sorted(different)))}, and models here have one {name}"
            )
        return different.pop()


def group_languages(foreign: ForeignCheckpoint) -> int:
    """How many target languages have weights of groups of their own; 0 where all share them."""
    return len({match[2] for match in map(OF_LANGUAGE.fullmatch, foreign.tensors) if match})


def history_norms(foreign: ForeignCheckpoint, side: str) -> list[int]:
    """Numbers of the norms of a history, in order."""
    pattern = re.compile(rf"{side}\.history\.layer_norms\.(\d+)\.weight")
    return sorted(int(match[1]) for match in map(pattern.fullmatch, foreign.tensors) if match)


def _same(tensor: Tensor, other: Tensor) -> bool:
    return tensor.shape == other.shape and torch.equal(tensor, other)
