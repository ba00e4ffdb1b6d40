"""Checks that must hold for every choice of a socket, on small models; for tests, also of plugins.

`check_connection`, `check_mixer`, `check_aggregation`, `check_fusion` and `check_initialization` take the
settings of one choice, as an object, a mapping or its name, and raise `AssertionError` with what is wrong.
They need no text, no training and no GPU, and take seconds. Values are compared to within `TOLERANCE`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from deepwire.config.choice import TRUSTED, Choice, remembered
from deepwire.config.settings_reader import from_mapping
from deepwire.errors import UsageError
from deepwire.model.aggregations.aggregation import AggregationSection
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.connections.connection import ConnectionSection
from deepwire.model.decoder_state import DecoderState
from deepwire.model.embedding import LearnedPositions, TokenEmbedding
from deepwire.model.fusions.fusion import FusionSection
from deepwire.model.initialization import Initialization, initialize
from deepwire.model.languages import LanguageEmbedding, LanguageTransform
from deepwire.model.layers import GroupedLayerNorm, LanguageNorm, LanguageRMSNorm
from deepwire.model.mixers.mhplstm import HeadNorm
from deepwire.model.mixers.mixer import MixerSection
from deepwire.model.mixers.self_attention import RelativePositions
from deepwire.model.stack_spec import SIDES, SocketSection
from deepwire.model.translation_model import TranslationModel

SIZE, TOLERANCE = 23, 2e-5
"""Entries of the vocabulary, and the largest difference of two log-probabilities that are to be equal."""
ChoiceT = TypeVar("ChoiceT", bound=Choice)
LANGUAGES = 3
"""Target languages of models that have parameters of each."""
Settings = Mapping[str, object]
SMALL: Settings = {
    "d_model": 16,
    "heads": 4,
    "feed_forward": 24,
    "dropout": 0.0,
    "max_length": 12,
}


def check_connection(settings: ConnectionSection | Settings | str, model: Settings | None = None) -> None:
    """Check a connection in every stack that it is for, also with norms of each target language.

    Every parameter has a finite gradient; padding, later target words and other sentences change nothing;
    decoding step by step equals the full pass, also after hypotheses are reordered and sentences dropped;
    what is computed once more in the backward pass gives the same gradients; and the settings and parameters
    can be saved and read again.

    Args:
        settings: The connection, such as `{"type": "highway", "bias": -1}`.
        model: Other settings of the model, such as `{"decoder": {"mixer": "gru"}}`; the usual ones without.

    Raises:
        AssertionError: Something does not hold.
        UsageError: The settings are wrong, or do not fit the model's; one line says what.
    """
    _check_socket("connection", ConnectionSection, settings, model)


def check_mixer(settings: MixerSection | Settings | str, model: Settings | None = None) -> None:
    """The same of a mixer; see `check_connection`."""
    _check_socket("mixer", MixerSection, settings, model)


def check_aggregation(settings: AggregationSection | Settings | str, model: Settings | None = None) -> None:
    """The same of an aggregation; see `check_connection`."""
    _check_socket("aggregation", AggregationSection, settings, model)


def check_fusion(settings: FusionSection | Settings | str, model: Settings | None = None) -> None:
    """The same of a fusion; see `check_connection`."""
    _check_socket("fusion", FusionSection, settings, model)


def check_initialization(settings: Initialization | Settings | str, model: Settings | None = None) -> None:
    """Check that an initialisation sets all that is its own, to finite values that the seed determines.

    Args:
        settings: The initialisation.
        model: Other settings of the model; it has learned and relative positions besides.

    Raises:
        AssertionError: Something does not hold.
        UsageError: The settings are wrong.
    """
    chosen = section_of(Initialization, settings)  # type: ignore[type-abstract]
    model = _model_settings(model)
    relative = {"mixer": {"type": "self_attention", "relative": 2, "relative_values": True}}
    built = small_model({"positions": "learned", "encoder": relative, **model})
    draws = []
    for _ in range(2):
        with torch.no_grad():
            for module in built.modules():
                if isinstance(module, nn.Linear | TokenEmbedding | RelativePositions | LearnedPositions):
                    for parameter in module.parameters(recurse=False):
                        parameter.fill_(math.nan)
        torch.manual_seed(1)
        initialize(built, chosen)
        draws.append({name: parameter.detach().clone() for name, parameter in built.named_parameters()})
    for name, values in draws[0].items():
        assert torch.isfinite(values).all(), f"{name} was not set, or not to finite numbers"
        assert torch.equal(values, draws[1][name]), f"{name} begins otherwise when it is drawn again"
    _check_record(built)


def section_of(base: type[ChoiceT], settings: ChoiceT | Settings | str) -> ChoiceT:
    """The settings of a choice, as they are or of a mapping or a name.

    Raises:
        UsageError: They are wrong.
    """
    if isinstance(settings, base):
        return settings
    values = {"type": settings} if isinstance(settings, str) else settings
    return from_mapping(base, values, "settings", allow_unused=True)


def _check_socket(
    socket: str, base: type[SocketSection], settings: SocketSection | Settings | str, model: Settings | None
) -> None:
    chosen, given = section_of(base, settings), _model_settings(model)
    for side in ("encoder", "decoder"):
        if side in chosen.sides:
            wanted = {**given, side: {**cast("Settings", given.get(side, {})), socket: chosen}}
            with as_assertion(f"{socket} {chosen.type} in the {side}"):
                check_model(wanted)
                check_model({**wanted, "languages": {"norm": True}})
                built = small_model(wanted)
                check_recomputation(built)
                _check_record(built)


def _model_settings(model: Settings | None) -> Settings:
    """Settings of a model, once they and those of its stacks are known to be mappings."""
    given: object = {} if model is None else model
    stacks = {f"model.{side}": given.get(side, {}) for side in SIDES} if isinstance(given, Mapping) else {}
    for name, value in {"model": given, **stacks}.items():
        if not isinstance(value, Mapping):
            raise UsageError(f"{name}: must be a mapping, not {type(value).__name__}")
    return cast("Settings", given)


@contextmanager
def as_assertion(what: str) -> Iterator[None]:
    """Any other error of a part says which part it is."""
    try:
        yield
    except (AssertionError, UsageError):
        raise
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


def _check_record(model: TranslationModel) -> None:
    """Check that saved settings stand for the same settings, and that all parameters have their names."""
    record = json.loads(json.dumps(model.config.model_dump(mode="json")))
    with remembered(model.config):  # its classes may be some that nobody has registered
        again = ModelConfig.model_validate(record, context=TRUSTED)
    assert again == model.config, "the settings are not the same after they were saved and read"
    other = _model_of(again, model.languages, seed=1)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.fill_(math.nan)
    other.load_state_dict(model.state_dict())
    assert all(torch.isfinite(parameter).all() for parameter in other.parameters()), (
        "a parameter is not saved"
    )


def check_recomputation(model: TranslationModel) -> None:
    """Gradients are the same where layers are computed once more in the backward pass."""
    gradients = []
    for recomputes in (False, True):
        model.train()
        _recompute(model, recomputes)
        torch.manual_seed(1)
        model.zero_grad()
        model.loss(*batch(), 0.1, languages=targets(model)).smoothed.backward()  # type: ignore[no-untyped-call]
        gradients.append([parameter.grad for parameter in model.parameters()])
    _recompute(model, False)
    model.zero_grad()
    model.eval()
    for (name, _), first, second in zip(model.named_parameters(), *gradients, strict=True):
        assert first is not None, f"{name} has no gradient"
        assert second is not None, f"{name} has no gradient in layers that are computed once more"
        same = torch.allclose(first, second, atol=TOLERANCE)
        assert same, f"{name} has another gradient in layers that are computed once more"


def _recompute(model: TranslationModel, recomputes: bool) -> None:
    for stack in model.stacks().values():
        stack.recomputes = recomputes


def small_model(settings: Settings, seed: int = 0) -> TranslationModel:
    """A model of d 16 with 3 + 3 layers unless the settings say otherwise; its parameters are far from their
    initial values, so that nothing is hidden behind a zero. With `languages` it has three."""
    merged: dict[str, object] = deepcopy(dict(SMALL))
    for key, value in settings.items():
        merged[key] = {"layers": 3, **value} if key in ("encoder", "decoder") else value  # type: ignore[dict-item]
    alone = merged.get("architecture") == "decoder_only"
    for side in ("decoder",) if alone else ("encoder", "decoder"):
        merged.setdefault(side, {"layers": 3})
    languages = LANGUAGES if "languages" in settings else 0
    return _model_of(from_mapping(ModelConfig, merged, "model", allow_unused=True), languages, seed)


def _model_of(config: ModelConfig, languages: int, seed: int) -> TranslationModel:
    torch.manual_seed(seed)
    model = build_model(config, SIZE, SIZE, languages=languages)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def check_model(settings: Settings, seed: int = 0) -> None:
    """Check gradients, padding, causality, steps and state selection of the model that settings describe.

    In a model of several languages each of the three sentences is translated into another one. It computes in
    float64: a stack without norms can make any rounding error of float32 large, and would hide a true one.
    """
    check_parts(small_model(settings, seed).double())


def check_parts(model: TranslationModel) -> None:
    """Check all that must hold for a model whose settings fit each other."""
    check_gradients(model)
    with torch.no_grad():
        check_padding(model)
        check_causality(model)
        check_steps(model)
        check_prompts(model)
        check_selection(model)
        if model.languages:
            check_languages(model)


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Three sentences of different lengths: source, input and output of the target."""
    source = torch.tensor([[4, 9, 5, 17, 2], [8, 6, 2, 0, 0], [11, 2, 0, 0, 0]])
    target_input = torch.tensor([[1, 5, 9, 12, 4, 7], [1, 6, 6, 3, 0, 0], [1, 19, 0, 0, 0, 0]])
    target_output = torch.tensor([[5, 9, 12, 4, 7, 2], [6, 6, 3, 2, 0, 0], [19, 2, 0, 0, 0, 0]])
    return source, target_input, target_output


def targets(model: TranslationModel) -> Tensor | None:
    """The target languages of the batch, `[3]`, where the model wants them."""
    return torch.tensor([2, 0, 1]) if model.languages else None


_ROUNDING = 1e-12


def check_gradients(model: TranslationModel) -> None:
    """Forward and backward are finite, and every parameter gets a gradient; every language's part of it."""
    loss = model.loss(*batch(), 0.1, languages=targets(model)).smoothed
    assert torch.isfinite(loss), f"the loss is {float(loss)}"
    model.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} has no gradient"
        assert torch.isfinite(parameter.grad).all(), f"the gradient of {name} is not finite"
    for name, table in language_tables(model).items():
        assert table.grad is not None
        reached = table.grad.flatten(1).abs().amax(1) > 0
        if name.endswith("bias") and float(table.grad.abs().max()) < _ROUNDING:
            continue  # what shifts all keys alike changes no attention: its gradient is rounding alone
        assert reached.all(), f"{name} has no gradient for languages {(~reached).nonzero().tolist()}"
    model.zero_grad()


def language_tables(model: TranslationModel) -> dict[str, nn.Parameter]:
    """Parameters of which each language has its own, `[L, ...]`."""
    kinds = (LanguageEmbedding, LanguageTransform, LanguageNorm, LanguageRMSNorm)
    tables = {
        f"{name}.{parameter_name}": parameter
        for name, module in model.named_modules()
        if isinstance(module, kinds)
        or (isinstance(module, GroupedLayerNorm | HeadNorm) and model.config.languages.norm)
        for parameter_name, parameter in module.named_parameters(recurse=False)
    }
    if model.config.languages.output_bias and model.head.bias is not None:
        tables["head.bias"] = model.head.bias
    for side in ("encoder", "decoder"):
        if model.config.languages.fusion in (side, "both"):
            names = (f"{side}.fusion.gates", f"{side}.fusion.weights")
            tables |= {name: table for name, table in model.named_parameters() if name in names}
    return tables


def check_padding(model: TranslationModel) -> None:
    """A sentence gets the same probabilities alone and padded in a batch, and padding scores 0."""
    source, target_input, target_output = batch()
    languages = targets(model)
    together = model.log_probs(source, target_input, languages=languages)
    for row in range(3):
        words = slice(0, int((source[row] != 0).sum()))
        tokens = slice(0, int((target_input[row] != 0).sum()))
        row_language = None if languages is None else languages[row : row + 1]
        alone = model.log_probs(
            source[row : row + 1, words], target_input[row : row + 1, tokens], languages=row_language
        )
        difference = (together[row, tokens] - alone[0]).abs().max().item()
        assert difference < TOLERANCE, f"padding changes row {row} by {difference:.1e}"
    score = model.score(source, target_input, target_output, languages=languages)
    expected = together.gather(2, target_output[..., None]).squeeze(2).masked_fill(target_output == 0, 0.0)
    # Scores are float32 in any model: those of a stack without norms can be thousands.
    assert torch.allclose(score, expected.float(), rtol=1e-5, atol=TOLERANCE), (
        "scores differ from log-probabilities"
    )


def check_causality(model: TranslationModel) -> None:
    """A later target token never changes an earlier output."""
    source, target_input, _ = batch()
    languages = None if not model.languages else torch.tensor([1])
    positions = range(1, target_input.size(1))
    rows = target_input[:1].repeat(1 + len(positions), 1)
    for changed in positions:
        rows[changed, changed] = 21
    if languages is not None:
        languages = languages.expand(len(rows))
    before, *after = model.log_probs(source[:1].expand(len(rows), -1), rows, languages=languages)
    for changed, output in zip(positions, after, strict=True):
        assert torch.allclose(before[:changed], output[:changed], atol=TOLERANCE), f"token {changed}"
        assert not torch.allclose(before[changed], output[changed], atol=1e-6), "a token had no effect"


def check_steps(model: TranslationModel) -> None:
    """Step by step gives what the whole pass gives."""
    source, target_input, _ = batch()
    whole = model.log_probs(source, target_input, languages=targets(model))
    state = model.start(source, languages=targets(model))
    for position in range(target_input.size(1)):
        log_probs, state = model.step(target_input[:, position], state)
        difference = (log_probs - whole[:, position]).abs().max().item()
        assert difference < TOLERANCE, f"step {position} deviates by {difference:.1e}"


def check_prompts(model: TranslationModel) -> None:
    """Reading prompts of different lengths, one of them empty, in one pass gives what steps give."""
    source, target_input, _ = batch()
    lengths, languages = torch.tensor([3, 1, 0]), targets(model)
    whole = model.log_probs(source, target_input, languages=languages)
    prompt = target_input[:, :3].masked_fill(torch.arange(3) >= lengths.unsqueeze(1), 0)
    state = model.start(source, languages=languages, prompt=prompt)
    for step in range(2):
        places = lengths + step
        log_probs, state = model.step(target_input[range(3), places], state)
        real = target_input[range(3), places] != 0
        difference = (log_probs - whole[range(3), places])[real].abs().max().item()
        assert difference < TOLERANCE, f"step {step} after prompts deviates by {difference:.1e}"


def check_selection(model: TranslationModel) -> None:
    """Expanding, reordering and dropping rows of a state equals doing so with the batch."""
    source, target_input, _ = batch()
    order = torch.tensor([2, 0])

    def advance(state: DecoderState, tokens: Tensor, width: int) -> DecoderState:
        for position in range(tokens.size(1)):
            _, state = model.step(tokens[:, position].repeat_interleave(width), state)
        return state

    languages = targets(model)
    state = advance(model.start(source, languages=languages).expand(2), target_input[:, :3], 2)
    state = state.reorder(torch.tensor([1, 0, 3, 3, 4, 5])).keep(order)
    rows = torch.tensor([7, 3, 5, 9])
    selected, _ = model.step(rows, state)
    chosen_languages = None if languages is None else languages[order]
    alone = advance(
        model.start(source[order], languages=chosen_languages).expand(2), target_input[order, :3], 2
    )
    expected, _ = model.step(rows, alone)
    difference = (selected - expected).abs().max().item()
    assert difference < TOLERANCE, f"selected states deviate by {difference:.1e}"


def check_languages(model: TranslationModel) -> None:
    """Another target language of one row changes that row and no other."""
    source, target_input, _ = batch()
    before = model.log_probs(source, target_input, languages=torch.tensor([2, 0, 1]))
    after = model.log_probs(source, target_input, languages=torch.tensor([2, 1, 1]))
    assert torch.allclose(before[::2], after[::2], atol=TOLERANCE)
    assert (before[1] - after[1]).abs().max() > 1e-4, "the language had no effect"
