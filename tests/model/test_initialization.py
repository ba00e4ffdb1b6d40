"""The ranges in which parameters begin, by role, shape and depth."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.connections.connection import DepthState
from deepwire.model.connections.residual import PreNorm, PreNormConfig
from deepwire.model.context import Context
from deepwire.model.initialization import DepthScaledConfig, initialize
from deepwire.model.layer_ownership import layers_of_parameters
from deepwire.model.layers import Branch, Linear
from deepwire.model.stack_spec import StackSpec
from deepwire.model.translation_model import TranslationModel

D, F, V = 32, 96, 700


@pytest.mark.parametrize(
    ("encoder", "decoder", "expected"),
    [
        ("post_norm", "post_norm", "lipschitz"),
        ("post_norm", "pre_norm", "depth_scaled"),
        ("pre_norm", "pre_norm", "depth_scaled"),
        ("depth_lstm", "depth_lstm", "depth_scaled"),
        ("rezero", "rezero", "xavier"),
        ("deepnorm", "deepnorm", "deepnorm"),
        ("b2t", "b2t", "b2t"),
        ("b2t", "post_norm", "lipschitz"),
    ],
)
def test_what_is_not_set_is_what_learns_best(encoder: str, decoder: str, expected: str) -> None:
    stacks = {"encoder": {"connection": encoder}, "decoder": {"connection": decoder}}
    config = ModelConfig.model_validate(stacks)
    assert config.initialization.type == expected
    assert config.model_dump()["initialization"]["type"] == expected  # a run records what it began with
    set_by_hand = ModelConfig.model_validate({**stacks, "initialization": "glorot"})
    assert set_by_hand.initialization.type == "glorot"


SHAPE: Mapping[str, object] = {
    "d_model": D,
    "heads": 4,
    "feed_forward": F,
    "bias": {"attention": True, "feed_forward": "both"},
    "encoder": {"layers": 4},
    "decoder": {"layers": 3},
}


def built(initialization: object, **changes: object) -> TranslationModel:
    torch.manual_seed(3)
    config = ModelConfig.model_validate({**SHAPE, "initialization": initialization, **changes})
    return build_model(config, V, V)


def assert_uniform(tensor: Tensor, bound: float) -> None:
    """All within the bound, close to it at the edge, and spread as a uniform distribution."""
    largest = tensor.abs().max().item()
    edge = 0.95 if tensor.numel() > 500 else 0.8
    assert edge * bound < largest <= bound * (1 + 1e-6), f"{largest} for a bound of {bound}"
    if tensor.numel() > 500:
        spread = tensor.std().item() * math.sqrt(3)
        assert spread == pytest.approx(bound, rel=0.05)


def assert_normal(tensor: Tensor, std: float) -> None:
    assert tensor.std().item() == pytest.approx(std, rel=0.05)
    assert tensor.abs().max().item() > 3 * std


def linear(model: TranslationModel, name: str) -> nn.Linear:
    module = model.get_submodule(name)
    assert isinstance(module, nn.Linear)
    return module


SELF, CROSS = "encoder.mixers.1.query_key_value", "decoder.crosses.1"
BOUNDS = {
    # self-attention, cross queries, cross keys and values, output, W1, W2
    "lipschitz": (D**-0.5, D**-0.5, D**-0.5, D**-0.5, D**-0.5, F**-0.5),
    "glorot": tuple(math.sqrt(6 / n) for n in (4 * D, 2 * D, 3 * D, 2 * D, D + F, D + F)),
    "xavier": tuple(math.sqrt(6 / n) for n in (4 * D, 4 * D, 4 * D, 2 * D, D + F, D + F)),
    "fairseq": (*(math.sqrt(6 / n) for n in (4 * D, 4 * D, 4 * D, 2 * D)), D**-0.5, F**-0.5),
    "pytorch": (*(math.sqrt(6 / n) for n in (4 * D, 4 * D, 4 * D)), D**-0.5, D**-0.5, F**-0.5),
}


@pytest.mark.parametrize("name", list(BOUNDS))
def test_ranges_of_weights(name: str) -> None:
    """Each kind of map has the range of the original, however it is stored here."""
    model = built(name)
    names = (
        SELF,
        f"{CROSS}.query",
        f"{CROSS}.key_value",
        f"{CROSS}.output",
        "encoder.feed_forwards.1.input",
        "encoder.feed_forwards.1.output",
    )
    for module, bound in zip(names, BOUNDS[name], strict=True):
        assert_uniform(linear(model, module).weight, bound)


@pytest.mark.parametrize("name", [*BOUNDS, "depth_scaled"])
def test_biases(name: str) -> None:
    """Zero, but for those that PyTorch's defaults leave uniform."""
    model = built(name)
    uniform = {"fairseq": {"query", "key_value", "feed_forward"}, "pytorch": {"feed_forward"}}.get(
        name, set()
    )
    for place, module in model.named_modules():
        if isinstance(module, nn.Linear):
            kept = any(part in place for part in uniform)
            assert module.bias is not None
            if kept:
                assert_uniform(module.bias, module.in_features**-0.5)
            else:
                assert not module.bias.any(), place


@pytest.mark.parametrize("name", [*BOUNDS, "depth_scaled"])
def test_embeddings(name: str) -> None:
    """Embeddings by size; the row of padding is zero; norms are left alone."""
    model = built(name)
    weight = model.source_embedding.table.weight
    assert not weight[0].any()
    if name == "lipschitz":
        assert_uniform(weight, math.sqrt(2 / (V + D)))
    elif name == "glorot":
        assert_uniform(weight, math.sqrt(6 / (V + D)))
    else:
        assert_normal(weight[1:], D**-0.5)
    norm = model.get_submodule("encoder.connection.norms.0")
    assert isinstance(norm, nn.LayerNorm)
    assert torch.equal(norm.weight, torch.ones(D))


# Maps that are stored as one and have a matrix each in the equations: settings of the decoder, the map's
# name, its inputs, and how many matrices of d outputs it holds.
STACKED = {
    "depth_lstm": ({"connection": "depth_lstm"}, "connection.gates.0.linear", 2 * D, 3),
    "sdu": ({"connection": "sdu"}, "connection.units.0", D, 2),
    "ln_lstm": ({"mixer": "ln_lstm"}, "mixers.0.cell.linear", 2 * D, 4),
    "gru": ({"mixer": "gru"}, "mixers.0.cell.gates", 2 * D, 2),
}


@pytest.mark.parametrize("stacked", list(STACKED))
@pytest.mark.parametrize("name", [*BOUNDS, "depth_scaled"])
def test_gates_that_are_stored_as_one_matrix(name: str, stacked: str) -> None:
    """Their bounds are those of a matrix each, but for glorot, which takes the stored shape as Neutron."""
    decoder, place, inputs, parts = STACKED[stacked]
    weight = linear(built(name, decoder={"layers": 3, **decoder}), f"decoder.{place}").weight
    assert weight.shape == (parts * D, inputs)
    outputs = {"glorot": parts * D, "xavier": D, "depth_scaled": D}.get(name)
    assert_uniform(weight, inputs**-0.5 if outputs is None else math.sqrt(6 / (inputs + outputs)))


# Where queries and keys of self-attention lie: settings of the decoder, and names of maps.
STORED: Mapping[str, tuple[Mapping[str, object], tuple[str, ...]]] = {
    "one matrix": ({}, ("query_key_value",)),
    "ways": ({"aggregation": {"type": "mudd", "ways": 4}}, ("apart.0", "apart.1", "apart.2")),
    "values of layer 1": ({"mixer": {"type": "value_residual", "form": "first"}}, ("query_key_value",)),
    "gla": ({"mixer": {"type": "gla", "expand_key": 1}}, ("query", "key")),
    "mlstm": ({"mixer": {"type": "mlstm"}}, ("query", "key")),
}


@pytest.mark.parametrize("stored", list(STORED))
@pytest.mark.parametrize("name", ["xavier", "pytorch", "depth_scaled"])
def test_queries_and_keys_have_the_bound_of_one_matrix_however_they_are_stored(
    name: str, stored: str
) -> None:
    changes, maps = STORED[stored]
    model = built(name, decoder={"layers": 3, **changes})
    depth = 2**-0.5 if name == "depth_scaled" else 1.0
    for place in maps:
        weight = linear(model, f"decoder.mixers.1.{place}").weight
        assert_uniform(weight, depth * math.sqrt(6 / (4 * D)))


def test_tables_of_positions() -> None:
    """Relative positions are Glorot's uniform and learned ones normal, but with lipschitz."""
    changes = {
        "encoder": {"layers": 4, "mixer": {"type": "self_attention", "relative": 30}},
        "positions": "learned",
    }
    for name, keys in (("xavier", math.sqrt(6 / (61 + 8))), ("lipschitz", 8**-0.5)):
        model = built(name, **changes)
        assert_uniform(model.get_parameter("encoder.mixers.2.relative.table"), keys)
        table = model.get_parameter("source_embedding.positions.table")
        if name == "xavier":
            assert_normal(table, D**-0.5)
        else:
            assert_uniform(table, D**-0.5)


@settings(max_examples=12, deadline=None)
@given(
    alpha=st.floats(0.1, 1),
    form=st.sampled_from(["paper", "released"]),
    connection=st.sampled_from(["pre_norm", "post_norm", "depth_lstm"]),
)
def test_depth_scaling(alpha: float, form: str, connection: str) -> None:
    """The bound of layer l is the first one's over sqrt(l), or l^(1/4); every layer counts from its stack."""
    stack = {"connection": connection}
    model = built(
        {"type": "depth_scaled", "alpha": alpha, "form": form},
        encoder={"layers": 4, **stack},
        decoder={"layers": 3, **stack},
    )
    fall = 0.5 if form == "paper" else 0.25
    for stack_of, depth in ((model.encoder, 4), (model.decoder, 3)):
        for layer in range(depth):
            scale = alpha * (layer + 1) ** -fall
            mixer = stack_of.mixers[layer]
            assert_uniform(mixer.get_parameter("query_key_value.weight"), scale * math.sqrt(6 / (4 * D)))
            assert_uniform(mixer.get_parameter("output.weight"), scale * math.sqrt(6 / (2 * D)))
            for cross in stack_of.crosses[layer : layer + 1]:
                for name in ("query", "key_value", "output"):
                    assert_uniform(cross.get_parameter(f"{name}.weight"), scale * math.sqrt(6 / (2 * D)))
            if connection == "depth_lstm":
                hidden = stack_of.connection.get_parameter(f"hiddens.{layer}.input.weight")
                assert_uniform(hidden, scale * math.sqrt(6 / (2 * D + F)))
            else:
                inner = stack_of.feed_forwards[layer].get_parameter("input.weight")
                assert_uniform(inner, scale * math.sqrt(6 / (D + F)))


def test_what_layers_share_has_the_depth_of_the_first() -> None:
    """Gates shared by all layers are not scaled down, and are set once; also where as many as layers are."""
    gates = {"type": "depth_lstm", "share": "gates"}
    two = {**gates, "merge": "two"}
    model = built(
        "depth_scaled", encoder={"layers": 4, "connection": gates}, decoder={"layers": 2, "connection": two}
    )
    for name in ("encoder.connection.gates.0", "decoder.connection.gates.0", "decoder.connection.gates.1"):
        assert_uniform(model.get_parameter(f"{name}.linear.weight"), math.sqrt(6 / (2 * D + D)))


class GatedConfig(PreNormConfig):
    """Settings of a connection that says nothing about its layers."""

    def build(self, spec: StackSpec) -> Gated:
        """The connection of a whole stack."""
        return Gated(self, spec)


class Gated(PreNorm):
    """x <- x + g F(LN(x)); gates of each call, one that all share, and maps whose modules are not called."""

    def __init__(self, config: GatedConfig, spec: StackSpec) -> None:
        super().__init__(config, spec)
        self.gates = nn.ModuleDict({f"call {index}": nn.Linear(D, D) for index in range(len(self.calls))})
        self.bare = nn.ModuleList(nn.Linear(D, D) for _ in range(spec.layers))
        self.shared = nn.Linear(D, D)
        self.dropout = Branch(0.5)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Gate the output."""
        bare = self.bare[self.calls[index].layer]
        assert isinstance(bare, nn.Linear)
        gate = self.gates[f"call {index}"](read) + self.shared(read)
        return (state[0] + self.dropout(gate + functional.linear(read, bare.weight)).sigmoid() * output,)


def test_the_layers_of_a_connection_need_not_be_said() -> None:
    """A connection that says nothing about its layers is scaled by depth all the same, what is shared is not;
    finding out draws no random number and leaves the mode as it was."""
    config = ModelConfig.model_validate({**SHAPE, "initialization": "depth_scaled"})
    encoder = config.encoder.model_copy(update={"connection": GatedConfig()})
    torch.manual_seed(3)
    model = build_model(config.model_copy(update={"encoder": encoder}), V, V)
    bound = math.sqrt(6 / (2 * D))
    connection = model.encoder.connection
    assert isinstance(connection, Gated)
    for index, call in enumerate(connection.calls):
        scale = (call.layer + 1) ** -0.5
        assert_uniform(connection.get_parameter(f"gates.call {index}.weight"), scale * bound)
        assert_uniform(connection.get_parameter(f"bare.{call.layer}.weight"), scale * bound)
    assert_uniform(connection.shared.weight, bound)
    by_layer = dict(model.encoder.parameters_by_layer())
    assert any(connection.bare[2].weight is parameter for parameter in by_layer["3"])
    assert any(connection.shared.weight is parameter for parameter in by_layer["rest"])
    assert sum(len(parameters) for parameters in by_layer.values()) == len(list(model.encoder.parameters()))
    before = torch.get_rng_state()
    assert layers_of_parameters(connection, D)
    assert torch.equal(before, torch.get_rng_state())
    assert connection.dropout.training
    assert model.encoder.connection.training


def test_a_new_module_takes_part_by_its_role() -> None:
    """Maps with a role are treated by it wherever they are, plain ones like every other map."""

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.keys = Linear(D, 2 * D, bias=False, role="cross_attention", parts=2)
            self.plain = nn.Linear(D, 2 * D)
            self.same = self.plain

    module = Own()
    initialize(module, DepthScaledConfig())
    assert_uniform(module.keys.weight, math.sqrt(6 / (2 * D)))
    assert_uniform(module.plain.weight, math.sqrt(6 / (3 * D)))
    with pytest.raises(ValueError, match="3 equal parts"):
        Linear(D, D, bias=False, parts=3)
