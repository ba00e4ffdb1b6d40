"""What CTranslate2 searches with: relative positions and norms step by step, alignments, vocabulary maps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from untrained_models import save_untrained, vocabularies_of

from deepwire.checkpoint.store import LoadedModel, load_model
from deepwire.cli.main import main
from deepwire.convert.ctranslate2 import CTranslate2
from deepwire.data.vocabulary import BOS, EOS, PAD, UNK, Vocabularies
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.shortlist import Shortlist, ShortlistTable, shortlist_path
from deepwire.decoding.translator import Translator

ctranslate2 = pytest.importorskip("ctranslate2")
Text = Mapping[str, Sequence[str]]
LINES = 12
RELATIVE = {"type": "self_attention", "relative": 3, "relative_values": True}


@pytest.fixture(scope="module")
def words(multi30k: Text) -> Vocabularies:
    """A joint vocabulary."""
    return vocabularies_of(multi30k)


def saved(folder: Path, words: Vocabularies, decoding: Mapping[str, object], **changes: object) -> Path:
    """A model that, as trained ones, never wants a symbol but EOS."""
    settings: dict[str, object] = {"d_model": 32, "heads": 4, "feed_forward": 32}
    for side in ("encoder", "decoder"):
        own = changes.pop(side, {})
        assert isinstance(own, dict)
        settings[side] = {"layers": 2, "connection": "pre_norm"} | own
    metadata = {"source": "de", "target": "en", "decoding": dict(decoding)}
    never = (PAD, BOS, UNK)
    return save_untrained(
        folder, words, settings | changes, metadata, noise=0.3, seed=5, never=never, likely={EOS: 5}
    )


def exported(model: Path, words: Vocabularies, output: Path) -> tuple[LoadedModel, Any]:
    """The model, and what CTranslate2 reads of its export."""
    loaded = load_model(model)
    output.mkdir()
    CTranslate2().require(loaded)
    CTranslate2().write(loaded, output, "float32")
    return loaded, ctranslate2.Translator(str(output), device="cpu")


@pytest.mark.parametrize(
    "changes",
    [
        {
            "positions": "none",
            "encoder": {"mixer": RELATIVE, "connection": "post_norm"},
            "decoder": {"mixer": {"type": "self_attention", "relative": 5}, "connection": "post_norm"},
            "key_value_heads": 2,
        },
        {
            "encoder": {"connection": {"type": "peri_ln", "embedding_norm": True, "output_gain": 1}},
            "decoder": {"connection": {"type": "peri_ln", "embedding_norm": True, "output_gain": 1}},
            "norm": "rms",
            "positions": "rotary",
        },
        # Repeats one subword, so that the fourth hypothesis to end is not the best: both go on behind it.
        {
            "encoder": {"connection": {"type": "peri_ln", "output_gain": 1}},
            "decoder": {"connection": {"type": "peri_ln", "output_gain": 1}},
            "norm": "rms",
        },
    ],
    ids=["relative", "peri", "peri repeating"],
)
def test_both_programs_find_the_same(
    changes: dict[str, object], words: Vocabularies, multi30k: Text, tmp_path: Path
) -> None:
    """Step by step, by greedy and by beam search."""
    model = saved(tmp_path / "model", words, {"beam": 4}, **changes)
    (tmp_path / "text.de").write_text("\n".join(multi30k["de"][:LINES]))
    assert main(["export", str(model), "-o", str(tmp_path / "out"), "--text", str(tmp_path / "text.de")]) == 0
    found = json.loads((tmp_path / "out" / "parity.json").read_text())["compared"]
    assert found["lines"] == LINES
    assert found["largest_difference"] < 1e-4
    assert found["equal"] > 0.9
    assert found["beam_equal"] > 0.9


def test_a_beam_that_finds_something_else_is_reported(
    words: Vocabularies, multi30k: Text, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the test above could not fail."""
    from deepwire.convert import ctranslate2 as module

    search = module._Read.search
    monkeypatch.setattr(
        module._Read,
        "search",
        lambda self, sources, config, language="": search(
            self, sources, config.model_copy(update={"beam": 1}), language
        ),
    )
    model = saved(tmp_path / "model", words, {})
    (tmp_path / "text.de").write_text("\n".join(multi30k["de"][:LINES]))
    assert main(["export", str(model), "-o", str(tmp_path / "out"), "--text", str(tmp_path / "text.de")]) == 0
    found = json.loads((tmp_path / "out" / "parity.json").read_text())["compared"]
    assert found["equal"] == 1
    assert found["beam_equal"] < 1


@pytest.mark.parametrize("key_heads", [4, 2])
@pytest.mark.parametrize("alignment", [{}, {"layer": 1}], ids=str)
def test_it_aligns_by_the_same_attention(
    alignment: dict[str, int], key_heads: int, words: Vocabularies, multi30k: Text, tmp_path: Path
) -> None:
    changes = {"key_value_heads": key_heads, "decoder": {"layers": 3}}
    model = saved(tmp_path / "model", words, {"alignment": alignment}, **changes)
    loaded, translator = exported(model, words, tmp_path / "out")
    ids = words.source.encode(multi30k["de"][0])
    result = translator.translate_batch(
        [words.source.pieces(ids)], beam_size=1, return_attention=True, return_end_token=True
    )[0]
    numbers = {piece: number for number, piece in enumerate(words.target.pieces(range(words.target.size)))}
    target = [numbers[piece] for piece in result.hypotheses[0]]
    with torch.no_grad():
        weights = loaded.model.source_weights(
            torch.tensor([[*ids, EOS]]), torch.tensor([[BOS, *target[:-1]]])
        )
    layer = alignment.get("layer", 2) - 1
    expected = weights[layer][0].mean(0)
    # It leaves out the column of EOS.
    torch.testing.assert_close(torch.tensor(result.attention[0]), expected[:, :-1], atol=1e-5, rtol=1e-4)


def shortlist_of(words: Vocabularies) -> Shortlist:
    """A table that changes translations."""
    generator = torch.Generator().manual_seed(1)
    size = words.target.size
    counts = torch.randint(0, 3, (words.source.size,), generator=generator)
    counts[:EOS], counts[EOS] = 0, 4
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    targets = torch.randint(4, size, (int(offsets[-1]),), generator=generator)
    table = ShortlistTable(torch.arange(30), offsets, targets, size)
    return Shortlist({"": table}, words.digest)


def test_the_shortlist_becomes_a_vocabulary_map(
    words: Vocabularies, multi30k: Text, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = saved(tmp_path / "model", words, {})
    shortlist = shortlist_of(words)
    shortlist.save(shortlist_path(model))
    assert main(["export", str(model), "-o", str(tmp_path / "out"), "--unchecked"]) == 0
    assert "vmap.txt is the model's shortlist" in capsys.readouterr().err
    translator = ctranslate2.Translator(str(tmp_path / "out"), device="cpu")
    config = DecodingConfig(beam=1, length_penalty=0, max_length_ratio=0, max_length_extra=40)
    loaded = load_model(model)
    with_it, without = (
        Translator([loaded.model], words, config, shortlist=each) for each in (shortlist, None)
    )
    changed = 0
    for line in multi30k["de"][:10]:
        pieces = words.source.pieces(words.source.encode(line))
        given = {"beam_size": 1, "disable_unk": True, "max_decoding_length": 40}
        found = translator.translate_batch([pieces], use_vmap=True, **given)[0].hypotheses[0]
        (ours,) = with_it.translations([line])
        (usual,) = without.translations([line])
        assert list(found) == list(ours.candidates[0].tokens)
        assert list(translator.translate_batch([pieces], **given)[0].hypotheses[0]) == list(
            usual.candidates[0].tokens
        )
        changed += ours.text != usual.text
    assert changed
