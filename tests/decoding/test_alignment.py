"""Alignments of every kind of search, from attention that is known."""

from __future__ import annotations

import pytest
import torch

from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import PAD, Vocabularies
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.decoding.alignment import AttentionAligner
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.terms import Term, Terminology
from deepwire.decoding.translation_io import FORMATS
from deepwire.decoding.translator import Translator
from deepwire.errors import UsageError

WORDS = ["ein", "zwei", "drei", "hund", "katze", "haus", "mann", "frau"]


@pytest.fixture(scope="module")
def vocabularies():
    pairs = [Pair(line, " ".join(WORDS), " ".join(WORDS), 0) for line in range(3)]
    return Vocabularies.learn_from_blocks(WordsConfig(), [pairs])


@pytest.fixture
def looking(toys) -> object:
    class Looking(toys.Model):
        """Row t of head 1 of layer 2 looks at text position 3 t, counted around; head 2 at EOS."""

        def source_weights(self, source, target_input, layers=None, *, languages=None):
            rows, texts = torch.arange(target_input.size(1)), (source != PAD).sum(1) - 1
            weights = torch.zeros(len(source), 2, len(rows), source.size(1))
            for row, text in enumerate(texts.tolist()):
                weights[row, 0, rows, rows * 3 % max(1, text)] = 0.6
                weights[row, 0, rows, text] = 0.4
                weights[row, 1, :, text] = 1.0
            return {layer: weights if layer == 1 else weights.flip(2) for layer in layers or (0, 1)}

    return Looking(size=12, seed=4)


def translator(model, vocabularies, terms=None, **settings):
    alignment = {"alignment": {"layer": 2, **settings.pop("alignment", {})}}
    config = DecodingConfig.model_validate({"max_length_extra": 4, **alignment, **settings})
    return Translator([model], vocabularies, config, terms=terms)


def expected(source, translation, reads=True):
    count = len(source.split())
    return sorted(((place + reads) * 3 % count, place) for place in range(len(translation.split())))


LINES = ["ein hund", "", "zwei katze drei haus", "frau", "mann ein   zwei drei"]


@pytest.mark.parametrize(
    "settings",
    [
        {"beam": 1},
        {"beam": 3, "n_best": 3},
        {"beam": 3, "n_best": 2, "window": 2, "batch_tokens": 3},
        {"sampling": {"seed": 3}, "n_best": 2},
        {"alignment": {"layer": 2, "head": 1, "step": "writes"}},
    ],
)
def test_every_search_is_aligned(looking, vocabularies, settings):
    model = translator(looking, vocabularies, **settings)
    reads = model.config.alignment.step == "reads"
    plain = list(model.translations(LINES))
    found = list(model.aligning().translations(LINES))
    for line, one, other in zip(LINES, found, plain, strict=True):
        assert [each.text for each in one.candidates] == [each.text for each in other.candidates]
        assert all(each.alignment is None for each in other.candidates)
        for candidate in one.candidates:
            assert list(candidate.alignment.links) == (expected(line, candidate.text, reads) if line else [])


def test_translations_with_demanded_terms_are_aligned(looking, vocabularies):
    terms = Terminology((Term("hund", ("katze",)), Term("drei", ("haus",))))
    found = list(translator(looking, vocabularies, terms).aligning().translations(LINES))
    assert "katze" in found[0].text
    for line, one in zip(LINES, found, strict=True):
        if line:
            assert list(one.candidates[0].alignment.links) == expected(line, one.text)


def test_lines_in_pieces_and_texts_of_several_lines(looking, vocabularies):
    """Numbers go on from piece to piece, and from line to line."""
    long = "ein zwei drei hund katze haus"
    model = translator(looking, vocabularies, max_source_length=3).aligning()
    (found,) = model.translations([long])
    pieces = [model.translate([part], alignment=True)[0] for part in ("ein zwei drei", "hund katze haus")]
    count = len(pieces[0].text.split())
    wanted = [*pieces[0].links, *((one + 3, other + count) for one, other in pieces[1].links)]
    assert found.text == " ".join(piece.text for piece in pieces)
    assert list(found.candidates[0].alignment.links) == wanted
    text, links = model.translate(["ein zwei drei\n\nhund katze haus"], alignment=True)[0]
    assert text == "\n\n".join(piece.text for piece in pieces)
    assert list(links) == wanted


def test_the_formats_show_it(looking, vocabularies):
    model = translator(looking, vocabularies, beam=2, n_best=2)
    (one,) = model.aligning().translations(["zwei hund katze"])
    links = one.candidates[0].alignment.pharaoh()
    assert links.split()[0].count("-") == 1
    assert FORMATS["plain"](one) == f"{one.text} ||| {links}"
    assert FORMATS["scored"](one).endswith(f"\t{one.text} ||| {links}")
    assert [line.rpartition(" ||| ")[2] for line in FORMATS["n_best"](one).split("\n")] == [
        candidate.alignment.pharaoh() for candidate in one.candidates
    ]
    assert f'"alignment": {[list(link) for link in one.candidates[0].alignment.links]}' in FORMATS["as_json"](
        one
    )
    (empty,) = model.aligning().translations([""])
    assert FORMATS["plain"](empty) == " ||| "


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"layer": 3}, "alignment layer 3: of the decoder, those that look at the source are 1, 2"),
        ({"head": 3}, "alignment head 3: layer 2 has heads 1 to 2"),
    ],
)
def test_what_is_not_there_is_refused(looking, vocabularies, settings, said):
    with pytest.raises(UsageError, match=said):
        translator(looking, vocabularies, alignment=settings).aligning()


def test_without_a_choice_the_first_layer_aligns(looking, vocabularies):
    model = Translator([looking], vocabularies, DecodingConfig())
    (found,) = model.translate(["ein hund zwei"], alignment=True)
    # Of all layers but the second the weights are reversed, so that rows are counted from the end.
    assert AttentionAligner(looking, model.config.alignment, 64, torch.device("cpu")).layer == 0
    assert found.links
