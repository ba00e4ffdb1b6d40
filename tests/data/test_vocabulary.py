from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from real_text import lines

from deepwire.data.subwords import sentencepiece
from deepwire.data.subwords.sentencepiece import lookalikes
from deepwire.data.text.pairs import Pair, Texts
from deepwire.data.vocabulary import BOS, EOS, PAD, UNK, Vocabularies, Vocabulary
from deepwire.data.vocabulary_config import VocabularyConfig
from deepwire.errors import DataError, ModelError


def pairs(count: int = 2000) -> list[Pair]:
    sides = zip(lines("de", count), lines("en", count), strict=True)
    return [Pair(line, source, target, 0) for line, (source, target) in enumerate(sides, 1)]


def learn(config: object, text: list[Pair] | None = None) -> Vocabularies:
    return Vocabularies.learn_from_blocks(
        TypeAdapter(VocabularyConfig).validate_python(config), [text or pairs()]
    )


SMALL_TEXT = [Pair(1, "ein Hund rennt im Park", "a dog runs in the park", 0)] * 3


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def model(request: pytest.FixtureRequest) -> Vocabularies:
    return learn({"type": request.param, "size": 1000})


def one_space(text: str) -> str:
    return " ".join(part for part in text.split(" ") if part)


_READ = lookalikes(set[str]().union(*(pair.source + pair.target for pair in pairs())))
_FORM = re.compile("|".join(sorted(map(re.escape, _READ), key=len, reverse=True)))


def usual(text: str) -> str:
    """With the characters of the training text for those that look like them."""
    return one_space(_FORM.sub(lambda form: _READ[form[0]], text))


@settings(max_examples=60)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_unicode_text_comes_back(text: str) -> None:
    for vocabulary in any_models():
        ids = vocabulary.encode(text)
        assert not {PAD, BOS, EOS, UNK} & set(ids)
        assert vocabulary.decode(ids) == usual(text)
        sampled = vocabulary.sample(text, 7, 0.3)
        assert not {PAD, BOS, EOS, UNK} & set(sampled)
        assert vocabulary.decode(sampled) == usual(text)


_MODELS: list[Vocabularies] = []


def any_models() -> list:
    if not _MODELS:
        _MODELS.extend(learn({"type": kind, "size": 500}) for kind in ("bpe", "unigram"))
    return [model.source for model in _MODELS]


def test_half_a_surrogate_pair_becomes_a_replacement_character(model: Vocabularies) -> None:
    assert model.source.decode(model.source.encode("a\ud800b")) == "a\ufffdb"
    assert model.source.encode_lines(["a\ud800b", "a"]) == [
        model.source.encode("a\ufffdb"),
        model.source.encode("a"),
    ]


def same_pieces(vocabulary: Vocabulary, texts: list[str], alone: list[list[int]]) -> bool:
    pieces, lengths = vocabulary.segment(Texts.of_strings(texts))
    same = pieces.tolist() == [piece for ids in alone for piece in ids]
    return same and lengths.tolist() == list(map(len, alone))


ODD = "  ab\u00a0\u3000\t¨\u0301ﬁＡ▁\U000f25810日🙂\u200b"
_NORMAL: list[Vocabulary] = []


@settings(max_examples=60)
@given(st.lists(st.text(st.sampled_from(ODD) | st.characters(codec="utf-8", exclude_characters="\n"))))
def test_words_cut_once_are_cut_as_in_their_text(texts: list[str]) -> None:
    if not _NORMAL:
        for normalization in ("identity", "nmt_nfkc", "nfkc_cf"):
            settings = {"byte_fallback": False, "character_coverage": 0.99, "normalization": normalization}
            _NORMAL.append(learn({"type": "bpe", "size": 300, **settings}, pairs(300)).source)
    for vocabulary in _NORMAL:
        assert same_pieces(vocabulary, texts, vocabulary.encode_lines(texts))


def test_words_are_cut_the_same_when_many_were_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentencepiece, "_MAX_PIECES", 300)
    vocabulary, text = learn({"type": "bpe", "size": 600}).source, lines("de", 2000)
    for start in range(0, 2000, 20):
        part = ["", *text[start : start + 20], *text[:5], "wort" * 300]
        assert same_pieces(vocabulary, part, vocabulary.encode_lines(part))


def test_words_that_are_made_to_have_equal_hashes_are_told_apart(model: Vocabularies) -> None:
    twins = ["the", "x0001118M:|31&tQ"]  # by undoing the steps of the hash
    assert len(np.unique(Texts.of_strings(twins).hashes())) == 1
    assert same_pieces(model.source, twins, model.source.encode_lines(twins))


def test_decode_stops_at_eos_and_skips_pad_and_bos(model: Vocabularies) -> None:
    ids = model.source.encode("ein Hund")
    assert model.source.decode([BOS, PAD, *ids, EOS, *ids]) == "ein Hund"
    assert model.source.pieces([BOS, *ids, EOS])[0] == "<s>"
    assert model.source.pieces([EOS, PAD, UNK]) == ["</s>", "<pad>", "<unk>"]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("bytes_", [True, False])
def test_unlearned_characters_are_read_as_those_they_look_like(kind: str, bytes_: bool) -> None:
    text = [*pairs(300), Pair(1, "Ein Mädchen läuft über den Platz.", "A girl", 0)]
    vocabulary = learn({"type": kind, "size": 500, "byte_fallback": bytes_}, text).source
    for odd, usual in {
        "ein Ma\u0308dchen la\u0308uft u\u0308ber": "ein Mädchen läuft über",
        "ein\u00a0Mann\u202fund\u3000ein\tHund": "ein Mann und ein Hund",
        "ein\u200b Mann\u2060 und\u00ad ein\ufeff Hund": "ein Mann und ein Hund",
        "\u2068ein\u2069 \u200fMann\u200e": "ein Mann",
        "\ufeff\u00a0ein \u00a0 Mann\u00a0": "ein Mann",
    }.items():
        assert vocabulary.encode(odd) == vocabulary.encode(usual), odd
        assert vocabulary.encode_lines([odd]) == vocabulary.encode_lines([usual])
        assert vocabulary.segment(Texts.of_strings([odd])).pieces.tolist() == vocabulary.encode(usual)
        assert vocabulary.sample(odd, 3, 0.3) == vocabulary.sample(usual, 3, 0.3)


def test_vietnamese_and_korean_letters_are_put_together() -> None:
    odd = ["Tiếng Việt ngộ nghĩnh", "한국어 문장"]
    text = [*pairs(300), *(Pair(1, line, line, 0) for line in odd * 20)]
    vocabulary = learn({"size": 600, "character_coverage": 1.0}, text).source
    for line in odd:
        expected = vocabulary.encode(line)
        assert vocabulary.encode(unicodedata.normalize("NFD", line)) == expected
    assert (
        vocabulary.encode("Vi\u00ea\u0323t")
        == vocabulary.encode("Vi\u1eb9\u0302t")
        == vocabulary.encode("Việt")
    )


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_more_pieces_than_the_text_supports_names_the_largest_size(kind: str) -> None:
    with pytest.raises(DataError, match="supports at most") as raised:
        learn({"type": kind, "size": 50_000}, SMALL_TEXT)
    largest = int(raised.value.hint.split("=")[1].split()[0])
    assert learn({"type": kind, "size": largest}, SMALL_TEXT).source.size == largest
    with pytest.raises(DataError):
        learn({"type": kind, "size": largest + 1}, SMALL_TEXT)


KINDS: dict[str, dict[str, object]] = {
    "bpe": {"size": 500},
    "unigram": {"type": "unigram", "size": 500, "joint": False},
    "words": {"type": "words", "joiner": "@@"},
    "two words": {"type": "words", "joint": False},
}


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_is_the_same(kind: str, tmp_path: Path) -> None:
    model = learn(KINDS[kind], pairs(500))
    model.save(tmp_path / "deep" / "vocabulary")
    loaded = Vocabularies.load(tmp_path / "deep" / "vocabulary")
    assert loaded.digest == model.digest
    assert (loaded.joint, loaded.type) == (model.joint, model.type)
    assert (loaded.source is loaded.target) == (model.source is model.target)
    for pair in pairs(50):
        assert loaded.source.encode(pair.source) == model.source.encode(pair.source)
        assert loaded.target.decode(loaded.target.encode(pair.target)) == model.target.decode(
            model.target.encode(pair.target)
        )


def spoil_header(name: str, value: object) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "vocabulary.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))

    return spoil


def flip_a_byte(folder: Path) -> None:
    path = folder / "joint.model"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "spoil",
    [
        flip_a_byte,
        lambda folder: (folder / "joint.model").write_bytes(b"\x80\x04K\x01."),
        lambda folder: (folder / "vocabulary.json").unlink(),
        lambda folder: (folder / "vocabulary.json").write_text("[]"),
        spoil_header("type", "words"),
        spoil_header("same", False),
    ],
)
def test_a_damaged_folder_is_refused(
    model: Vocabularies, spoil: Callable[[Path], object], tmp_path: Path
) -> None:
    model.save(tmp_path)
    Vocabularies.load(tmp_path)
    spoil(tmp_path)
    with pytest.raises(ModelError, match=str(tmp_path)):
        Vocabularies.load(tmp_path)


def test_rare_words_and_those_beyond_the_size_are_unknown() -> None:
    text = [Pair(1, "a a a b b c", "a a", 0)]
    assert learn({"type": "words", "min_count": 2}, text).source.encode("a b c d") == [4, 5, UNK, UNK]
    model = learn({"type": "words", "max_size": 8}, [Pair(1, "a a a b b c c d e f", "a", 0)])
    assert model.source.size == 8
    assert model.source.encode("a d e") == [4, 7, UNK]


def test_the_joiner_undoes_bpe() -> None:
    text = [Pair(1, "Wort@@ teil ist Bau@@", "word@@ s", 0)]
    joined, apart = (learn({"type": "words", "joiner": joiner}, text).source for joiner in ("@@", "none"))
    assert joined.decode(joined.encode("Wort@@ teil ist Bau@@")) == "Wortteil ist Bau"
    assert apart.decode(apart.encode("Wort@@ teil ist Bau@@")) == "Wort@@ teil ist Bau@@"
