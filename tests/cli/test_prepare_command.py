from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from deepwire.cli.main import main


@pytest.fixture(autouse=True)
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    numbers = range(60)
    (tmp_path / "train.de").write_text(
        "".join(f"Hund {n} läuft weg.\n" for n in numbers) + "\nHund 3 läuft weg.\n"
    )
    (tmp_path / "train.en").write_text(
        "".join(f"dog {n} runs away.\n" for n in numbers) + "x\ndog 3 runs away.\n"
    )
    (tmp_path / "valid.de").write_text("Hund 7 läuft.\n")
    (tmp_path / "valid.en").write_text("dog 7 runs.\n")
    (tmp_path / "run.yaml").write_text(
        "data: {source: de, target: en, train: train, valid: valid, vocabulary: {size: 300}}\n"
    )
    return tmp_path


def test_a_person_sees_what_was_kept_and_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "run.yaml"]) == 0
    shown = capsys.readouterr()
    assert "train: 60 of 62 pairs kept" in shown.out
    assert "dropped 1 duplicate" in shown.out
    assert ": line 62\n" in shown.out
    assert "valid: 1 of 1 pair kept" in shown.out
    assert "vocabulary: bpe, 300 joint" in shown.out
    assert "pairs/s" in shown.out
    assert "prepared/de-en-" in shown.out
    assert shown.err == ""
    assert main(["prepare", "run.yaml"]) == 0
    assert "nothing changed: used again" in capsys.readouterr().out


SEPARATE = ("data.vocabulary.joint=false", "model.embeddings.tie=output")


def test_a_program_gets_one_json_object(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "run.yaml", *SEPARATE, "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    record = json.loads(line)
    assert Path(record["folder"]).parent == corpus / "prepared"
    assert record["reused"] is False
    assert record["vocabulary"]["source"] == record["vocabulary"]["target"] == 300
    assert record["vocabulary"]["joint"] is False
    assert record["train"]["pairs"] == 60
    assert record["train"]["corpora"] == [{"pairs": 60, "weight": 1.0}]
    assert record["valid"] == {"pairs": 1}
    assert record["report"]["train"]["dropped"]["duplicate"]["count"] == 1
    assert record["pairs_per_second"] > 0
    main(["prepare", "run.yaml", *SEPARATE, "--json"])
    again = json.loads(capsys.readouterr().out)
    assert (again["reused"], again["pairs_per_second"], again["folder"]) == (True, None, record["folder"])


def test_a_signal_to_end_leaves_nothing_half_made(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def learn(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("deepwire.data.vocabulary.Vocabularies.learn_from_blocks", learn)
    with pytest.raises(SystemExit) as ended:
        main(["prepare", "run.yaml"])
    assert ended.value.code == 143
    assert not any(path.is_dir() for path in (corpus / "prepared").iterdir())
    assert signal.getsignal(signal.SIGTERM) is before
