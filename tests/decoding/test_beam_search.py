from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepwire.data.vocabulary import EOS, UNK
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.search import Batch, BeamSearch, Constraints, generate, run_search, top_k
from deepwire.errors import ModelError


def config(**settings):
    return DecodingConfig.model_validate(settings)


def penalised(log_probability, length, exponent, form):
    base = (5 + length) / 6 if form == "gnmt" else length
    return log_probability / base**exponent


@pytest.mark.parametrize("stop", ["first", "optimal"])
@pytest.mark.parametrize(
    ("form", "exponent"), [("gnmt", 0.6), ("average", 1.0), ("average", 0.0), ("gnmt", -0.7)]
)
def test_a_beam_as_wide_as_all_translations_finds_the_true_best(toys, form, exponent, stop):
    # V = 6: 2 ordinary symbols; up to 4 of them give 31 translations.
    for seed in range(3):
        model = toys.Model(size=6, seed=seed, sharpness=1.0)
        source = [4, 5, 4, EOS]
        scored = sorted(
            (
                (
                    penalised(toys.log_probability(model, source, ids), len(ids) + 1, exponent, form),
                    ids,
                )
                for ids in toys.every_translation([4, 5], 4)
            ),
            reverse=True,
        )
        wide = config(
            beam=64,
            n_best=5,
            length_penalty=exponent,
            length_penalty_form=form,
            stop=stop,
            min_length=0,
        )
        found = generate(model, Batch(toys.padded([source]), [4]), wide)[0]
        assert [hypothesis.ids for hypothesis in found] == [ids for _, ids in scored[:5]]
        assert [hypothesis.score for hypothesis in found] == pytest.approx(
            [score for score, _ in scored[:5]], abs=1e-5
        )


@pytest.mark.parametrize("form", ["gnmt", "average"])
def test_the_optimal_rule_returns_the_best_even_when_it_comes_late(toys, form):
    # With all symbols open (V = 6 -> beam 16 is complete for 2 symbols and 4 steps), `optimal` may stop early
    # and must still agree with a search that never stops early.
    for seed in range(15):
        model = toys.Model(size=6, seed=seed, sharpness=0.7)
        settings = {"length_penalty_form": form, "length_penalty": 1.0, "min_length": 0, "n_best": 1}
        batch = Batch(toys.padded([[4, EOS]]), [4])
        early = generate(model, batch, config(beam=16, stop="optimal", **settings))
        late = generate(model, batch, config(beam=64, stop="first", **settings))
        assert early[0][0].ids == late[0][0].ids


def test_no_rule_goes_on_once_nothing_better_can_come(toys):
    """Without a length penalty the best hypothesis is known as soon as it is finished and leads."""
    source = toys.padded([[4, EOS]])

    def steps(seed, **settings):
        model = toys.Model(seed=seed, sharpness=2.0)
        (found,) = generate(model, Batch(source, [40]), config(beam=4, length_penalty=0, **settings))
        return len(model.rows_seen), found[0].ids

    shorter = 0
    for seed in range(10):
        first, optimal = steps(seed, stop="first"), steps(seed, stop="optimal")
        assert first[1] == optimal[1]
        assert first[0] <= optimal[0]
        shorter += first[0] < steps(seed, stop="first", n_best=4)[0]
    assert shorter > 5


def test_scores_are_the_models_own(toys):
    model = toys.Model()
    sources = toys.random_sources(9, model.size)
    for source, found in zip(
        sources,
        generate(model, Batch(toys.padded(sources), [8] * 9), config(beam=5, n_best=5)),
        strict=True,
    ):
        for hypothesis in found:
            expected = toys.log_probability(model, source, hypothesis.ids)
            assert hypothesis.log_probability == pytest.approx(expected, abs=1e-5)
            length = len(hypothesis.ids) + 1
            assert hypothesis.score == pytest.approx(penalised(expected, length, 0.6, "gnmt"), abs=1e-5)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 1000),
    beam=st.integers(1, 6),
    stop=st.sampled_from(["first", "optimal"]),
    batch=st.sampled_from([1, 3, 7]),
    order=st.randoms(use_true_random=False),
)
def test_a_translation_does_not_depend_on_its_batch(toys, seed, beam, stop, batch, order):
    model = toys.Model(seed=seed, sharpness=1.5)
    sources = toys.random_sources(16, model.size, seed)
    settings_ = config(beam=beam, n_best=beam, stop=stop)

    def search(chosen):
        rows = [sources[i] for i in chosen]
        found = generate(model, Batch(toys.padded(rows), [len(row) + 2 for row in rows]), settings_)
        return dict(zip(chosen, found, strict=True))

    together = search(list(range(16)))
    shuffled = list(range(16))
    order.shuffle(shuffled)
    for start in range(0, 16, batch):
        for sentence, found in search(shuffled[start : start + batch]).items():
            assert found == together[sentence]


def test_beam_one_is_greedy(toys):
    for seed in range(10):
        model = toys.Model(seed=seed)
        sources = toys.random_sources(8, model.size, seed)
        batch, greedily = Batch(toys.padded(sources), [10] * 8), config(beam=1)
        searched = run_search(model, batch, BeamSearch(greedily, Constraints(greedily, batch)))
        greedy = generate(model, batch, greedily)
        assert [found[0].ids for found in searched] == [found[0].ids for found in greedy]
        for one, other in zip(searched, greedy, strict=True):
            assert one[0].score == pytest.approx(other[0].score, abs=1e-5)


@pytest.mark.parametrize("beam", [1, 4])
def test_the_shortest_and_longest_output_are_kept(toys, beam):
    model = toys.Model(sharpness=1.0)
    sources = toys.random_sources(10, model.size)
    results = generate(
        model, Batch(toys.padded(sources), range(3, 13)), config(beam=beam, n_best=beam, min_length=5)
    )
    for limit, found in zip(range(3, 13), results, strict=True):
        # Where both cannot be had, the longest output counts.
        assert all(min(5, limit) <= len(hypothesis.ids) <= limit for hypothesis in found)


def test_unknown_only_with_a_penalty(toys):
    model = toys.Model(size=6, sharpness=1.0)
    model.output[:, UNK] += 3 * model.output.abs().max()
    sources = toys.random_sources(10, 6)
    free = generate(model, Batch(toys.padded(sources), [6] * 10), config(beam=3, unknown_penalty=0.0))
    assert any(UNK in found[0].ids for found in free)
    costly = generate(model, Batch(toys.padded(sources), [6] * 10), config(beam=3, unknown_penalty=1e4))
    assert not any(UNK in found[0].ids for found in costly)
    for found in generate(model, Batch(toys.padded(sources), [6] * 10), config(beam=3)):
        assert UNK not in found[0].ids


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("beam", [1, 3])
def test_no_ngram_occurs_twice(toys, beam, n):
    model = toys.Model(size=7, sharpness=2.0)
    model.output[:, EOS] -= 5
    sources = toys.random_sources(12, 7)
    repeated = 0
    for setting in (0, n):
        batch = Batch(toys.padded(sources), [12] * 12)
        found = generate(model, batch, config(beam=beam, n_best=beam, no_repeat_ngram=setting))
        for hypothesis in (one for many in found for one in many):
            ngrams = [hypothesis.ids[i : i + n] for i in range(len(hypothesis.ids) - n + 1)]
            repeated += len(set(ngrams)) < len(ngrams)
        assert (repeated > 0) == (setting == 0)
        repeated = 0


@pytest.mark.parametrize("beam", [1, 4])
def test_a_prefix_begins_every_translation(toys, beam):
    model = toys.Model()
    sources = toys.random_sources(6, model.size)
    prefixes = [[], [5], [6, 7], [UNK, 4, 4], [8] * 9, [11]]
    results = generate(
        model,
        Batch(toys.padded(sources), [5] * 6, prefixes=prefixes),
        config(beam=beam, n_best=beam, no_repeat_ngram=2),
    )
    for source, prefix, found in zip(sources, prefixes, results, strict=True):
        for hypothesis in found:
            assert list(hypothesis.ids[: len(prefix)]) == prefix
            expected = toys.log_probability(model, source, hypothesis.ids)
            assert hypothesis.log_probability == pytest.approx(expected, abs=1e-4)
    alone = generate(model, Batch(toys.padded(sources[:1]), [5]), config(beam=beam, no_repeat_ngram=2))
    assert alone[0][0] == results[0][0]


@pytest.mark.parametrize("beam", [1, 4])
def test_a_damaged_model_is_reported(toys, beam):
    model = toys.NanModel()
    with pytest.raises(ModelError, match="NaN or infinite log-probabilities"):
        generate(model, Batch(toys.padded([[4, EOS]]), [5]), config(beam=beam))


@pytest.mark.parametrize("columns", [50, 3000])
def test_a_continuation_that_is_nan_comes_first(columns):
    """One damaged row of an embedding makes NaN of one hypothesis alone."""
    values = torch.randn(2, columns).log_softmax(1)
    values[1, 9] = torch.nan
    best, index = top_k(values, 3)
    assert best[1, 0].isnan()
    assert index[1, 0] == 9
    search = BeamSearch(config(beam=2), Constraints(config(beam=2), Batch(torch.ones(1, 1).long(), [5])))
    search.advance(values[:1].clone())
    search.advance(values.clone())
    assert search.read_ended() == [True]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("columns", [50, 3000])
def test_the_continuations_of_a_sentence_are_ranked_together(columns, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr("deepwire.decoding.search.library", lambda: None)
    values, sums = torch.randn(6, columns), torch.randn(2, 6)[:, :3]
    best, index = top_k(values, 5, sums)
    whole = (values.view(2, 3, columns) + sums.unsqueeze(2)).flatten(1)
    assert torch.equal(best, whole.topk(5, dim=1).values)
    assert torch.equal(whole.gather(1, index), best)


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 5), columns=st.integers(1, 5000), k=st.integers(1, 12), seed=st.integers(0, 99))
def test_chunks_give_the_same_as_topk(rows, columns, k, seed):
    values = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    k = min(k, columns)
    best, index = top_k(values, k)
    assert torch.equal(best, values.topk(k, dim=1).values)
    assert torch.equal(values.gather(1, index), best)
    assert all(len(set(row)) == k for row in index.tolist())
