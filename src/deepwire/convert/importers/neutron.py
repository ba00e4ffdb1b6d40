"""Checkpoints of Neutron: its standard Transformer, in both orders of norm and residual, and its MuLang."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
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
from deepwire.data.text.files import BadLine, display, read_lines
from deepwire.errors import DataError, ModelError
from deepwire.model.connections.residual import PostNormConfig
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel

_IGNORED = re.compile(r"(enc|dec)\.(pemb\.w|mask|nets\.\d+\..+\.rel_pos(_map|_cache)?)")
_LAYER = re.compile(r"(?:enc|dec)\.nets\.(\d+)\.(attn|self_attn|cross_attn|ff)\.(.+)\.(weight|bias)")
_SIDES: dict[str, Side] = {"enc": "encoder", "dec": "decoder"}
# The sub-layers of a layer, each with its norm, in order.
_SUBLAYERS = {"enc": ("attn", "ff"), "dec": ("self_attn", "cross_attn", "ff")}
_ATTENTION = {
    "net.adaptor": "query_key_value.{}",
    "net.query_adaptor": "query.{}",
    "net.kv_adaptor": "key_value.{}",
    "net.outer": "output.{}",
    "net.rel_pemb": "relative.table",
}
# A feed-forward part is a list of modules: its second map comes after the activation and, if any, dropout.
_FEED_FORWARD = {"net.0": "input.{}", "net.2": "output.{}", "net.3": "output.{}"}
_PARTS = {
    "attn": ("mixers", _ATTENTION),
    "self_attn": ("mixers", _ATTENTION),
    "cross_attn": ("crosses", _ATTENTION),
    "ff": ("feed_forwards", _FEED_FORWARD),
}
_OF_LANGUAGES = {"task_emb.weight": "{}.language.table", "transo.weight": "transform.weight"}
_EMBEDDINGS = {"enc": "source_embedding", "dec": "target_embedding"}
_SPECIAL = ("<pad>", "<sos>", "<eos>", "<unk>")
_NEEDED = (
    *("enc.wemb.weight", "dec.wemb.weight"),
    *("enc.nets.0.ff.net.0.weight", "dec.nets.0.self_attn.net.adaptor.weight"),
)
_DECODING: dict[str, PlainValue] = {
    "decoding.beam": 4,
    "decoding.length_penalty": 0.0,
    "decoding.stop": "optimal",
    "decoding.max_length_ratio": 1.0,
    "decoding.max_length_extra": 64,
    "decoding.unknown_penalty": 0.0,
}


class NeutronImporter(Importer):
    """Neutron. Its special ids are ours; sources begin with `<sos>`, as targets do."""

    name = "neutron"
    source_bos = True
    files = ("common.vcb", "src.vcb", "tgt.vcb")
    tables = (("enc.wemb.weight",), ("dec.wemb.weight",), ("dec.classifier.weight",))

    def architecture(self, foreign: ForeignCheckpoint) -> Architecture:
        """From names and shapes: Neutron stores no settings."""
        tensors = foreign.tensors
        if missing := [name for name in _NEEDED if name not in tensors]:
            raise ModelError(
                f"{foreign.path}: has no {missing[0]}, so it is no standard Transformer of Neutron"
            )
        first, second = "enc.nets.0.ff.net.0", "enc.nets.0.ff.net.3"
        if f"{second}.weight" not in tensors:
            second = "enc.nets.0.ff.net.2"
        width, inner = tensors["enc.wemb.weight"].size(1), tensors[f"{first}.weight"].size(0)
        biases = (f"{first}.bias" in tensors, f"{second}.bias" in tensors)
        source, target = tensors["enc.wemb.weight"], tensors["dec.wemb.weight"]
        known: dict[str, PlainValue] = {
            "data.source_bos": True,
            "model.d_model": width,
            "model.feed_forward": inner,
            "model.norm_eps": 1e-6,
            "model.bias.attention": "enc.nets.0.attn.net.adaptor.bias" in tensors,
            "model.bias.feed_forward": {(True, True): "both", (True, False): "first"}.get(biases, "none"),
            "model.bias.output": "dec.classifier.bias" in tensors,
            "model.positions": {"type": "sinusoidal", "layout": "interleaved"},
            "model.embeddings.tie": tied_tables(source, target, tensors.get("dec.classifier.weight", target)),
            "model.embeddings.scale": True,
            "model.initialization": "lipschitz",
        }
        # The order of norm and residual leaves no trace; this is Neutron's default.
        order: PlainValue = {"type": "pre_norm", "residual": "normalised"}
        assumed = {"model.encoder.connection": order, "model.decoder.connection": order, **_DECODING}
        gated = 2 * tensors[f"{second}.weight"].size(1) == inner
        (known if gated else assumed)["model.activation"] = "glu" if gated else "relu"
        if self.languages(foreign):
            known["model.languages"] = _languages(foreign)
        for prefix, side in _SIDES.items():
            known[f"model.{side}.layers"] = number_of_layers(foreign, rf"{prefix}\.nets\.(\d+)\.")
            table = tensors.get(f"{prefix}.nets.0.{_SUBLAYERS[prefix][0]}.net.rel_pemb.weight")
            if table is not None:
                # A decoder's table has the past and one row for all of the future.
                distance = table.size(0) // 2 if side == "encoder" else table.size(0) - 2
                known[f"model.{side}.mixer"] = {"type": "self_attention", "relative": distance}
                known["model.heads"] = width // table.size(1)
        return Architecture(known, assumed, () if "model.heads" in known else ("model.heads",))

    def destinations_of(
        self, name: str, model: TranslationModel, foreign: ForeignCheckpoint
    ) -> Destinations | None:
        """Where a tensor goes; sinusoids, masks and distances that old versions store nowhere."""
        prefix, _, rest = name.partition(".")
        if name == "dec.classifier.bias":
            return (Destination("head.bias"),)
        if prefix not in _SIDES:
            return None
        if _IGNORED.fullmatch(name) is not None:
            return ()
        if rest in _OF_LANGUAGES:
            return (Destination(_OF_LANGUAGES[rest].format(_EMBEDDINGS[prefix])),)
        side, kinds = _SIDES[prefix], _SUBLAYERS[prefix]
        # In post-norm form each norm ends the sub-layer before, and the first one follows the embedding.
        ends = isinstance(model.config.stack(side).connection, PostNormConfig)
        if rest.startswith("out_normer."):
            norm = f"norms.{len(model.stack(side).connection.calls) - 1}" if ends else "final_norm"
            return (Destination(f"{side}.connection.{norm}.{rest.removeprefix('out_normer.')}"),)
        match = _LAYER.fullmatch(name)
        if match is None or match[2] not in kinds:
            return None
        layer, kind, part, leaf = int(match[1]), match[2], match[3], match[4]
        if part == "normer":
            number = layer * len(kinds) + kinds.index(kind) - ends
            norm = f"norms.{number}" if number >= 0 else "embedding_norm"
            return (Destination(f"{side}.connection.{norm}.{leaf}"),)
        folder, parts = _PARTS[kind]
        return (
            (Destination(f"{side}.{folder}.{layer}.{parts[part].format(leaf)}"),) if part in parts else None
        )

    def languages(self, foreign: ForeignCheckpoint) -> int:
        """As many as there are gains in each norm of a MuLang."""
        norm = foreign.tensors.get("enc.out_normer.weight")
        return norm.size(0) if norm is not None and norm.dim() == 2 else 0

    def with_language_order(self, foreign: ForeignCheckpoint, order: Sequence[int]) -> ForeignCheckpoint:
        """Reorder a MuLang's norms, language embeddings, encoder map and output bias by language."""

        def of_languages(name: str, value: Tensor) -> bool:
            norm = ".normer." in name or ".out_normer." in name
            bias = name == "dec.classifier.bias" and value.dim() == 2
            return norm or bias or name.partition(".")[2] in _OF_LANGUAGES

        tensors = {
            name: value[list(order)] if of_languages(name, value) else value
            for name, value in foreign.tensors.items()
        }
        return replace(foreign, tensors=tensors)

    def read_pieces(self, path: Path) -> list[str]:
        """The pieces of a vocabulary: on each line a count and all the pieces that occur as often."""
        pieces: dict[str, None] = {}
        for number, line in enumerate(read_lines(path), 1):
            parts = ["no text"] if isinstance(line, BadLine) else line.split()
            if not parts:
                continue
            if not parts[0].isdecimal():
                raise DataError(
                    f"{display(path)}:{number}: does not begin with a count",
                    "a vocabulary of Neutron has lines of a count and the pieces that occur as often",
                )
            # As Neutron does: what was there before keeps its number.
            pieces |= {piece: None for piece in parts[1:] if piece not in _SPECIAL and piece not in pieces}
        return list(pieces)


def _languages(foreign: ForeignCheckpoint) -> PlainValue:
    """The parts that each language of a MuLang has of its own."""
    tensors = foreign.tensors
    sides = [side for prefix, side in _SIDES.items() if f"{prefix}.task_emb.weight" in tensors]
    bias = tensors.get("dec.classifier.bias")
    return {
        "norm": True,
        "transform": "released" if "enc.transo.weight" in tensors else "none",
        "embedding": "both" if len(sides) == 2 else (*sides, "none")[0],
        "output_bias": bias is not None and bias.dim() == 2,
    }
