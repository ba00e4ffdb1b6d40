"""Lexical shortlists: what is in them, and that a search with one is the same search."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepwire.data.languages import Direction, Languages
from deepwire.data.vocabulary import BOS, EOS, PAD, UNK
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.shortlist import (
    LanguageRows,
    Shortlist,
    ShortlistTable,
    batch_shortlist,
)
from deepwire.decoding.translation_io import Request
from deepwire.decoding.translator import Translator
from deepwire.errors import ModelError, UsageError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.ops.packed_linear import has_kernels, pack_linears

SIZE = 30
TEXTS = ["abc", "hgfe", "", "aa", "cdefgh", "b", "bcdz"]
SEARCHES = [
    {"beam": 4, "n_best": 3, "no_repeat_ngram": 2},
    {"beam": 1, "unknown_penalty": 0.5},
    {"n_best": 2, "sampling": {"top_k": 9, "seed": 3}},
]


def table(always=(), by_source=None):
    rows = [sorted((by_source or {}).get(number, ())) for number in range(SIZE)]
    offsets = np.cumsum([0, *map(len, rows)])
    ids = sorted({*range(UNK + 1), *always})
    return ShortlistTable(
        torch.tensor(ids),
        torch.from_numpy(offsets),
        torch.tensor([one for row in rows for one in row], dtype=torch.int64),
        SIZE,
    )


def small_model(bias=True, seed=1, entries=SIZE, languages=None, **more):
    torch.manual_seed(seed)
    stack = {"layers": 1, **more}
    config = {"d_model": 16, "heads": 2, "feed_forward": 24, "encoder": stack, "decoder": stack}
    config |= {"initialization": "lipschitz", "bias": {"output": bias}, "languages": languages or {}}
    model = build_model(ModelConfig.model_validate(config), entries, entries, languages=3).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)
    return model


def translator(toys, models, shortlist=None, languages=None, **settings):
    config = DecodingConfig.model_validate({"max_length_ratio": 1, "max_length_extra": 4, **settings})
    words = toys.vocabularies(SIZE)
    return Translator(models, words, config, shortlist=shortlist, languages=languages)


@given(
    always=st.sets(st.integers(0, SIZE - 1)),
    by_source=st.dictionaries(st.integers(0, SIZE - 1), st.sets(st.integers(0, SIZE - 1))),
    rows=st.lists(st.lists(st.integers(0, SIZE + 3), min_size=3, max_size=3), min_size=1, max_size=4),
    prefix=st.lists(st.integers(3, SIZE - 1), max_size=4),
)
@settings(max_examples=20, deadline=None)
def test_a_shortlist_is_what_it_should_be(always, by_source, rows, prefix):
    found = batch_shortlist(
        [LanguageRows(0, table(always, by_source), torch.tensor(rows), [prefix, []])]
    ).tokens.tolist()
    read = {number for row in rows for number in row}
    wanted = {PAD, BOS, EOS, UNK, *always, *prefix}.union(*(by_source.get(number, ()) for number in read))
    assert found == sorted(wanted)


@pytest.mark.parametrize("settings", SEARCHES, ids=["beam", "greedy", "sampling"])
@pytest.mark.parametrize(
    "more", [{}, {"fusion": {"type": "groups", "size": 1}, "layers": 2}], ids=["top", "groups"]
)
def test_with_all_subwords_the_search_is_the_same_bit_for_bit(toys, settings, more):
    models = [small_model(**more), small_model(seed=2, bias=False, **more)]
    if not more:
        for model in models:
            pack_linears(model, "none")
    everything = Shortlist({"": table(range(SIZE))}, "")
    prefixes = ["", "zz", "", "", "a", "", ""]
    requests = [Request(text, prefix) for text, prefix in zip(TEXTS, prefixes, strict=True)]
    plain = list(translator(toys, models, **settings).translations(requests))
    assert list(translator(toys, models, everything, **settings).translations(requests)) == plain
    assert len({one.text for one in plain}) > 3


@pytest.mark.parametrize(
    "settings", [*SEARCHES, {"beam": 12}], ids=["beam", "greedy", "sampling", "a beam above the shortlist"]
)
def test_only_the_shortlist_and_prefixes_come_out(toys, settings):
    few = Shortlist({"": table([4, 5], {number: {number} for number in range(4, SIZE)})}, "")
    tool = translator(toys, [small_model()], few, batch_tokens=1, **settings)
    prefixes = ["", "zz", "", "y", "", "", ""]
    requests = [Request(text, prefix) for text, prefix in zip(TEXTS, prefixes, strict=True)]
    for answer, request in zip(tool.translations(requests), requests, strict=True):
        for candidate in answer.candidates:
            assert set(candidate.text) <= {"a", "b", "⁇", *request.text, *request.prefix}
            assert candidate.text.startswith(request.prefix)
            assert candidate.log_probability <= 0
    pairs = [("abc", "zyx")]
    assert list(tool.score(pairs)) == list(translator(toys, [small_model()]).score(pairs)), "scores are full"


@pytest.mark.parametrize("packing", ["none", "fp16", "int8"])
@pytest.mark.parametrize("bias", [True, False])
def test_probabilities_are_those_of_the_chosen_rows(monkeypatch, packing, bias):
    if not has_kernels(packing):
        pytest.skip("no kernels on this CPU")
    monkeypatch.setattr("deepwire.ops.packed_linear._LARGE", 1)
    model, tokens = small_model(bias), torch.tensor([0, 1, 2, 3, 7, 19])
    pack_linears(model, packing)
    source, read = torch.tensor([[5, 6, EOS]]), torch.tensor([BOS])
    with torch.inference_mode():
        whole, _ = model.step(read, model.start(source))
        found, _ = model.select(tokens).step(read, model.start(source))
        again, _ = model.step(read, model.start(source))
    assert torch.allclose(found, whole[:, tokens].log_softmax(1), atol=1e-5)
    assert torch.equal(whole, again), "the model itself stays as it was"


SPOKEN = Languages(tuple(map(Direction.parse, ["en-de", "de-en", "en-fr", "fr-en"])))
INTO = ["fr", "de", "de", "en", "fr", "fr", "en"]


@pytest.mark.parametrize("settings", SEARCHES, ids=["beam", "greedy", "sampling"])
@pytest.mark.parametrize(
    "more", [{}, {"fusion": {"type": "groups", "size": 1}, "layers": 2}], ids=["top", "groups"]
)
def test_in_a_mixed_batch_each_line_has_the_subwords_of_its_language(toys, settings, more):
    """As it has in a batch of one language, with an ensemble of which one has biases of languages."""
    kinds = ({"bias": False}, {"seed": 2, "languages": {"output_bias": True}})
    models = [small_model(entries=SIZE + 3, **kind, **more) for kind in kinds]
    seen = {"de": range(4, 16), "en": range(12, 24), "fr": [*range(4, 9), *range(20, SIZE)]}
    words = Shortlist({name: table(own) for name, own in seen.items()}, "")
    tool = translator(toys, models, words, SPOKEN, **settings)
    prefixes = ["", "", "", "a", "zz", "", ""]
    rows = zip(TEXTS, prefixes, INTO, strict=True)
    requests = [Request(text, prefix, to=to) for text, prefix, to in rows]
    mixed = list(tool.translations(requests))
    for to in seen:
        asked = [request if into == to else "" for request, into in zip(requests, INTO, strict=True)]
        alone = tool.translations(asked, to=to)
        for into, answer, expected, prefix in zip(INTO, mixed, alone, prefixes, strict=True):
            for one, other in zip(answer.candidates, expected.candidates, strict=True) if into == to else ():
                assert one.tokens == other.tokens
                assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)
                own = {chr(ord("a") + number - 4) for number in seen[to]}
                assert set(one.text) <= {*own, "⁇", *"".join(prefixes)}
                assert one.text.startswith(prefix)
    few = Shortlist({"de": words.table("de")}, "")
    with pytest.raises(UsageError, match="no subwords of fr"):
        translator(toys, models, few, SPOKEN, **settings).translate(["ab"], to="fr")
    with pytest.raises(UsageError, match="does not know the language 'it'"):
        tool.translate(["ab"], to="it")


def test_what_is_stored_comes_back_and_damage_is_seen(tmp_path, toys):
    words = toys.vocabularies(SIZE)
    made = Shortlist({"": table([9], {5: {7, 8}})}, words.digest, {"": {"pairs": 3}})
    made.save(tmp_path / "list")
    found = Shortlist.load(tmp_path / "list", words)
    assert found.made_from == made.made_from
    stored = batch_shortlist([LanguageRows(0, found.table(""), torch.tensor([[5]]))])
    assert stored.tokens.tolist() == [0, 1, 2, 3, 7, 8, 9]
    with pytest.raises(ModelError, match="another vocabulary"):
        Shortlist.load(tmp_path / "list", toys.vocabularies(SIZE + 1))
    with pytest.raises(UsageError, match="no shortlist"):
        Shortlist.load(tmp_path / "nowhere", words)
    content = (tmp_path / "list" / "shortlist.safetensors").read_bytes()
    (tmp_path / "list" / "shortlist.safetensors").write_bytes(content[:-1] + b"\1")
    with pytest.raises(ModelError, match="damaged"):
        Shortlist.load(tmp_path / "list", words)
