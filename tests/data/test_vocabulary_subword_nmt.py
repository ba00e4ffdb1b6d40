from __future__ import annotations

import io
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from real_text import lines
from subword_nmt.apply_bpe import BPE, read_vocabulary
from subword_nmt.get_vocab import get_vocab
from subword_nmt.learn_bpe import learn_bpe

from deepwire.data.subwords.subword_nmt import Segmenter, SubwordNmtVocabulary
from deepwire.data.subwords.words import Dictionary, PieceCounter
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import VocabularyConfig
from deepwire.errors import DataError

GERMAN, ENGLISH = (
    [line.replace(".", " .").replace(",", " ,") for line in lines(language, 2000)]
    for language in ("de", "en")
)


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("codes") / "bpe.codes"
    with path.open("w", encoding="utf-8") as out:
        learn_bpe(io.StringIO("\n".join(GERMAN[:999] + ENGLISH[:999])), out, 400)
    assert path.read_text(encoding="utf-8").startswith("#version: 0.2")
    return path


@pytest.fixture(scope="module")
def old_codes(codes: Path) -> Path:
    """The same merges in the older format, in which the end of a word is a symbol of its own."""
    path = codes.with_name("old.codes")
    merges = codes.read_text(encoding="utf-8").split("\n")[1:]
    path.write_text("\n".join(["e n", "e r", "n </w>", "en </w>", "er </w>", *merges]), encoding="utf-8")
    return path


def learn(pairs: list[Pair] | None = None, **settings: object) -> Vocabularies:
    config = TypeAdapter(VocabularyConfig).validate_python({"type": "subword_nmt", **settings})
    text = [Pair(n, s, t, 0) for n, (s, t) in enumerate(zip(GERMAN, ENGLISH, strict=True), 1)]
    return Vocabularies.learn_from_blocks(config, [text if pairs is None else pairs])


@pytest.fixture(scope="module")
def model(codes: Path) -> Vocabularies:
    return learn(codes=codes)


def shown(segmenter: Segmenter, text: str) -> str:
    """The segmented line as subword-nmt writes it."""
    pieces = [piece for word in text.split(" ") if word for piece in segmenter.cut(word)]
    return " ".join(piece[:-1] if piece.endswith(" ") else f"{piece}@@" for piece in pieces)


@pytest.mark.parametrize("version", ["codes", "old_codes"])
def test_segmentation_is_that_of_the_package(version: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(version)
    package, ours = BPE(path.open(encoding="utf-8")), Segmenter.read(path)
    for line in GERMAN[:99] + ENGLISH[:99] + ["aaaa aaaaa xxx", "日本 @@ a@@ </w> x</w>", "ß", "a  b"]:
        assert shown(ours, line) == package.segment(line)


def test_a_stored_list_of_allowed_pieces_splits_others_as_the_package_does(
    codes: Path, tmp_path: Path
) -> None:
    """As vocabularies of 0.2.0 may have it."""
    bpe, counts = BPE(codes.open(encoding="utf-8")), io.StringIO()
    get_vocab(io.StringIO("\n".join(bpe.process_line(line) for line in GERMAN)), counts)
    known = read_vocabulary(counts.getvalue().splitlines(), 50)
    package, ours = BPE(codes.open(encoding="utf-8"), vocab=known), Segmenter.read(codes, known)
    for line in GERMAN[:500]:
        assert shown(ours, line) == package.segment(line)
    stored = SubwordNmtVocabulary(ours, Dictionary(sorted(known)))
    loaded = SubwordNmtVocabulary.from_files(stored.files("source"), "source")
    assert [loaded.encode(line) for line in GERMAN[:99]] == [stored.encode(line) for line in GERMAN[:99]]


def test_rare_pieces_are_unknown_as_in_fairseq(codes: Path) -> None:
    package = BPE(codes.open(encoding="utf-8"))
    pieces = Counter(piece for line in GERMAN + ENGLISH for piece in package.segment(line).split())
    vocabulary = learn(codes=codes, min_count=5).source
    entries = {piece for piece, times in pieces.items() if times >= 5}
    assert 100 < len(entries) < len(pieces)
    assert set(vocabulary.pieces(list(range(4, vocabulary.size)))) == entries
    for line in GERMAN[:500]:
        expected = [piece if piece in entries else "<unk>" for piece in package.segment(line).split()]
        assert vocabulary.pieces(vocabulary.encode(line)) == expected


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.sampled_from("abenr @</w>▁ß日"), max_size=30))
def test_any_text_is_segmented_as_by_the_package_and_comes_back(text: str) -> None:
    codes = [
        "#version: 0.2",
        "e n",
        "e n</w>",
        "a b",
        "ab en</w>",
        "< /",
        "</ w",
        "@ @",
        "@ @</w>",
        "@@ @</w>",
    ]
    package, segmenter = BPE(io.StringIO("\n".join(codes) + "\n")), Segmenter(codes, "codes")
    vocabularies = learn_from_text(segmenter, text)
    assert shown(segmenter, text) == package.segment(text)
    ids = vocabularies.encode(text)
    assert min(ids, default=4) >= 4
    assert vocabularies.decode(ids) == " ".join(filter(None, text.split(" ")))


def learn_from_text(segmenter: Segmenter, text: str) -> SubwordNmtVocabulary:
    counter = PieceCounter()
    for word in filter(None, text.split(" ")):
        counter.add(segmenter.cut(word))
    return SubwordNmtVocabulary(segmenter, counter.dictionary())


def test_dropout_is_repeatable_and_spells_the_text(codes: Path, model: Vocabularies) -> None:
    vocabulary = model.source
    segmenter = Segmenter.read(codes)
    draws = [vocabulary.sample(GERMAN[0], seed, 0.3) for seed in range(20)]
    assert draws == [vocabulary.sample(GERMAN[0], seed, 0.3) for seed in range(20)]
    assert len({tuple(draw) for draw in draws}) > 5
    for seed, word in enumerate(GERMAN[0].split()):
        assert "".join(segmenter.cut(word, 0.5, random.Random(seed))) == word + " "
    assert vocabulary.sample(GERMAN[0], 1, 0) == vocabulary.encode(GERMAN[0])


def test_each_side_can_have_its_own_codes(codes: Path, old_codes: Path, tmp_path: Path) -> None:
    model = learn(codes=codes, target_codes=old_codes, joint=False)
    assert not model.joint
    model.save(tmp_path)
    loaded = Vocabularies.load(tmp_path)
    assert loaded.digest == model.digest
    for source, target in zip(GERMAN[:50], ENGLISH[:50], strict=True):
        assert loaded.source.encode(source) == model.source.encode(source)
        assert loaded.target.encode(target) == model.target.encode(target)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("#version: 0.2\na b\na b c\n", r":3: not two symbols"),
        ("#version: 1.0\na b\n", r":1: unknown version of codes: 1.0"),
        ("#version: 0.2\n", "holds no merges"),
    ],
)
def test_a_file_that_is_no_codes_is_named_with_the_line(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "codes"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as raised:
        learn(codes=path)
    assert str(path) in raised.value.message
