"""Whether an exported model computes what it was exported from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from deepwire.checkpoint.store import LoadedModel
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.translation_io import Translation
from deepwire.decoding.translator import Translator
from deepwire.errors import DataError, ModelError
from deepwire.evaluation.metric_choice import corpus_score
from deepwire.export.export_format import ExportedModel
from deepwire.model.decoder_state import DecoderState

EXACT, ROUNDED = 0.001, 0.1
"""Most that the log-probability of a subword may differ by on average, in nats: with weights as they are, and
with rounded ones."""

# Subwords of a translation; sources of more than half as many are left out of the comparison.
_LONGEST = 256
# Programs differ in what else counts as a subword of it.
_SURE = _LONGEST - 2


@dataclass(frozen=True)
class Parity:
    """What a comparison found.

    Attributes:
        lines: Lines compared.
        equal: Part of them whose greedy translations are the same, subword by subword.
        mean_difference: Mean of |difference| of the log-probability of a subword, in nats; both programs
            score our translations.
        largest_difference: The largest of them.
        bleu: BLEU of ours and of theirs, where there are references.
    """

    lines: int
    equal: float
    mean_difference: float
    largest_difference: float
    bleu: tuple[float, float] | None

    def to_json(self) -> dict[str, object]:
        """As it stands in `parity.json`."""
        return asdict(self)

    def __str__(self) -> str:
        bleu = "" if self.bleu is None else f"; BLEU {self.bleu[0]:.2f} here, {self.bleu[1]:.2f} there"
        return (
            f"{self.lines} lines: {self.equal:.1%} translated alike, log-probability of a subword differs by "
            f"{self.mean_difference:.2g} on average, {self.largest_difference:.2g} at most{bleu}"
        )


def compare(
    model: LoadedModel, exported: ExportedModel, lines: Sequence[str], references: Sequence[str] | None
) -> Parity:
    """Translate and score lines with both, greedily.

    Args:
        model: Ours, on the CPU in float32.
        exported: The same as the other program has read it.
        lines: Raw source text; empty and very long ones are left out.
        references: A translation of each line, for BLEU.

    Raises:
        DataError: No line is left.
        ModelError: Our translations are all empty, so that there is nothing to compare.
    """
    source, target = model.vocabularies.source, model.vocabularies.target
    encoded = [source.encode(line) for line in lines]
    kept = [number for number, ids in enumerate(encoded) if 0 < len(ids) <= _LONGEST // 2]
    if not kept:
        raise DataError("no line to compare translations of", "give text with sentences of usual length")
    translator = Translator(
        [model.model],
        model.vocabularies,
        DecodingConfig(beam=1, length_penalty=0, max_length_ratio=0, max_length_extra=_LONGEST),
        source_bos=model.metadata.get("source_bos") is True,
    )
    ours = list(translator.translations([lines[number] for number in kept]))
    segmented = [source.pieces(encoded[number]) for number in kept]
    theirs = exported.translate(segmented, _LONGEST)
    differences = _differences(translator, exported, segmented, ours)
    bleu = None
    if references is not None:
        wanted = [references[number] for number in kept]
        numbers = {piece: number for number, piece in enumerate(target.pieces(range(target.size)))}
        decoded = [target.decode(numbers[piece] for piece in pieces) for pieces in theirs]
        here, there = (
            corpus_score("bleu", each, wanted).value
            for each in ([translation.text for translation in ours], decoded)
        )
        bleu = here, there
    same = [
        list(translation.candidates[0].tokens)[:_SURE] == other[:_SURE]
        for translation, other in zip(ours, theirs, strict=True)
    ]
    return Parity(
        lines=len(kept),
        equal=fmean(same),
        mean_difference=fmean(differences),
        largest_difference=max(differences),
        bleu=bleu,
    )


def _differences(
    translator: Translator[DecoderState],
    exported: ExportedModel,
    sources: Sequence[Sequence[str]],
    ours: Sequence[Translation],
) -> list[float]:
    """|Difference| of every subword's log-probability in our translations, those of no subwords left out."""
    scored = list(translator.score([(translation.request.text, translation.text) for translation in ours]))
    pairs = [(source, score) for source, score in zip(sources, scored, strict=True) if score.flag is None]
    if not pairs:
        raise ModelError(
            f"the model's translations of all {len(ours)} lines are empty, so there is nothing to compare",
            "train it longer, or give other text; --unchecked exports it as it is",
        )
    there = exported.score([source for source, _ in pairs], [score.tokens for _, score in pairs])
    return [
        abs(our_log_prob - their_log_prob)
        for (_, score), log_probs in zip(pairs, there, strict=True)
        for our_log_prob, their_log_prob in zip(score.token_log_probabilities, log_probs, strict=True)
    ]
