"""Whether an exported language model computes what it was exported from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean

import torch

from deepwire.checkpoint.store import LoadedModel
from deepwire.convert.export_format import ExportedModel
from deepwire.convert.parity import BEAM, Parity, Unequal, unequal
from deepwire.convert.rounding import differences_of, rounding_beyond
from deepwire.data.text.pairs import is_blank
from deepwire.data.vocabulary import EOS
from deepwire.decoding.decoding_config import DecodingConfig, with_settings
from deepwire.decoding.language_model import LineBreaks
from deepwire.decoding.model_inputs import pad_batch
from deepwire.decoding.model_loading import stored_config
from deepwire.decoding.models import EnsembleMember, as_configured
from deepwire.decoding.search import Batch, generate
from deepwire.errors import DataError

# Subwords of a text that are scored, of a prompt, and behind it.
_SCORED, _PROMPT, _ADDED = 128, 16, 32
_ROWS = 16


def compare_texts(
    model: LoadedModel, exported: ExportedModel, lines: Sequence[str], largest: float | None = None
) -> Parity:
    """Score lines with both, and continue their beginnings greedily and by beam search.

    Args:
        model: Ours, on the CPU in float32.
        exported: The same as the other program has read it.
        lines: Raw text.
        largest: Measure our own rounding if a log-probability differs by more.

    Raises:
        DataError: No line has text.
    """
    vocabulary = model.vocabularies.target
    kept = [number for number, line in enumerate(lines) if not is_blank(line)]
    if not kept:
        raise DataError("no line to compare language models on", "give text")
    texts = [ids[:_SCORED] for ids in vocabulary.encode_lines([lines[number] for number in kept])]
    prompts = [ids[: min(_PROMPT, len(ids) // 2)] for ids in texts]
    stored = stored_config(model)
    greedy = DecodingConfig(beam=1, length_penalty=0, max_length_extra=_ADDED, groups=stored.groups)
    beam = exported.searchable(with_settings(stored, {"beam": BEAM, "n_best": 1, "sampling": None}))
    greedy_unequal, beam_unequal = (
        _unequal(model, kept, prompts, exported.continued(prompts, _ADDED, config), config)
        for config in (greedy, beam)
    )
    scored = _scores(model, texts)
    differences = differences_of(scored, exported.score_texts(texts))
    return Parity(
        lines=len(kept),
        equal=1 - len(greedy_unequal) / len(kept),
        beam_equal=1 - len(beam_unequal) / len(kept),
        mean_difference=fmean(differences),
        largest_difference=max(differences),
        bleu=None,
        unequal=greedy_unequal,
        beam_unequal=beam_unequal,
        rounding=rounding_beyond(largest, differences, model, scored, partial(_scores, texts=texts)),
    )


def _unequal(
    model: LoadedModel,
    kept: Sequence[int],
    prompts: Sequence[Sequence[int]],
    theirs: Sequence[Sequence[int]],
    config: DecodingConfig,
) -> tuple[Unequal, ...]:
    """The lines whose beginnings both continue differently."""
    ours = [
        each
        for start in range(0, len(prompts), _ROWS)
        for each in _continued(model, prompts[start : start + _ROWS], config)
    ]
    differing = []
    for number, prompt, our_ids, their_ids in zip(kept, prompts, ours, theirs, strict=True):
        if list(our_ids) == list(their_ids):
            continue
        mine, others = (_scores(model, [[*prompt, *ids]])[0][len(prompt) :] for ids in (our_ids, their_ids))
        pieces = model.vocabularies.target.pieces
        differing.append(unequal(number + 1, (pieces(our_ids), pieces(their_ids)), (mine, others), config))
    return tuple(differing)


def _continued(
    model: LoadedModel, prompts: Sequence[Sequence[int]], config: DecodingConfig
) -> list[list[int]]:
    """Continuations of each prompt by our search."""
    count, read = len(prompts), [[EOS, *ids] for ids in prompts]
    source = torch.zeros(count, 0, dtype=torch.int64)
    batch = Batch(source, [_ADDED] * count, range(count), prompts=read, context_ids=prompts)
    searched = LineBreaks(_models(model)[0], model.vocabularies.target.size)
    hypotheses = generate(searched, batch, config)
    return [list(each[0].ids) for each in hypotheses]


@torch.inference_mode()
def _scores(model: LoadedModel, texts: Sequence[Sequence[int]]) -> list[list[float]]:
    """Our log-probability of each subword of each text and of its end."""
    scores = []
    for ids in texts:
        read, following = (pad_batch([each], torch.device("cpu")) for each in ([EOS, *ids], [*ids, EOS]))
        scores.append(_models(model)[0].score(read.new_zeros(1, 0), read, following)[0].tolist())
    return scores


def _models(model: LoadedModel) -> Sequence[EnsembleMember]:
    """The one that it is translated with."""
    return as_configured([model.model], stored_config(model))
