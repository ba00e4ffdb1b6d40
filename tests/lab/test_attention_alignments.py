"""The best head is found, by a model whose attention is set, and named with its options."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_runs import ModelMaker, Store

from deepwire.errors import DataError
from deepwire.lab import attention_alignments
from deepwire.lab.attention_alignments import Attention, analyse_alignment
from deepwire.lab.subject import read_pairs

GOLD = "0-1 1-0\n0-0 1?0 1-1 3-4\n0-0\n"


@pytest.fixture
def stored(make_model: ModelMaker, store: Store) -> str:
    return store(make_model({}), decoding={"alignment": {"layer": 1, "head": 1, "step": "writes"}})


def set_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Head 2 of layer 2 looks at word 1, 0, 1, 0 ... where it reads these; all others at the first word."""

    def weights(model, pairs, layers, device):
        places = max(len(pair.source) for pair in pairs), max(len(pair.read) for pair in pairs)
        found = {layer: torch.zeros(len(pairs), 2, places[1], places[0]) for layer in (0, 1)}
        for tensor in found.values():
            tensor[:, :, :, 0] = 1
        good = found[1]
        for row, pair in enumerate(pairs):
            for target in range(len(pair.target)):
                text = len(pair.source) - 1
                good[row, 1, target + 1] = 0
                good[
                    row, 1, target + 1, 1 - target if text == 2 and target < 2 else min(target, text - 1)
                ] = 1
        return found

    monkeypatch.setattr(attention_alignments, "attention_to_source", weights)


def test_the_best_head_is_named(
    stored: str, text: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gold").write_text(GOLD)
    set_attention(monkeypatch)
    finding = analyse_alignment(stored, read_pairs(stored, *text), tmp_path / "gold")
    best, *_ = finding.tables[0].rows
    assert best[:3] == (2, "2", "reads")
    # It has 2 + 5 + 1 links, of which all but two of the second pair are right.
    sure, found, both, possible = 6, 8, 6, 6
    assert best[3] == pytest.approx(100 * (1 - (both + possible) / (found + sure)))
    assert "--alignment alignment.layer=2 alignment.head=2 alignment.step=reads" in finding.notes[0]
    assert [row[0] for row in finding.tables[1].rows] == [1, 2]
    assert Attention(3, None, "writes").options == "--alignment alignment.layer=3 alignment.step=writes"


def test_the_command(stored: str, text: tuple[Path, Path], tmp_path: Path, analyze) -> None:
    (tmp_path / "gold").write_text(GOLD)
    files = ["--source", str(text[0]), "--reference", str(text[1]), "--gold", str(tmp_path / "gold")]
    finding = analyze("alignment", stored, *files)
    assert len(finding["tables"][1]["rows"]) == 2
    assert len(finding["tables"][1]["columns"]) == 4
    assert all(0 <= cell <= 100 for row in finding["tables"][1]["rows"] for cell in row[1:])
    finding = analyze("alignment", stored, *files, "--sentences", "2")
    assert finding["provenance"]["data"][0].endswith(", 2 pairs")


def test_what_cannot_be_compared_is_refused(stored: str, text: tuple[Path, Path], tmp_path: Path) -> None:
    gold = tmp_path / "gold"
    gold.write_text("\n\n\n")
    with pytest.raises(DataError, match="gold: has no links"):
        analyse_alignment(stored, read_pairs(stored, *text), gold)
    gold.write_text("0-9\n\n\n")
    with pytest.raises(DataError, match="gold:1: 0-9, but the pair has 2 and 2 words"):
        analyse_alignment(stored, read_pairs(stored, *text), gold)
