from __future__ import annotations

import json

import pytest
from permissions import permissions_obeyed
from untrained_models import save_untrained

from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import WordsConfig

SOURCE, TARGET = "ein hund\n\nzwei katzen\nhund\n", "a dog\ncat\ntwo cats\n \n"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    vocabularies = Vocabularies.learn_from_blocks(
        WordsConfig(joint=True), [[Pair(1, "ein hund zwei katzen", "a dog two cats cat", 0)]]
    )
    stacks = {side: {"layers": 1} for side in ("encoder", "decoder")}
    small = {"d_model": 16, "heads": 2, "feed_forward": 32, **stacks}
    return str(save_untrained(tmp_path_factory.mktemp("models") / "one", vocabularies, small, {}))


@pytest.fixture
def score(model, tmp_path, command):
    """Exit code, lines and errors of `deepwire score MODEL ...`."""

    def run(*options: str, source: str = SOURCE, target: str = TARGET) -> tuple[int, list[str], str]:
        (tmp_path / "s").write_text(source)
        (tmp_path / "t").write_text(target)
        files = ["--source", str(tmp_path / "s"), "--target", str(tmp_path / "t")]
        code, out, err = command("score", model, *files, *options)
        return code, out.split("\n")[:-1], err

    return run


def test_text_that_may_not_be_read_is_wrong_data(score, tmp_path, monkeypatch):
    (tmp_path / "closed").touch(0)
    monkeypatch.setattr("os.access", lambda path, _: False)
    with permissions_obeyed():
        code, _, errors = score("--source", str(tmp_path / "closed"))
    assert code == 3
    assert errors.endswith(f"error: {tmp_path / 'closed'}: cannot open: Permission denied\n")


def test_one_number_for_each_pair(score):
    code, lines, errors = score()
    assert code == 0
    values = [float(line) for line in lines]
    assert [value == 0 for value in values] == [False, True, False, True]
    assert values[0] < 0
    assert values[2] < 0
    assert "line 2: empty source" in errors
    assert "line 4: empty target" in errors


def test_tokens_sum_to_the_score(score):
    _, lines, _ = score("--json", "--per-token")
    records = [json.loads(line) for line in lines]
    assert [record["flag"] for record in records] == [None, "empty_source", None, "empty_target"]
    assert records[0]["subwords"] == ["a", "dog", "</s>"]
    for record in records:
        assert sum(record["log_probabilities"]) == pytest.approx(record["score"])
    _, normalized, _ = score("--normalize", "--per-token")
    value, _, tokens = normalized[0].partition("\t")
    assert float(value) == pytest.approx(records[0]["score"] / 3, abs=1e-5)
    assert len(tokens.split()) == 3


def test_only_one_side_from_stdin_and_neither_is_replaced(model, score, tmp_path, refused):
    refused(2, "stdin", "score", model, "--source", "-", "--target", "-")
    code, _, errors = score("--output", str(tmp_path / "t"))
    assert (code, "would be replaced" in errors, (tmp_path / "t").read_text()) == (2, True, TARGET)
