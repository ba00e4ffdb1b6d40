"""Initialisations: how the parameters of a built model begin. All choices, and their table at the end.

Lipschitz: Xu et al. 2020 and Neutron, whose default it is; `glorot` is Neutron's alternative. `xavier` is
that of fairseq up to 0.6, on which DLCL and the ODE Transformer were trained, `fairseq` that of fairseq 1.0
and later, on which GTrans was trained. `pytorch` is that of PyTorch's own Transformer layers, which ReZero's
authors use. Depth-scaled: Zhang et al. 2019 (Improving Deep Transformer with Depth-Scaled Initialization and
Merged Attention). `deepnorm`, `sub_ln` and `b2t` go with the connections of their papers, in which the number
of layers decides how large matrices begin.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import log, sqrt
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.config.choice import Choice, ChoiceTable
from deepwire.model.embedding import Embedding, LearnedPositions, SideEmbedding, TokenEmbedding
from deepwire.model.languages import LanguageEmbedding
from deepwire.model.layers import Linear
from deepwire.model.mixers.self_attention import RelativePositions
from deepwire.model.stack import Stack
from deepwire.model.stack_spec import SIDES, Side, Sublayer
from deepwire.plugins import Kind

_FOLDERS: Mapping[str, Sublayer] = {
    "mixers": "mixer",
    "crosses": "cross",
    "feed_forwards": "feed_forward",
    "inner_feed_forwards": "inner_feed_forward",
}


@dataclass(frozen=True)
class MatrixPlace:
    """Where a matrix of a stack lies.

    Attributes:
        side: The stack.
        layers, other_layers: Layers of this stack and of the other one; 0 where there is no other.
        sublayer: Of which sub-layer it is a part; None: of the connection, an aggregation or a fusion.
        attends: Whether it makes queries or keys.
    """

    side: Side
    layers: int
    other_layers: int
    sublayer: Sublayer | None
    attends: bool


def matrices(model: nn.Module) -> Iterator[tuple[Tensor, MatrixPlace]]:
    """Every matrix of the stacks of a model once; queries and keys apart from values that lie beside them."""
    stacks = {side: stack for side in SIDES if isinstance(stack := getattr(model, side, None), Stack)}
    seen: set[int] = set()
    for side, stack in stacks.items():
        other_layers = sum(other.layer_count for other in stacks.values() if other is not stack)
        for name, module in stack.named_modules():
            if not isinstance(module, nn.Linear) or id(module.weight) in seen:
                continue
            seen.add(id(module.weight))
            sublayer = _FOLDERS.get(name.split(".")[0])
            for part, attends in _parts(module):
                yield part, MatrixPlace(side, stack.layer_count, other_layers, sublayer, attends)


def _parts(module: nn.Linear) -> Iterator[tuple[Tensor, bool]]:
    """The matrices that lie side by side in one map, and whether each makes queries or keys."""
    if not isinstance(module, Linear) or module.role not in ("self_attention", "cross_attention"):
        yield module.weight.data, False
        return
    *attending, last = module.weight.data.chunk(module.parts)
    for part in attending:
        yield part, True
    yield last, not module.makes_values


class Initialization(Choice):
    """The contract: how linear maps, embeddings and tables of positions begin.

    Norms, gates, mixing weights and parameters of other shapes are set by the modules that own them.

    Attributes:
        needs_layers: Whether values depend on the layer; one that says no spares the walk that finds it.
        has_gains: Whether `gain` says anything but 1.
    """

    kind: ClassVar[Kind] = "initialization"
    needs_layers: ClassVar[bool] = True
    has_gains: ClassVar[bool] = False

    @abstractmethod
    def linear(self, module: nn.Linear, layer: int) -> None:
        """Set a linear map `[out, in]` with its bias.

        Args:
            module: The map; a `Linear` says what it is for.
            layer: The layer of its stack that it belongs to, from 1; 1 for what several layers share.
        """

    def gain(self, place: MatrixPlace) -> float:
        """By what a matrix of a stack is multiplied after `linear` has set it; 1 as a rule."""
        return 1.0

    def embedding(self, module: TokenEmbedding) -> None:
        """Set an embedding matrix `[V, d]`, or the output projection: normal with d^-0.5 as a rule.

        The row of padding is zeroed later.
        """
        nn.init.normal_(module.weight, std=module.weight.size(1) ** -0.5)

    def projection(self, module: TokenEmbedding) -> None:
        """Set an output projection `[V, d]` that is a matrix of its own; like an embedding as a rule."""
        self.embedding(module)

    def positions(self, table: Tensor) -> None:
        """Set a learned table of positions `[n, d]`, or of a side `[1, d]`: normal with d^-0.5 as a rule."""
        nn.init.normal_(table, std=table.size(1) ** -0.5)

    def language_embedding(self, table: Tensor) -> None:
        """Set the vectors of the target languages `[L, d]`: normal with d^-0.5 as a rule."""
        nn.init.normal_(table, std=table.size(1) ** -0.5)

    def relative_positions(self, table: Tensor) -> None:
        """Set a table of relative positions `[n, h]`, of keys or values: Glorot's uniform as a rule."""
        nn.init.xavier_uniform_(table)


class LipschitzConfig(Initialization):
    """Uniform in +-1/sqrt(fan_in), embeddings in +-sqrt(2/(V + d)), biases 0 (Xu et al. 2020; Neutron)."""

    needs_layers: ClassVar[bool] = False
    type: Literal["lipschitz"] = "lipschitz"

    def linear(self, module: nn.Linear, layer: int) -> None:
        """Uniform by the number of inputs."""
        _uniform(module.weight, module.in_features**-0.5)
        _zero_bias(module)

    def embedding(self, module: TokenEmbedding) -> None:
        """Uniform by both measures, which a tied output projection shares."""
        _uniform(module.weight, (2 / sum(module.weight.shape)) ** 0.5)

    def language_embedding(self, table: Tensor) -> None:
        """As an embedding."""
        _uniform(table, (2 / sum(table.shape)) ** 0.5)

    def projection(self, module: TokenEmbedding) -> None:
        """A linear map like the others."""
        _uniform(module.weight, module.weight.size(1) ** -0.5)

    def positions(self, table: Tensor) -> None:
        """Uniform by the width, as every matrix."""
        _uniform(table, table.size(1) ** -0.5)

    def relative_positions(self, table: Tensor) -> None:
        """Uniform by the width, as every matrix."""
        _uniform(table, table.size(1) ** -0.5)


class GlorotConfig(Initialization):
    """Glorot's uniform on the stored shapes, embeddings too; biases 0 (Neutron's alternative).

    Neutron stores the gates of a cell as one matrix, `[3 d, n]` or `[4 d, n]`, and takes bounds from that.
    """

    needs_layers: ClassVar[bool] = False
    type: Literal["glorot"] = "glorot"

    def linear(self, module: nn.Linear, layer: int) -> None:
        """Uniform by inputs and outputs."""
        nn.init.xavier_uniform_(module.weight)
        _zero_bias(module)

    def embedding(self, module: TokenEmbedding) -> None:
        """Uniform by both measures."""
        nn.init.xavier_uniform_(module.weight)

    def language_embedding(self, table: Tensor) -> None:
        """Uniform by both measures."""
        nn.init.xavier_uniform_(table)

    def positions(self, table: Tensor) -> None:
        """Uniform by both measures."""
        nn.init.xavier_uniform_(table)


class XavierConfig(Initialization):
    """Glorot's uniform, embeddings normal with d^-0.5, biases 0 (fairseq to 0.6).

    Queries, keys and values are one matrix `[3 d, d]` in both kinds of attention there, so each of them is
    uniform in +-sqrt(6 / 4d), however it is stored here. fairseq has no gates: those that are stored as one
    matrix here have a matrix each in the equations, and each has the bound of its own d outputs.
    """

    needs_layers: ClassVar[bool] = False
    type: Literal["xavier"] = "xavier"

    def linear(self, module: nn.Linear, layer: int) -> None:
        """Uniform by inputs and outputs."""
        part = _part_of_attention(module)
        outputs = _part(module) if part is None else 3 * part
        _uniform(module.weight, _glorot_bound(module.in_features, outputs))
        _zero_bias(module)


class FairseqConfig(Initialization):
    """Glorot's uniform in attention, PyTorch's defaults elsewhere, embeddings normal (fairseq from 1.0).

    Queries, keys and values are Glorot's uniform with gain 1/sqrt(2) and keep PyTorch's biases, in
    +-1/sqrt(d); the attention's output is Glorot's uniform with bias 0; feed-forward layers are uniform in
    +-1/sqrt(fan_in), biases too.
    """

    needs_layers: ClassVar[bool] = False
    type: Literal["fairseq"] = "fairseq"

    def linear(self, module: nn.Linear, layer: int) -> None:
        """By role."""
        module.reset_parameters()
        part = _part_of_attention(module)
        if part is not None:
            _uniform(module.weight, _glorot_bound(module.in_features, part) / 2**0.5)
        elif isinstance(module, Linear) and module.role == "attention_output":
            nn.init.xavier_uniform_(module.weight)
            _zero_bias(module)


class PyTorchConfig(Initialization):
    """As `torch.nn.MultiheadAttention` and `torch.nn.Linear` set themselves (the layers of ReZero's authors).

    Queries, keys and values are one matrix `[3 d, d]`, Glorot's uniform; every other weight is uniform in
    +-1/sqrt(fan_in). Biases of attention are 0, the others uniform like their weights. Embeddings, which
    those layers do not have, are normal with d^-0.5.
    """

    needs_layers: ClassVar[bool] = False
    type: Literal["pytorch"] = "pytorch"

    def linear(self, module: nn.Linear, layer: int) -> None:
        """By role."""
        module.reset_parameters()
        part = _part_of_attention(module)
        if part is not None:
            _uniform(module.weight, _glorot_bound(module.in_features, 3 * part))
        if isinstance(module, Linear) and module.role != "other":
            _zero_bias(module)


class DepthScaledConfig(Initialization):
    """DS-Init: weights of layer l uniform in +-gamma alpha / sqrt(l), gamma = sqrt(6 / (fan_in + fan_out)).

    Layers count from 1 in each stack. Biases are 0, embeddings normal with d^-0.5. Queries, keys and values
    of self-attention are one matrix `[3 d, d]`, those of cross-attention three of `[d, d]`, as in the
    authors' code, however they are stored here; gates, which it does not have, are matrices of their own as
    in `XavierConfig`.
    """

    type: Literal["depth_scaled"] = "depth_scaled"
    alpha: float = Field(1.0, gt=0, le=1, description="factor of all bounds")
    form: Literal["paper", "released"] = Field(
        "paper",
        description="bounds fall with the square root of the depth (paper), or with its fourth root: the "
        "released code scales the variance",
    )

    def linear(self, module: nn.Linear, layer: int) -> None:
        """Uniform by inputs, outputs and depth."""
        of_self_attention = isinstance(module, Linear) and module.role == "self_attention"
        outputs = (3 if of_self_attention else 1) * _part(module)
        exponent = -0.5 if self.form == "paper" else -0.25
        _uniform(module.weight, self.alpha * _glorot_bound(module.in_features, outputs) * layer**exponent)
        _zero_bias(module)


class XavierNormal(Initialization):
    """Glorot's normal times a gain, maps that lie side by side apart; embeddings normal, biases 0."""

    needs_layers: ClassVar[bool] = False
    has_gains: ClassVar[bool] = True

    def linear(self, module: nn.Linear, layer: int) -> None:
        """Normal by inputs and outputs."""
        outputs = _part(module)
        nn.init.normal_(module.weight, std=(2 / (module.in_features + outputs)) ** 0.5)
        _zero_bias(module)


def deepnorm_gain(side: Side, layers: int, other_layers: int) -> float:
    """beta of DeepNorm, the gain of initial matrices (same source).

    0.87 (N^4 M)^(-1/16), (12 N)^(-1/4) and (8 N)^(-1/4), in the order of `deepnorm_residual_scale`.
    """
    if not other_layers:
        return float((8 * layers) ** -0.25)
    if side == "decoder":
        return float((12 * layers) ** -0.25)
    return float(0.87 * (layers**4 * other_layers) ** -0.0625)


def sub_ln_gain(side: Side, layers: int, other_layers: int) -> float:
    """gamma of Sub-LN, the gain of initial matrices (Wang et al. 2022, Magneto).

    sqrt(ln(3 M) ln(2 N) / 3) in an encoder with N layers before a decoder with M; sqrt(ln(3 N)) in a decoder
    with N; sqrt(ln(2 N)) in a stack alone.
    """
    if not other_layers:
        return sqrt(log(2 * layers))
    if side == "decoder":
        return sqrt(log(3 * layers))
    return sqrt(log(3 * other_layers) * log(2 * layers) / 3)


class DeepNormInitialization(XavierNormal):
    """Glorot's normal, smaller the more layers there are, except for queries and keys (DeepNet)."""

    type: Literal["deepnorm"] = "deepnorm"

    def gain(self, place: MatrixPlace) -> float:
        """beta of the paper in sub-layers, but for queries and keys."""
        if place.attends or place.sublayer is None:
            return 1.0
        return deepnorm_gain(place.side, place.layers, place.other_layers)


class SubLNInitialization(XavierNormal):
    """Glorot's normal, larger the more layers there are, but not in cross-attention, queries and keys."""

    type: Literal["sub_ln"] = "sub_ln"

    def gain(self, place: MatrixPlace) -> float:
        """gamma of the paper (Magneto) in sub-layers, but for queries, keys and cross-attention."""
        if place.attends or place.sublayer in (None, "cross"):
            return 1.0
        return sub_ln_gain(place.side, place.layers, place.other_layers)


class B2TInitialization(XavierNormal):
    """Glorot's normal divided by the square root of the number of layers of the stack (B2T)."""

    type: Literal["b2t"] = "b2t"

    def gain(self, place: MatrixPlace) -> float:
        """L^-0.5 in a stack of L layers."""
        return float(place.layers**-0.5)


INITIALIZATIONS = ChoiceTable(
    Initialization,
    [
        LipschitzConfig,
        GlorotConfig,
        XavierConfig,
        FairseqConfig,
        PyTorchConfig,
        DepthScaledConfig,
        DeepNormInitialization,
        SubLNInitialization,
        B2TInitialization,
    ],
)


def _part_of_attention(module: nn.Linear) -> int | None:
    """Outputs of one of the queries, keys and values that a map makes; None where it makes none."""
    attends = isinstance(module, Linear) and module.role in ("self_attention", "cross_attention")
    return _part(module) if attends else None


def _part(module: nn.Linear) -> int:
    """Outputs of one of the maps that lie side by side in one; all outputs where it is one map."""
    return module.out_features // (module.parts if isinstance(module, Linear) else 1)


def _uniform(tensor: Tensor, bound: float) -> None:
    nn.init.uniform_(tensor, -bound, bound)


def _glorot_bound(inputs: int, outputs: int) -> float:
    """sqrt(6 / (inputs + outputs)) (Glorot and Bengio 2010, equation 16)."""
    return float((6 / (inputs + outputs)) ** 0.5)


def _zero_bias(module: nn.Linear) -> None:
    if module.bias is not None:
        nn.init.zeros_(module.bias)


def initialize(model: nn.Module, config: Initialization, base_width: int | None = None) -> None:
    """Set every linear map, embedding and table of positions of a model; shared ones once.

    A model on the meta device has nothing to set.

    Args:
        model: The model.
        config: The initialisation.
        base_width: Begin embeddings and positions as in a model of this width; None: of their own.
    """
    if all(parameter.is_meta for parameter in model.parameters()):
        return
    layers = _layers(model) if config.needs_layers else {}
    looked_up = {id(module.table) for module in model.modules() if isinstance(module, Embedding)}
    done: set[int] = set()
    for module in model.modules():
        if isinstance(module, nn.Linear):
            if id(module.weight) not in done:
                config.linear(module, layers.get(id(module.weight), 1))
            done.add(id(module.weight))
        elif isinstance(module, TokenEmbedding):
            embeds = id(module) in looked_up
            _in_blocks(module, config.embedding if embeds else config.projection, base_width)
            # Index 0 of a copy would not write through on the meta device, so fill the row in place.
            module.weight.data[module.pad_id].zero_()
        elif isinstance(module, RelativePositions):
            config.relative_positions(module.table)
        elif isinstance(module, LearnedPositions | SideEmbedding):
            _in_columns(module.table, config.positions, base_width)
        elif isinstance(module, LanguageEmbedding):
            _in_columns(module.table, config.language_embedding, base_width)
    if config.has_gains:
        for matrix, place in matrices(model):
            matrix.mul_(config.gain(place))


def _in_blocks(module: TokenEmbedding, begin: Callable[[TokenEmbedding], None], width: int | None) -> None:
    """Set an embedding as blocks of columns, each of which begins as one of that width does."""

    def begin_table(table: Tensor) -> None:
        block = TokenEmbedding(table.size(0), table.size(1), module.pad_id)
        begin(block)
        table.copy_(block.weight)

    if width is None or width == module.weight.size(1):
        begin(module)
    else:
        _in_columns(module.weight, begin_table, width)


@torch.no_grad()
def _in_columns(table: Tensor, begin: Callable[[Tensor], None], width: int | None) -> None:
    """Set a table `[n, d]` as blocks of columns, each of which begins as one of that width does."""
    if width is None or width == table.size(1):
        begin(table)
        return
    for columns in torch.split(table, width, 1):
        block = table.new_empty(table.size(0), width)
        begin(block)
        columns.copy_(block[:, : columns.size(1)])


def _layers(model: nn.Module) -> dict[int, int]:
    """The layer, from 1, that each parameter belongs to, by identity; others belong to several or to none."""
    layers: dict[int, int] = {}
    for stack in model.modules():
        if isinstance(stack, Stack):
            layer_of = stack.parameter_layers()
            for name, parameter in stack.named_parameters():
                if name in layer_of:
                    layers[id(parameter)] = min(layer_of[name], layers.get(id(parameter), layer_of[name]))
    return layers
