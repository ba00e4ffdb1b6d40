"""Captured steps: what they give, on which shapes, and that no number of a step is fixed in them.

A CPU has no CUDA graphs. `Replay` does what they do, operation by operation: tensors stay where they were in
memory, numbers stay as they were, and capturing itself computes nothing that lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves

from deepwire.data.vocabulary import EOS
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.search import Batch, generate
from deepwire.model import captured_steps
from deepwire.model.build import build_model
from deepwire.model.captured_steps import CapturedModel, CudaGraphCapture, capturing
from deepwire.model.config import ModelConfig
from deepwire.model.mixers.linear_rnn import SSRU, LinearRNN
from deepwire.model.translation_model import TranslationModel
from deepwire.ops import cpu_tape
from deepwire.ops.cpu_tape import library

SIZE = 40
# What looks at values, or brings numbers of the host to the device: a CUDA graph cannot hold it.
REFUSED = ("item", "_local_scalar_dense", "nonzero", "is_nonzero", "equal", "lift_fresh", "masked_select")

MODELS: Mapping[str, Mapping[str, object]] = {
    "self-attention": {},
    "relative": {"decoder": {"mixer": {"type": "self_attention", "relative": 3}}},
    "average attention": {"decoder": {"mixer": "average_attention"}},
    "merged attention": {"decoder": {"mixer": "merged_attention"}},
    "mhplstm": {side: {"mixer": "mhplstm"} for side in ("encoder", "decoder")},
    "atr": {"decoder": {"mixer": "atr"}},
    "gru": {"decoder": {"mixer": "gru"}},
    "ln_lstm": {"decoder": {"mixer": "ln_lstm"}},
    "depth-wise LSTM": {"decoder": {"connection": "depth_lstm"}},
    "Runge-Kutta": {"decoder": {"connection": {"type": "runge_kutta", "order": 4}}},
    "DLCL": {"decoder": {"aggregation": "dlcl"}},
    "hierarchical": {"decoder": {"aggregation": "hierarchical"}},
    "groups": {"decoder": {"connection": "post_norm", "fusion": {"type": "groups", "size": 1}}},
    "learned positions": {"positions": "learned"},
    "decoder only": {"architecture": "decoder_only", "positions": "learned"},
    "decoder only, average attention": {
        "architecture": "decoder_only",
        "decoder": {"mixer": "average_attention"},
    },
}


class Replay(TorchDispatchMode):
    """Captures like a CUDA graph: see above. Counts what it captures, and what is carried out."""

    def __init__(self) -> None:
        super().__init__()
        self.captured = self.carried_out = 0
        self._log: list[tuple[Any, tuple[Any, ...], Mapping[str, Any], Any]] = []
        self._before: list[tuple[Tensor, Tensor]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert name not in REFUSED, f"{name} cannot be captured"
        kwargs = kwargs or {}
        for place, argument in zip(func._schema.arguments, args, strict=False):
            if place.alias_info is not None and place.alias_info.is_write:
                self._before.append((argument, argument.clone()))
        result = func(*args, **kwargs)
        self._log.append((func, args, kwargs, result))
        return result

    def capture(self, work: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
        """See `deepwire.model.captured_steps.GraphCapture`."""
        self._log, self._before = [], []
        with self:
            result = work()
        log = [(*call, fresh(call)) for call in self._log]
        # Nothing has been done yet: what was written is undone, and what was made is nonsense.
        for tensor, value in reversed(self._before):
            tensor.copy_(value)
        for *_, made in log:
            for tensor in made:
                tensor.fill_(float("nan") if tensor.is_floating_point() else 1)
        self.captured += 1

        def carry_out() -> None:
            self.carried_out += 1
            for func, args, kwargs, result, made in log:
                values = tree_leaves(func(*args, **kwargs))
                for tensor, value in zip(tree_leaves(result), values, strict=True):
                    if any(tensor is each for each in made):
                        tensor.copy_(value)

        return result, carry_out


def fresh(call: tuple[Any, ...]) -> list[Tensor]:
    """The results of an operation that are no views of what it was given."""
    _, args, kwargs, result = call
    given = {
        leaf.untyped_storage().data_ptr()
        for leaf in tree_flatten((args, kwargs))[0]
        if isinstance(leaf, Tensor)
    }
    made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf.numel()]
    return [leaf for leaf in made if leaf.untyped_storage().data_ptr() not in given]


def small_model(settings: Mapping[str, Any], languages: int = 0) -> TranslationModel:
    torch.manual_seed(1)
    small: dict[str, object] = {"d_model": 16, "heads": 2, "feed_forward": 24}
    small |= {side: {"layers": 2, **settings.get(side, {})} for side in ("encoder", "decoder")}
    others = {name: value for name, value in settings.items() if name not in small}
    config = ModelConfig.model_validate({**small, **others})
    model = build_model(config, SIZE, SIZE, languages=languages).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(1.7)
    return model


def answers(model, sources, toys, **settings):
    config = DecodingConfig.model_validate(settings)
    limits = [len(source) + 5 for source in sources]
    found = generate(model, Batch(toys.padded(sources), limits, range(len(sources))), config)
    return [(one.ids, pytest.approx(one.log_probability, abs=1e-4)) for each in found for one in each]


def programs(captured):
    """The steps that a tape has recorded."""
    known = captured._programs.items()
    return [
        kind
        for kind, each in known
        if isinstance(each, cpu_tape.Program) and not isinstance(kind, torch.Size)
    ]


SEARCHES: Mapping[str, Mapping[str, object]] = {
    "beam": {"beam": 4, "n_best": 2},
    "greedy": {"beam": 1},
    "sampling": {"sampling": {"top_k": 5}, "n_best": 3},
}
SEARCHED_IN_C = ("self-attention", "atr", "depth-wise LSTM", "DLCL", "hierarchical", "learned positions")
# A beam reorders states as well; other searches of most models can wait for the night.
PLAIN = ("self-attention", "depth-wise LSTM", "decoder only")


@pytest.fixture(autouse=True)
def without_patience(monkeypatch):
    monkeypatch.setattr(captured_steps, "PATIENCE", 1)


@pytest.fixture
def taken(monkeypatch):
    """How many steps each call of the search in C took before the one that it gave back."""
    counts, search = [], cpu_tape.Replay.search

    def counted(*given):
        counts.append(search(*given))
        return counts[-1]

    monkeypatch.setattr(cpu_tape.Replay, "search", counted)
    return counts


@pytest.mark.skipif(library() is None, reason="needs a C compiler")
@pytest.mark.parametrize(
    ("settings", "batch"),
    [
        ({"beam": 3, "stop": "first", "length_penalty": 1}, {}),
        ({"beam": 4, "n_best": 4, "stop": "optimal"}, {}),
        ({"beam": 2, "min_length": 4}, {}),
        ({"beam": 4, "unknown_penalty": 0.0}, {}),
        ({"beam": 4, "no_repeat_ngram": 1}, {}),
        ({"beam": 4}, {"pieces": 20}),
        ({"beam": 4}, {"prefixes": [[5], [], [9, 9, 3]]}),
    ],
)
def test_a_search_in_c_heeds_all_settings(toys, taken, settings, batch):
    model = small_model({"decoder": {"connection": "depth_lstm"}})
    with torch.no_grad():
        model.head.bias[EOS] -= 1
    captured = capturing(model, torch.device("cpu"), False)
    for seed in (1, 1, 1, 2, 2):
        sources = toys.random_sources(3, SIZE, seed=seed)
        inputs = Batch(toys.padded(sources), [30, 12, 11], **batch)
        config = DecodingConfig.model_validate(settings)
        plain, found = (generate(each, inputs, config) for each in (model, captured))
        assert [[one.ids for one in each] for each in found] == [[one.ids for one in each] for each in plain]
    assert captured._started
    assert sum(taken) > 5 or {"no_repeat_ngram", "unknown_penalty"} & settings.keys()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        pytest.param(
            name,
            settings,
            marks=[] if search == "beam" or name in PLAIN else pytest.mark.slow,
            id=f"{search}-{name}",
        )
        for search, settings in SEARCHES.items()
        for name in MODELS
    ],
)
def test_captured_steps_give_the_same_translations(toys, taken, name, settings):
    model = small_model(MODELS[name])
    replay = Replay()
    stepped = [CapturedModel(model, replay), capturing(model, torch.device("cpu"), False)]
    for seed, count in ((1, 6), (2, 7), (3, 3)):
        sources = toys.random_sources(count, SIZE, seed=seed)
        plain = answers(model, sources, toys, **settings)
        for captured in stepped:
            assert answers(captured, sources, toys, **settings) == plain
    assert replay.carried_out > replay.captured > 0
    if library() is not None:
        # One record for each width, whatever the sizes of a batch are.
        assert len(programs(stepped[1])) == (2 if settings == SEARCHES["beam"] else 1)
        assert (sum(taken) > 0) == (name in SEARCHED_IN_C and "n_best" in settings and "beam" in settings)


def test_a_batch_that_shrinks_to_as_many_rows_as_it_began_with(toys):
    """Eight sentences of a row each, with padding, and four of two rows."""
    model, sources = small_model(MODELS["mhplstm"]), toys.random_sources(5, SIZE)
    captured = capturing(model, torch.device("cpu"), False)

    def lines(searched):
        batch = Batch(toys.padded(sources), [9, 9, 9, 9, 0])
        return [each[0].ids for each in generate(searched, batch, DecodingConfig(beam=2))]

    assert [lines(captured) for _ in range(3)] == [lines(model)] * 3


def test_a_state_may_become_another_one(toys, monkeypatch):
    """A mixer of another package that also reads the cell before the last one."""

    def step(mixer, x, state, context):
        out, (cell,) = LinearRNN.step(mixer, x + state[1].unsqueeze(1), state[:1], context)
        return out, (cell, state[0])

    monkeypatch.setattr(SSRU, "step", step)
    monkeypatch.setattr(SSRU, "init_state", lambda *given: LinearRNN.init_state(*given) * 2)
    model, sources = small_model({"decoder": {"mixer": "ssru"}}), toys.random_sources(3, SIZE)
    for captured in (CapturedModel(model, Replay()), capturing(model, torch.device("cpu"), False)):
        for beam in (1, 1, 1, 4, 4, 4):
            assert answers(captured, sources, toys, beam=beam) == answers(model, sources, toys, beam=beam)


@torch.inference_mode()
def turns(model, sources, delay, steps=24):
    """Steps of one or two batches in turn, the second `delay` steps behind; their log-probabilities."""
    found: list[list[Tensor]] = [[] for _ in sources]
    walks = [[model.start(source), torch.ones(len(source), dtype=torch.int64)] for source in sources]
    for turn in range(steps + delay):
        for which, walk in enumerate(walks):
            if 0 <= turn - which * delay < steps:
                log_probs, walk[0] = model.step(walk[1], walk[0])
                walk[1] = log_probs[:, 4:].argmax(1) + 4
                found[which].append(log_probs.clone())
            else:
                walk[0] = walk[0] if turn < which * delay else None
    return [torch.stack(each) for each in found]


def test_a_start_that_looks_at_lengths_is_not_captured(toys):
    model = small_model(MODELS["decoder only"])
    captured = capturing(model, torch.device("cpu"), False)
    for length in (3, 5, 9, 13):
        source = [[*range(4, 4 + length), 2]]
        assert answers(captured, source, toys, beam=2) == answers(model, source, toys, beam=2)


def test_steps_that_read_values_run_as_they_are(toys, monkeypatch):
    model = small_model({})
    sources = toys.random_sources(3, SIZE, seed=1)
    plain, step_at = answers(model, sources, toys, beam=2), model.step_at

    def reading(vectors, tokens, state):
        assert tokens.max().item() >= 0
        return step_at(vectors, tokens, state)

    monkeypatch.setattr(model, "step_at", reading)
    captured = capturing(model, torch.device("cpu"), False)
    assert [answers(captured, sources, toys, beam=2) for _ in range(2)] == [plain] * 2


@pytest.mark.parametrize("name", ["self-attention", "mhplstm"])
@pytest.mark.parametrize("delay", [0, 3])
def test_batches_that_are_searched_at_the_same_time_keep_apart(toys, name, delay):
    """Two states of the same shape, of which only one can lie in a captured step."""
    model, replay = small_model(MODELS[name]), Replay()
    captured = CapturedModel(model, replay)
    sources = [toys.padded(toys.random_sources(3, SIZE, seed=seed)) for seed in (1, 2)]
    for one, other in zip(turns(captured, sources, delay), turns(model, sources, delay), strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    assert replay.carried_out > replay.captured > 0


def test_another_thread_takes_no_place_that_a_batch_is_copied_from(toys, monkeypatch):
    model, plain_replay, others = small_model({}), captured_steps._CapturedStep.replay, [True]
    captured = CapturedModel(model, Replay())
    sources = [toys.padded(toys.random_sources(2, SIZE, seed=seed)) for seed in (1, 2)]
    expected = turns(model, sources[:1], 0)[0]
    turns(captured, sources[:1] * 2, 0)

    def replay(*given):
        if others:  # as if it were in between
            others.clear()
            turns(captured, sources[1:], 0)
            others.append(True)
        return plain_replay(*given)

    monkeypatch.setattr(captured_steps._CapturedStep, "replay", replay)
    assert torch.allclose(turns(captured, sources[:1], 0)[0], expected, atol=1e-5)


def test_every_language_of_a_batch_stays_with_its_row(toys):
    own = {"norm": True, "embedding": "decoder", "output_bias": True}
    model, replay = small_model({"languages": own}, languages=3), Replay()
    taped = capturing(model, torch.device("cpu"), False)
    sources = toys.random_sources(5, SIZE)
    rows = torch.tensor([2, 0, 1, 1, 0])

    @torch.inference_mode()
    def steps(each):
        state = each.start(toys.padded(sources), languages=rows)
        found, tokens = [], torch.ones(5, dtype=torch.int64)
        for _ in range(10):
            log_probs, state = each.step(tokens, state)
            found.append(log_probs.clone())
            tokens = log_probs.argmax(1)
        return torch.stack(found)

    for captured in (CapturedModel(model, replay), taped):
        assert torch.allclose(steps(captured), steps(model), atol=1e-5)
    assert replay.carried_out
    assert library() is None or programs(taped)


@pytest.mark.parametrize(
    ("wanted", "free", "expected"),
    [("auto", 16, True), ("auto", 15, False), (True, 1, True), (False, 100, False)],
)
def test_by_default_steps_are_captured_where_memory_is_free(monkeypatch, wanted, free, expected):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (free * 2**30, 1000 * 2**30))
    assert captured_steps.is_captured(wanted, torch.device("cuda")) == expected


@pytest.mark.parametrize("name", ["learned positions", "average attention"])
def test_steps_behind_prompts_of_different_lengths_are_captured(name: str) -> None:
    model = small_model(MODELS[name])
    replay, taped = Replay(), capturing(model, torch.device("cpu"), False)
    source = torch.tensor([[5, 6, 7, 2], [8, 2, 0, 0], [9, 9, 2, 0]])
    prompt = torch.tensor([[1, 4, 11], [0, 0, 0], [1, 0, 0]])
    tokens = torch.randint(4, SIZE, (5, 3))
    with torch.inference_mode():
        for captured in [CapturedModel(model, replay), taped] * 2:
            state, graph = (each.start(source, prompt=prompt) for each in (model, captured))
            for read in tokens:
                expected, state = model.step(read, state)
                found, graph = captured.step(read, graph)
                torch.testing.assert_close(found, expected)
    assert replay.captured
    assert library() is None or programs(taped)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_captures_steps_in_bfloat16(toys):
    """cuDNN's attention is only taken in captures, and its first call may not fall into one."""
    device = torch.device("cuda")
    config = ModelConfig.model_validate({"d_model": 128, "heads": 2, "feed_forward": 128})
    model = build_model(config, SIZE, SIZE).to(device, torch.bfloat16).eval()
    captured = CapturedModel(model, CudaGraphCapture(device))
    sources = toys.random_sources(12, SIZE)
    source, limits = toys.padded(sources).to(device), [len(each) for each in sources]
    plain, *graphs = (
        [each[0].ids for each in generate(one, Batch(source, limits), DecodingConfig(beam=1))]
        for one in (model, captured, captured, captured)
    )
    assert any(captured._captured.values())
    # Kernels round otherwise: a word of one sentence may change.
    assert all(sum(map(tuple.__eq__, plain, found)) >= 11 for found in graphs)
