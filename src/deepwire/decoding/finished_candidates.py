"""From hypotheses to what a user gets: texts with their placeholders, subwords, and alignments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from deepwire.data.subwords.text_tokens import TextTokens
from deepwire.data.text.pairs import plain
from deepwire.data.vocabulary import BOS, Vocabularies
from deepwire.decoding.attention_alignment import AlignedPair, AttentionAligner
from deepwire.decoding.hypotheses import Hypothesis
from deepwire.decoding.lexical_constraints import LineConstraints
from deepwire.decoding.sentence_search import SearchInputs
from deepwire.decoding.text_alignment import TextAlignment
from deepwire.decoding.translation_io import Candidate, Request

_EMPTY = Candidate("", (), 0.0, 0.0)


@dataclass(frozen=True)
class CandidateBuilder:
    """Makes candidates of hypotheses: texts with their placeholders, subwords, and alignments.

    Args:
        vocabularies: Those of the model.
        aligner: Aligns them; None: they are not aligned.
    """

    vocabularies: Vocabularies
    aligner: AttentionAligner | None = None

    def candidates(
        self,
        requests: Sequence[Request],
        sentences: SearchInputs,
        hypotheses_of: Mapping[int, Sequence[Hypothesis]],
        constraints: Sequence[LineConstraints] | None,
        copied: Sequence[bool],
    ) -> list[tuple[Candidate, ...]]:
        """Of each line, best first; an empty line, and one without any hypothesis, has one with score 0.

        Args:
            requests: What was asked for.
            sentences: The lines as the model reads them.
            hypotheses_of: Hypotheses of some of them.
            constraints: What translations must have; None where nothing is.
            copied: Lines that are their own translation.
        """
        results: list[tuple[Candidate, ...]] = []
        for row, request in enumerate(requests):
            line = None if constraints is None else constraints[row]
            if copied[row]:
                results.append((Candidate(plain(request.text), (), 0.0, 0.0),))
            elif hypotheses_of.get(row):
                results.append(tuple(self._candidate(hypothesis, line) for hypothesis in hypotheses_of[row]))
            else:
                results.append((_EMPTY if line is None else Candidate(line.finished(""), (), 0.0, 0.0),))
        if self.aligner is None:
            return results
        seen = {row: hypotheses_of[row] for row in hypotheses_of if hypotheses_of[row] and not copied[row]}
        return self._aligned(self.aligner, requests, sentences, seen, constraints, results)

    def _candidate(self, hypothesis: Hypothesis, line: LineConstraints | None) -> Candidate:
        target = self.vocabularies.target
        # A line must stay one line, even if the vocabulary can spell a line break byte by byte.
        text = plain(target.decode(hypothesis.ids))
        text = text if line is None else line.finished(text)
        tokens = tuple(target.pieces(hypothesis.ids))
        return Candidate(text, tokens, hypothesis.log_probability, hypothesis.score)

    def _aligned(
        self,
        aligner: AttentionAligner,
        requests: Sequence[Request],
        sentences: SearchInputs,
        hypotheses_of: Mapping[int, Sequence[Hypothesis]],
        constraints: Sequence[LineConstraints] | None,
        results: Sequence[tuple[Candidate, ...]],
    ) -> list[tuple[Candidate, ...]]:
        units = aligner.config.units
        aligned = [
            tuple(
                replace(candidate, alignment=_of_words(request.text, candidate.text, units))
                for candidate in candidates
            )
            for request, candidates in zip(requests, results, strict=True)
        ]
        pairs = [
            self._pair(sentences, row, hypothesis)
            for row, hypotheses in hypotheses_of.items()
            for hypothesis in hypotheses
        ]
        links = iter(zip(pairs, aligner.links(pairs), strict=True))
        vocabularies = self.vocabularies
        for row, hypotheses in hypotheses_of.items():
            values = {} if constraints is None else constraints[row].values
            text, source = plain(requests[row].text), None
            better = []
            for hypothesis, candidate in zip(hypotheses, results[row], strict=True):
                pair, pair_links = next(links)
                if source is None:
                    ids = pair.source[pair.first : -1]
                    source = TextTokens.of(vocabularies.source, ids, text, values)
                target = TextTokens.of(vocabularies.target, hypothesis.ids, candidate.text, values)
                alignment = TextAlignment(source, target, tuple(sorted(pair_links)), units)
                better.append(replace(candidate, alignment=alignment))
            aligned[row] = tuple(better)
        return aligned

    @staticmethod
    def _pair(sentences: SearchInputs, row: int, hypothesis: Hypothesis) -> AlignedPair:
        source, language = sentences.sources[row], sentences.languages[row]
        tagged = language is not None and language.source_tag is not None
        first = (source[0] == BOS) + tagged + (sentences.fronts[row] if sentences.fronts else 0)
        context = sentences.prompts[row] if sentences.prompts else ()
        return AlignedPair(source, first, hypothesis.ids, language, context)


def _of_words(source: str, translation: str, units: str) -> TextAlignment:
    """Of a text that no model saw: it is its own translation, or words of it stand in that."""
    copied = TextAlignment.copied(plain(source), "subwords" if units == "subwords" else "words")
    if source == translation:
        return copied
    return replace(copied, target=TextTokens(translation, (), ()), subword_links=())
