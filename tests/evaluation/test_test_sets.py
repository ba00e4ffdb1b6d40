"""Test sets by name, from a folder in sacrebleu's layout; nothing is downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.error import URLError

import pytest
from sacrebleu.dataset import DATASETS

from deepwire.cli.main import main
from deepwire.data.languages import Direction
from deepwire.errors import DataError
from deepwire.evaluation import test_sets

SOURCE = ["The dog sleeps.", "Two cats run on the grass."]
REFERENCES = {
    "refA": ["Der Hund schläft.", "Zwei Katzen rennen."],
    "refB": ["Der Hund pennt.", "Zwei laufen."],
}


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(test_sets, "SACREBLEU_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "wmt24" / "wmt24.en-de.src", SOURCE)
    for name, lines in REFERENCES.items():
        write(tmp_path / "wmt24" / f"wmt24.en-de.{name}", lines)
    return tmp_path


def test_stored_files_are_used(stored: Path) -> None:
    source, references = test_sets.test_set_files("wmt24", Direction("en", "de"))
    assert source.read_text(encoding="utf-8").splitlines() == SOURCE
    assert [path.suffix for path in references] == [".refA", ".refB"]


def test_evaluate_scores_against_all_references(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(stored / "hyp.txt", REFERENCES["refB"])
    assert main(["evaluate", "hyp.txt", "--test-set", "wmt24", "--direction", "en-de", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert "nrefs:2" in json.dumps(report)
    assert "100.0" in json.dumps(report)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--test-set", "wmt24"],
        ["--test-set", "wmt24", "--direction", "en-fr"],
        ["--test-set", "wmt2044", "--direction", "en-de"],
        ["--test-set", "wmt24", "--direction", "en-de", "--reference", "hyp.txt"],
    ],
)
def test_what_does_not_exist_is_refused(stored: Path, arguments: list[str]) -> None:
    write(stored / "hyp.txt", SOURCE)
    assert main(["evaluate", "hyp.txt", *arguments]) == 2


@pytest.mark.parametrize("fault", [URLError("no network"), SystemExit(1)])
def test_a_failed_download_names_the_files(
    stored: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    def fails(_pair: str) -> None:
        raise fault

    monkeypatch.setattr(DATASETS["wmt23"], "get_source_file", fails)
    with pytest.raises(DataError) as raised:
        test_sets.test_set_files("wmt23", Direction("en", "de"))
    assert "wmt23.en-de.src" in str(raised.value.hint)
