"""The batched search against the same rules written for one sentence, with lists and no tensors."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepwire.data.vocabulary import BOS, EOS, PAD, UNK
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.search import Batch, generate


def next_log_probs(model, source, ids):
    state = model.start(torch.tensor([source]))
    for token in (BOS, *ids):
        log_probs, state = model.step(torch.tensor([token]), state)
    return log_probs[0].tolist()


def repeats(ids, n):
    ngrams = [ids[i : i + n] for i in range(len(ids) - n + 1)]
    return len(set(ngrams)) < len(ngrams)


def may_follow(ids, token, limit, config):
    if token in (PAD, BOS, UNK):
        return False
    if token == EOS:
        return len(ids) >= config.min_length or len(ids) >= limit
    if len(ids) >= limit:
        return False
    return not (config.no_repeat_ngram and repeats((*ids, token), config.no_repeat_ngram))


def plain_beam_search(model, source, limit, config):
    def divisor(length):
        base = (5 + length) / 6 if config.length_penalty_form == "gnmt" else length
        return base**config.length_penalty

    alive: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[tuple[float, tuple[int, ...]]] = []
    while alive:
        ranked = sorted(
            (
                (total + log_prob, rank, token, ids)
                for rank, (total, ids) in enumerate(alive)
                for token, log_prob in enumerate(next_log_probs(model, source, ids))
                if may_follow(ids, token, limit, config)
            ),
            key=lambda one: -one[0],
        )[: 2 * config.beam]
        for total, _, token, ids in ranked[: config.beam]:
            if token == EOS and (config.stop == "optimal" or len(finished) < config.beam):
                finished.append((total / divisor(len(ids) + 1), ids))
        alive = [(total, (*ids, token)) for total, _, token, ids in ranked if token != EOS][: config.beam]
        finished.sort(key=lambda one: -one[0])
        if config.stop == "first" and len(finished) >= config.beam:
            break
        if config.stop == "optimal" and alive and len(finished) >= config.n_best:
            reachable = [divisor(length) for length in range(len(alive[0][1]) + 1, limit + 2)]
            if alive[0][0] / max(reachable) <= finished[config.n_best - 1][0]:
                break
    return finished[: config.n_best]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    beam=st.integers(1, 5),
    stop=st.sampled_from(["first", "optimal"]),
    form=st.sampled_from(["gnmt", "average"]),
    exponent=st.sampled_from([-0.5, 0.0, 0.6, 1.0, 2.0]),
    ngram=st.sampled_from([0, 0, 1, 2]),
    min_length=st.integers(0, 3),
    data=st.data(),
)
def test_the_same_hypotheses_and_scores(toys, seed, beam, stop, form, exponent, ngram, min_length, data):
    config = DecodingConfig.model_validate(
        {
            "beam": beam,
            "n_best": data.draw(st.integers(1, beam)),
            "stop": stop,
            "length_penalty": exponent,
            "length_penalty_form": form,
            "no_repeat_ngram": ngram,
            "min_length": min_length,
        }
    )
    model = toys.Model(size=9, seed=seed, sharpness=1.0)
    sources = toys.random_sources(3, model.size, seed, longest=4)
    limits = [data.draw(st.integers(3, 6)) for _ in sources]
    results = generate(model, Batch(toys.padded(sources), limits), config)
    for source, limit, found in zip(sources, limits, results, strict=True):
        expected = plain_beam_search(model, source, limit, config)
        assert [one.ids for one in found] == [ids for _, ids in expected]
        assert [one.score for one in found] == pytest.approx([score for score, _ in expected], abs=1e-4)
        assert all(math.isfinite(one.log_probability) for one in found)
