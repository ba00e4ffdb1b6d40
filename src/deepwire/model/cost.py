"""Operations and bytes of training and decoding, counted while a built model runs without values.

The model is built on the meta device, where tensors have shapes and no memory, and every operation that it
asks for is looked at. So nothing here knows what a mixer or a connection is made of.

Operations are those of matrix products, a multiplication and an addition counted as two; all other operations
together are below a hundredth of them, and what they cost is memory traffic. Numbers are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.meta_init import outline
from deepwire.model.translation_model import TranslationModel

if TYPE_CHECKING:
    from torch._ops import OpOverload, OpOverloadPacket

_aten = torch.ops.aten
# Any token that is not padding.
_WORD = 4
# Adam reads gradient, weight and two moments and writes all but the gradient; forward and backward pass read
# the weight, and the backward pass writes the gradient.
_PASSES_OF_AN_UPDATE = 10


@dataclass(frozen=True)
class TrainingCost:
    """Cost of one target token with its share of the source, padding left out.

    Attributes:
        layers: Operations of embeddings and both stacks, forward and backward.
        output: Operations of the output projection, forward and backward.
        moved: Bytes that the operations of `layers` read and write if each goes to memory on its own.
        kept: Bytes that they keep from the forward pass for the backward pass.
        weights: Bytes of all parameters.
    """

    layers: float
    output: float
    moved: float
    kept: float
    weights: int

    @property
    def operations(self) -> float:
        """Operations of layers and output projection."""
        return self.layers + self.output

    def least_bytes(self, update_tokens: int) -> float:
        """Bytes that must go to memory and back in any case, with so many target tokens an update.

        What is kept is written and read; weights, gradients and the moments of Adam pass once an update.
        """
        return 2 * self.kept + _PASSES_OF_AN_UPDATE * self.weights / update_tokens


@dataclass(frozen=True)
class StepCost:
    """Cost of one decoding step of all hypotheses.

    Attributes:
        operations: Of all hypotheses together.
        read: Bytes of weights, of the encoder's memory and of states that it needs, each once.
        written: Bytes of the log-probabilities.
    """

    operations: int
    read: int
    written: int


def meta_model(
    config: ModelConfig, source_vocabulary: int, target_vocabulary: int, languages: int = 0
) -> TranslationModel:
    """A model on the meta device: all its shapes, and no memory kept."""
    build = partial(build_model, config, source_vocabulary, target_vocabulary, languages=languages)
    model = outline(config, build)
    values = (*model.parameters(), *model.buffers())
    if all(value.is_meta for value in values):
        return model
    # A copy, as moving the model itself would give each user of a shared parameter one of its own.
    moved = {id(value): value.to("meta") for value in model.buffers()}
    moved |= {id(value): nn.Parameter(value.detach().to("meta")) for value in model.parameters()}
    return deepcopy(model, moved)


def training_cost(
    model: TranslationModel, *, source_length: int, target_length: int, sentences: int = 1
) -> TrainingCost:
    """Cost of training on sentences of equal length, each with its end of sentence.

    Args:
        model: From `meta_model`.
        source_length: Source tokens of a sentence.
        target_length: Target tokens of a sentence.
        sentences: Sentences of a batch; more than a few change nothing that is counted for each token but
            spread out what is moved once a batch.
    """
    owned = {_storage(parameter) for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if _storage(tensor) not in owned:
            kept[_storage(tensor)] = max(kept.get(_storage(tensor), 0), _span(tensor))
        return tensor

    model.train()
    forward, head, backward = OperationCounter(), OperationCounter(), OperationCounter()
    with forward, saved_tensors_hooks(keep, lambda tensor: tensor):
        words = _words(sentences, source_length), _words(sentences, target_length)
        results = model.decode(*words, languages=_language(model))
    # The loss of the package never holds all logits, and looks at values to leave padding out, of which there
    # are none here; the products are the same.
    ends = [result.detach().requires_grad_() for result in results]
    with head:
        torch.autograd.backward(model.head.log_probs(ends, _language(model)).sum())
    with backward:
        torch.autograd.backward(results, [end.grad for end in ends])
    model.zero_grad()
    tokens = sentences * target_length
    return TrainingCost(
        layers=(forward.operations + backward.operations) / tokens,
        output=head.operations / tokens,
        moved=(forward.moved + backward.moved) / tokens,
        kept=sum(kept.values()) / tokens,
        weights=parameter_bytes(model),
    )


def encoding_operations(model: TranslationModel, source_length: int) -> int:
    """Operations before the first step of decoding one sentence: encoder, keys and values of all layers."""
    model.eval()
    counter = OperationCounter()
    with torch.no_grad(), counter:
        model.start(_words(1, source_length), languages=_language(model))
    return counter.operations


def step_cost(
    model: TranslationModel, *, sentences: int, beam: int, source_length: int, position: int
) -> StepCost:
    """Cost of the step that reads token number `position` (from 0) of every hypothesis.

    Args:
        model: From `meta_model`.
        sentences: Sentences decoded together.
        beam: Hypotheses of each.
        source_length: Source tokens of a sentence.
        position: How many tokens have been read before.
    """
    model.eval()
    tokens = torch.full((sentences * beam,), _WORD, device="meta")
    with torch.no_grad():
        languages = _language(model)
        state = model.start(_words(sentences, source_length), languages=languages).expand(beam)
        for _ in range(position):
            _, state = model.step(tokens, state)
        there = [*model.parameters(), *_tensors(state)]
        counter = OperationCounter(there)
        with counter:
            log_probs, _ = model.step(tokens, state)
    return StepCost(counter.operations, sum(counter.read.values()), _span(log_probs))


def parameter_bytes(model: TranslationModel) -> int:
    """Bytes of all parameters, shared ones once."""
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def _words(sentences: int, length: int) -> Tensor:
    return torch.full((sentences, length), _WORD, device="meta")


def _language(model: TranslationModel) -> Tensor | None:
    """One target language for all sentences, where the model wants it."""
    return torch.tensor([0], device="meta") if model.languages else None


def _products() -> Mapping[OpOverloadPacket, Callable[..., int]]:
    """How many operations each product has; torch's own table lacks products in place and with vectors."""

    def with_vector(matrix: Tensor, *_: object, **__: object) -> int:
        return 2 * matrix.numel()

    def added(_: Tensor, matrix: Tensor, *__: object, **___: object) -> int:
        return 2 * matrix.numel()

    def solved(triangle: Tensor, wanted: Tensor, *_: object, **__: object) -> int:
        return triangle.size(-1) * wanted.numel()

    return {
        **flop_registry,
        _aten.addmm_: flop_registry[_aten.addmm],
        _aten.baddbmm_: flop_registry[_aten.baddbmm],
        _aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[
            _aten._scaled_dot_product_flash_attention
        ],
        _aten._scaled_dot_product_flash_attention_for_cpu_backward: flop_registry[
            _aten._scaled_dot_product_flash_attention_backward
        ],
        _aten.mv: with_vector,
        _aten.dot: with_vector,
        _aten.addmv: added,
        _aten.addmv_: added,
        _aten.linalg_solve_triangular: solved,
    }


_PRODUCTS = _products()
# These take some of the rows of their first argument.
_LOOKUPS = frozenset({_aten.embedding, _aten.index_select, _aten.gather, _aten.index})
# These make tensors without touching memory; `_unsafe_view` and others do not say that they are views.
_FREE = frozenset({_aten.empty, _aten.empty_like, _aten.new_empty, _aten.empty_strided, _aten._unsafe_view})


class OperationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what runs below it, the backward pass included.

    Args:
        there: Tensors of which `read` shall say how much was read, by storage and place in it.

    Attributes:
        operations: Of matrix products.
        moved: Bytes in and out of every operation that is not a view.
        names: Every operation that was not counted as a product.
    """

    def __init__(self, there: list[Tensor] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: int = 0
        self.moved: int = 0
        self._there = {_storage(tensor) for tensor in there or ()}
        self.read: dict[tuple[int, int], int] = {}
        self.names: set[str] = set()

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run and count one operation."""
        kwargs = kwargs or {}
        kind = func.overloadpacket
        out = func(*args, **kwargs)
        if kind in _PRODUCTS:
            self.operations += _PRODUCTS[kind](*args, **kwargs, out_val=out)
        else:
            self.names.add(str(kind))
        if kind in _FREE or _is_view(func):
            return out
        written = list(_tensors(out))
        taken = [
            (tensor, _span(written[0]) if kind in _LOOKUPS and not index else _span(tensor))
            for index, tensor in enumerate(_tensors((args, dict(kwargs))))
        ]
        self.moved += sum(map(_span, written)) + sum(size for _, size in taken)
        for tensor, size in taken:
            if _storage(tensor) in self._there and not _is_written(func, tensor, args):
                # Keys and values may lie in one block of memory.
                where = (_storage(tensor), int(tensor.storage_offset()))
                self.read[where] = max(self.read.get(where, 0), size)
        return out


def _is_view(func: OpOverload) -> bool:
    """Whether all that it does is to look at its argument in another shape."""
    returns = func._schema.returns
    return bool(returns) and all(
        each.alias_info is not None and not each.alias_info.is_write for each in returns
    )


def _is_written(func: OpOverload, tensor: Tensor, args: tuple[object, ...]) -> bool:
    """Whether the operation replaces the tensor, as copying to it does."""
    return func.overloadpacket in (_aten.copy_, _aten.fill_, _aten.zero_) and args[0] is tensor


def _span(tensor: Tensor) -> int:
    """Bytes of what the tensor looks at; what is repeated by a stride of zero counts once."""
    count: int = tensor.element_size()
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride or not size else 1
    return count


def _storage(tensor: Tensor) -> int:
    """A key that tells memory blocks apart where there are no addresses."""
    address: int = tensor.untyped_storage()._cdata
    return address


def _tensors(value: object) -> Iterator[Tensor]:
    """All tensors in nested tuples, lists, mappings, dataclasses and contexts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, Mapping):
        yield from _tensors(tuple(value.values()))
    elif isinstance(value, Context):
        yield from _tensors(vars(value))
    elif is_dataclass(value):
        for part in fields(value):
            yield from _tensors(getattr(value, part.name))
