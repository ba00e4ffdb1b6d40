"""Checkpoints of fairseq: Transformer, DLCL and GTrans, of versions 0.5 to 1.0."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from deepwire.checkpoint.importers.fairseq_architecture import (
    OF_LANGUAGE,
    fairseq_architecture,
    group_languages,
    history_norms,
)
from deepwire.checkpoint.importers.foreign_checkpoint import ForeignCheckpoint
from deepwire.checkpoint.importers.importer import (
    Architecture,
    Destination,
    Destinations,
    Importer,
    Numbering,
)
from deepwire.data.text.files import BadLine, display, read_lines
from deepwire.errors import DataError
from deepwire.model.fusions.groups import MixedGroups
from deepwire.model.translation_model import TranslationModel

_IGNORED = re.compile(r"(encoder|decoder)\.(version|embed_positions\.(_float_tensor|weights))")
_LAYER = re.compile(r"(?:encoder|decoder)\.layers\.(\d+)\.(.+?)[._](weight|bias|position_keys)")
_HISTORY_NORM = re.compile(r"(?:encoder|decoder)\.history\.layer_norms\.(\d+)\.(weight|bias)")
_SIDES = {"encoder": "source_embedding", "decoder": "target_embedding"}
# The norms of a layer, by the names of later and of old versions, in the order of its sub-layers.
_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
_WHOLE = {
    "encoder_fusion_weight": "fusion.gates",
    "loss_weight": "fusion.weights",
    "history.weight": "aggregation.mix",
    "layer_norm.weight": "connection.final_norm.weight",
    "layer_norm.bias": "connection.final_norm.bias",
    "fusion_layer_norm.weight": "fusion.norm.weight",
    "fusion_layer_norm.bias": "fusion.norm.bias",
}
_EMBEDDING = {
    "embed_positions.weight": "positions.table",
    "layernorm_embedding.weight": "norm.weight",
    "layernorm_embedding.bias": "norm.bias",
}


class FairseqImporter(Importer):
    """fairseq. Its decoder starts with the end symbol; sources end with it and begin with nothing."""

    name = "fairseq"
    numbering = Numbering(pad=1, bos=0, eos=2, unk=3, starts_with_end=True)
    source_bos = False
    tables = (
        ("encoder.embed_tokens.weight",),
        ("decoder.embed_tokens.weight",),
        ("decoder.output_projection.weight", "decoder.embed_out"),
    )

    def architecture(self, foreign: ForeignCheckpoint) -> Architecture:
        """From arguments, names and shapes."""
        return fairseq_architecture(foreign)

    def ignores(self, name: str) -> bool:
        """Version numbers, and what sinusoids leave behind."""
        return _IGNORED.fullmatch(name) is not None

    def destinations_of(
        self, name: str, model: TranslationModel, foreign: ForeignCheckpoint
    ) -> Destinations | None:
        """Where a tensor goes."""
        side, _, rest = name.partition(".")
        if side not in _SIDES:
            return None
        if rest in _EMBEDDING:
            return (Destination(f"{_SIDES[side]}.{_EMBEDDING[rest]}"),)
        of_language = OF_LANGUAGE.fullmatch(name)
        if of_language is not None:
            (whole,) = _group_weights(of_language[1], model, foreign) or (None,)
            part = int(of_language[2]), self.languages(foreign)
            return None if whole is None else (Destination(whole.name, *part),)
        if rest in ("decoder_fusion_weight", "loss_weight"):
            return _group_weights(rest, model, foreign)
        if rest in _WHOLE:
            return (Destination(f"{side}.{_WHOLE[rest]}"),)
        norm = _HISTORY_NORM.fullmatch(name)
        if norm is not None:
            depth = len(model.stack("encoder" if side == "encoder" else "decoder").mixers)
            # Some versions count norms from the first layer, others from the embedding.
            shift = 1 if history_norms(foreign, side)[-1] < depth else 0
            return (Destination(f"{side}.aggregation.norms.{int(norm[1]) + shift}.{norm[2]}"),)
        layer = _LAYER.fullmatch(name)
        return None if layer is None else _in_layer(side, int(layer[1]), layer[2], layer[3])

    def languages(self, foreign: ForeignCheckpoint) -> int:
        """As many as there are weights of groups in a GTrans of kind ls:sparse or its like."""
        return group_languages(foreign)

    def with_language_order(self, foreign: ForeignCheckpoint, order: Sequence[int]) -> ForeignCheckpoint:
        """The weights of groups have the number of the language in their name."""
        places = {str(old): new for new, old in enumerate(order)}

        def renamed(name: str) -> str:
            match = OF_LANGUAGE.fullmatch(name)
            return name if match is None else f"decoder.{match[1]}.{places.get(match[2], match[2])}"

        return replace(foreign, tensors={renamed(name): tensor for name, tensor in foreign.tensors.items()})

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

    def vocabulary_files(self, folder: Path, source: str, target: str) -> tuple[Path, Path]:
        """`dict.SOURCE.txt` and `dict.TARGET.txt`, or `dict.txt` for both."""
        if (folder / "dict.txt").exists():
            return folder / "dict.txt", folder / "dict.txt"
        return folder / f"dict.{source}.txt", folder / f"dict.{target}.txt"


def _group_weights(rest: str, model: TranslationModel, foreign: ForeignCheckpoint) -> Destinations | None:
    """GTrans: gates of the groups or of their layers; the weight of a single prediction says nothing."""
    fusion = model.decoder.fusion
    if rest == "loss_weight":
        if isinstance(fusion, MixedGroups):
            return (Destination("decoder.fusion.weights"),)
        single = foreign.tensors.get("decoder.loss_weight")
        return () if single is not None and single.numel() == 1 else None
    return (Destination(f"decoder.fusion.{'layer_gates' if isinstance(fusion, MixedGroups) else 'gates'}"),)


def _in_layer(side: str, layer: int, part: str, leaf: str) -> Destinations | None:
    norms = _NORMS[side]
    for number, name in enumerate(norms):
        if part in (name, f"layer_norms.{number}"):
            return (Destination(f"{side}.connection.norms.{layer * len(norms) + number}.{leaf}"),)
    if part in ("fc1", "fc2"):
        return (Destination(f"{side}.feed_forwards.{layer}.{'input' if part == 'fc1' else 'output'}.{leaf}"),)
    if (part, leaf) == ("self_attn.relative", "position_keys"):
        return (Destination(f"{side}.mixers.{layer}.relative.table"),)
    kind, _, projection = part.partition(".")
    folder = {"self_attn": "mixers", "encoder_attn": "crosses"}.get(kind)
    return None if folder is None else _projection(f"{side}.{folder}.{layer}", projection, leaf)


def _projection(module: str, projection: str, leaf: str) -> Destinations | None:
    """Queries, keys and values are one matrix in old versions and three in later ones; here 3, or 1 and 2."""
    if projection == "out_proj":
        return (Destination(f"{module}.output.{leaf}"),)
    if ".mixers." in module:
        whole = f"{module}.query_key_value.{leaf}"
        if projection == "in_proj":
            return (Destination(whole),)
        parts = {
            "q_proj": Destination(whole, 0, 3),
            "k_proj": Destination(whole, 1, 3),
            "v_proj": Destination(whole, 2, 3),
        }
    else:
        query, both = f"{module}.query.{leaf}", f"{module}.key_value.{leaf}"
        if projection == "in_proj":
            return (Destination(query), Destination(both))
        parts = {
            "q_proj": Destination(query),
            "k_proj": Destination(both, 0, 2),
            "v_proj": Destination(both, 1, 2),
        }
    destination = parts.get(projection)
    return None if destination is None else (destination,)
