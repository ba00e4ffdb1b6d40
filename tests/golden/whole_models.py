"""Checks of a whole model against a golden one, in the conventions of the two toolkits that made them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from golden_names import GRADIENT_TOLERANCE, OUTPUT_TOLERANCE, Case, Places, check_gradients, deviation
from torch import Tensor

from deepwire.model.translation_model import TranslationModel
from deepwire.ops.cross_entropy import SmoothingForm

EOS = 2


class Batch(NamedTuple):
    """A golden batch: ids `[B, S]` and `[B, T]`, padded on the right, and which targets are real `[B, T]`."""

    source: Tensor
    target: Tensor
    wanted: Tensor
    real: Tensor


@dataclass(frozen=True)
class GoldenModel(ABC):
    """A golden case, a model with its parameters, where they lie, and the target language of each row."""

    golden: Case
    model: TranslationModel
    places: Mapping[str, Places]
    languages: Tensor | None = None
    form: ClassVar[SmoothingForm]

    @abstractmethod
    def batch(self) -> Batch:
        """The case's batch."""

    @abstractmethod
    def log_probs(self) -> Tensor:
        """The case's log-probabilities, `[B, T, V]`."""

    @abstractmethod
    def losses(self) -> tuple[Tensor, Tensor | None]:
        """The case's smoothed loss and plain likelihood (None where it has none), summed over tokens."""

    def check(self) -> None:
        """Log-probabilities, both losses, every gradient, and the same one token at a time."""
        self.check_outputs()
        self.check_gradients(self.golden.grads, self.places)
        self.check_steps()
        self.check_steps(width=2)

    def check_outputs(self) -> None:
        """Log-probabilities and both losses; leaves the gradients of the smoothed loss in the model."""
        batch = self.batch()
        found = self.model.log_probs(batch.source, batch.target, languages=self.languages)
        assert deviation(found[batch.real], self.log_probs()[batch.real]) < OUTPUT_TOLERANCE
        loss = self.model.loss(
            batch.source, batch.target, batch.wanted, 0.1, self.form, languages=self.languages
        )
        assert loss.tokens.item() == batch.real.sum().item()
        smoothed, plain = self.losses()
        assert abs(loss.smoothed.item() - smoothed.item()) < 1e-4
        if plain is not None:
            assert abs(loss.nll.item() - plain.item()) < 1e-4
        loss.smoothed.backward()

    def check_gradients(self, gradients: Mapping[str, Tensor], places: Mapping[str, Places]) -> None:
        """The gradients that `check_outputs` left."""
        check_gradients(self.model, gradients, places, GRADIENT_TOLERANCE)

    def check_steps(self, width: int = 1) -> None:
        """One token at a time gives the golden log-probabilities, in every one of `width` rows a sentence."""
        batch, expected = self.batch(), self.log_probs()
        with torch.no_grad():
            state = self.model.start(batch.source, languages=self.languages).expand(width)
            for position in range(batch.target.size(1)):
                tokens = batch.target[:, position].repeat_interleave(width)
                found, state = self.model.step(tokens, state)
                here = batch.real[:, position]
                for row in range(width):
                    difference = deviation(found[row::width][here], expected[:, position][here])
                    assert difference < OUTPUT_TOLERANCE


class NeutronModel(GoldenModel):
    """A case made with Neutron."""

    form = "uniform_wrong"

    def batch(self) -> Batch:
        """Padding is 0."""
        wanted = self.golden["in/tgt_out"]
        return Batch(self.golden["in/src"], self.golden["in/tgt_in"], wanted, wanted != 0)

    def log_probs(self) -> Tensor:
        """As the file has them."""
        return self.golden["out/logp"]

    def losses(self) -> tuple[Tensor, None]:
        """The fast form of the smoothed loss."""
        return self.golden["out/loss_fast"], None

    def check(self) -> None:
        """Also the output of the encoder, where the file has it, and the searches."""
        super().check()
        if "mid/enc" in self.golden.tensors:
            source = self.batch().source
            with torch.no_grad():
                encoded = self.model.encode(source, languages=self.languages)[0][0]
            found, expected = encoded[source != 0], self.golden["mid/enc"][source != 0]
            assert deviation(found, expected) < OUTPUT_TOLERANCE
        self.check_searches()

    def check_gradients(self, gradients: Mapping[str, Tensor], places: Mapping[str, Places]) -> None:
        """Row 1 of causal tables of relative positions has no gradient there, as it is taken for padding."""
        expected = dict(gradients)
        for name in expected:
            if name.startswith("dec.") and name.endswith("rel_pemb.weight"):
                found = self.model.get_parameter(places[name][0].name).grad
                assert found is not None
                assert not expected[name][1].any()
                expected[name] = torch.cat((expected[name][:1], found[1:2], expected[name][2:]))
        super().check_gradients(expected, places)

    def check_searches(self) -> None:
        """Neutron's greedy translation, and the scores of its beams."""
        self.check_greedy()
        for name, penalty in (("beam4", 0.0), ("beam4_lp06", 0.6)):
            if f"decode/{name}_all" in self.golden.tensors:
                self.check_beam_scores(name, penalty)

    def check_greedy(self) -> None:
        """The most probable token at each step is the one that Neutron's greedy search wrote, up to its EOS.

        Where its step-by-step decoding fails, the file has the tokens of a whole pass for every step.
        """
        group = self.golden.group("decode/")
        written = group["greedy"] if "greedy" in group else group["greedy_recompute"]
        tokens = torch.ones(written.size(0), dtype=torch.long)
        unfinished = torch.ones(written.size(0)).bool()
        with torch.no_grad():
            state = self.model.start(self.batch().source, languages=self.languages)
            for position in range(written.size(1)):
                found, state = self.model.step(tokens, state)
                tokens = found.argmax(-1)
                assert torch.equal(tokens[unfinished], written[unfinished, position])
                unfinished &= tokens != EOS

    def check_beam_scores(self, name: str, penalty: float) -> None:
        """The log-probability of each hypothesis of Neutron's beam search, by its length penalty."""
        for beam in range(4):
            tokens = self.golden[f"decode/{name}_all"][:, beam]
            after_end = (tokens == EOS).cumsum(1) - (tokens == EOS).long() > 0
            tokens = tokens.masked_fill(after_end, 0)
            target = torch.cat((torch.ones(tokens.size(0), 1, dtype=torch.long), tokens[:, :-1]), 1)
            with torch.no_grad():
                source = self.batch().source
                score = self.model.score(source, target, tokens, languages=self.languages).sum(1)
            found = score / ((5 + (~after_end).sum(1)) / 6) ** penalty
            assert deviation(found, self.golden[f"decode/{name}_scores"][:, beam]) < 2e-5


class FairseqModel(GoldenModel):
    """A case made with fairseq or in its conventions."""

    form = "uniform"

    def check(self) -> None:
        """Also the output of the encoder, which the file has for the same sentences padded on the left."""
        super().check()
        if "act/enc_out" in self.golden.tensors:
            source, words = self.batch().source, self.golden["in/src_tokens"] != 1
            encoded = self.model.encode(source)[0][0]
            assert deviation(encoded[source != 1], self.golden["act/enc_out"][words]) < OUTPUT_TOLERANCE

    def batch(self) -> Batch:
        """Padding is 1; the source padded on the right, as here."""
        wanted = self.golden["in/target"]
        source, target = self.golden["in/src_tokens_rightpad"], self.golden["in/prev_output_tokens"]
        return Batch(source, target, wanted, wanted != 1)

    def log_probs(self) -> Tensor:
        """The mixture's, where the model has one."""
        mixture = self.golden.tensors.get("out/mixture_logprob")
        return self.golden["out/logits"].log_softmax(-1) if mixture is None else mixture

    def losses(self) -> tuple[Tensor, Tensor]:
        """Smoothed and plain."""
        return self.golden["out/loss_sum"], self.golden["out/nll_sum"]
