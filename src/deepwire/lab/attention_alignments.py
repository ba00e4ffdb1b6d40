"""Which head of the cross-attention aligns best: the alignment error rate of each, under forced decoding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from deepwire.data.subwords.text_tokens import TextTokens
from deepwire.decoding.alignment import STEPS, Attention, Step, attention_to_source, best_links
from deepwire.decoding.model_inputs import batches_by_length
from deepwire.decoding.text_alignment import TextAlignment
from deepwire.errors import DataError
from deepwire.evaluation.alignment_error import AlignmentCounts, GoldAlignment, read_gold
from deepwire.lab.finding import Cell, Finding, Table, provenance
from deepwire.lab.subject import AnalysedModel, ParallelText, aligned_pairs, open_model

_BATCH_TOKENS = 1024


def analyse_alignment(
    model: str,
    pairs: ParallelText,
    gold: Path,
    *,
    first: int = 0,
    sentences: int | None = None,
    to: str = "",
    device: str = "cpu",
) -> Finding:
    """The alignment error rate of each layer and head, the best one named.

    Args:
        model: A MODEL name.
        pairs: The whole text of the `gold` file; only `sentences` of its pairs are looked at.
        gold, first: See `deepwire.evaluation.alignment_error.read_gold`.
        to: The language of the references, for a model of several directions.

    Raises:
        DataError: The file does not fit the text, or no pair has words on both sides.
        ModelError: There is no such model, or it has no attention to a source.
        UsageError: The language or the device is not there.
    """
    sides = pairs.source.lines, pairs.reference.lines
    words = [(len(source.split()), len(target.split())) for source, target in zip(*sides, strict=True)]
    known, pairs = read_gold(gold, words, first)[:sentences], pairs.beginning(sentences)
    if not any(each.possible for each in known):
        raise DataError(f"{gold}: has no links")
    subject = open_model(model, device)
    counts = _alignment_counts(subject, pairs, known, to=to)
    # Of equals single heads come first, in the table as in the note.
    ranked = sorted(counts, key=lambda choice: (counts[choice].error_rate, choice.head is None))
    best = ranked[0]
    head = "the mean of all heads" if best.head is None else f"head {best.head}"
    return Finding(
        analysis="alignment",
        title=f"Alignments of {model}",
        measured="Alignment error rate (Och and Ney 2003), AER = 1 - (|A and S| + |A and P|) / (|A| + |S|): "
        "A are the links of words that an attention gives to the reference translations, S the sure and P "
        "the possible gold links. Each subword of the target is linked to the subword of the source with the "
        "largest weight, in the step that reads it or in the one that writes it.",
        tables=[
            Table(
                title="The best",
                columns=["layer", "head", "step", "AER [%] .1", "precision [%] .1", "recall [%] .1"],
                rows=[
                    (
                        choice.layer,
                        "mean" if choice.head is None else str(choice.head),
                        choice.step,
                        100 * counts[choice].error_rate,
                        100 * counts[choice].precision,
                        100 * counts[choice].recall,
                    )
                    for choice in ranked[:5]
                ],
            ),
            *(_table(counts, step) for step in STEPS),
        ],
        notes=[
            f"Best: layer {best.layer}, {head}, in the step that {best.step}: AER "
            f"{100 * counts[best].error_rate:.1f} %. Choose it by: deepwire translate {model} {best.options}"
        ],
        provenance=provenance(
            [subject.source],
            [pairs.description, f"{gold}, {sum(len(each.sure) for each in known):,} sure links"],
        ),
    )


def _alignment_counts(
    subject: AnalysedModel, pairs: ParallelText, gold: Sequence[GoldAlignment], *, to: str = ""
) -> dict[Attention, AlignmentCounts]:
    """Agreement of each attention with the gold alignments of a text."""
    by_row = aligned_pairs(subject, pairs, to=to)
    rows, aligned, vocabularies = list(by_row), list(by_row.values()), subject.loaded.vocabularies
    texts = [
        (
            TextTokens.of(vocabularies.source, each.source[each.first : -1], pairs.source.lines[row]),
            TextTokens.of(vocabularies.target, each.target, pairs.reference.lines[row]),
        )
        for row, each in by_row.items()
    ]
    device = next(subject.loaded.model.parameters()).device
    counts: dict[Attention, AlignmentCounts] = {}
    # A pair that the model does not read has no links.
    missing = AlignmentCounts(sure=sum(len(gold[row].sure) for row in set(range(len(gold))) - by_row.keys()))
    lengths = [max(len(pair.source), len(pair.read)) for pair in aligned]
    for batch in batches_by_length(lengths, _BATCH_TOKENS):
        batch_pairs = [aligned[place] for place in batch]
        for layer, weights in attention_to_source(subject.loaded.model, batch_pairs, None, device).items():
            heads: list[tuple[int | None, Tensor]] = [(None, weights.mean(1))]
            heads += [(head + 1, weights[:, head]) for head in range(weights.size(1))]
            for head, chosen in heads:
                for step in STEPS:
                    links = best_links(chosen, batch_pairs, step == "reads")
                    choice = Attention(layer + 1, head, step)
                    total = counts.get(choice, missing)
                    for place, pair_links in zip(batch, links, strict=True):
                        alignment = TextAlignment(*texts[place], tuple(sorted(pair_links)))
                        total += AlignmentCounts.of(alignment.links, gold[rows[place]])
                    counts[choice] = total
    return counts


def _table(counts: dict[Attention, AlignmentCounts], step: Step) -> Table:
    """A row a layer, a column a head; layers may have different numbers of heads."""
    of_step = {choice: each for choice, each in counts.items() if choice.step == step}
    heads = sorted({choice.head for choice in of_step if choice.head is not None})
    rows: list[tuple[Cell, ...]] = []
    for layer in sorted({choice.layer for choice in of_step}):
        row_counts = [of_step.get(Attention(layer, head, step)) for head in (None, *heads)]
        rows.append((layer, *(None if each is None else 100 * each.error_rate for each in row_counts)))
    names = ["mean of heads", *(f"head {head}" for head in heads)]
    return Table(
        title=f"AER in the step that {step} a subword",
        columns=["layer", *(f"{name} [%] .1" for name in names)],
        rows=rows,
    )
