"""The commands of the tutorials, in order, on tiny text and with few updates."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

import deepwire.testing
from deepwire.lab.study import runner
from deepwire.lab.study.processes import NextRun
from deepwire.lab.study.runs import StudyRun

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
from forked import deepwire_command
from markdown_pages import DOCS, ROOT, blocks
from shell_blocks import do, steps

TEXT = ROOT / "examples" / "multi30k"
# What makes a page small; each must occur in it.
# Models that have learned nothing write until they may not: their output is short.
SHORT = "decoding: {max_length_ratio: 0, max_length_extra: 4}\n"
SMALLER = {
    "../README.md": {
        "test: corpus/test}": "test: corpus/test, vocabulary: {size: 500}}",
        "training: {max": f"{SHORT}training: {{max",
        "d_model: 256": "d_model: 16",
        "feed_forward: 1024": "feed_forward: 32",
        "max_updates: 20k": "max_updates: 4, batch_tokens: 300, validation: {every: 4}",
    },
    "tutorials/own-text.md": {
        "size: 8000": "size: 500",
        "model:\n": f"{SHORT}model:\n",
        "d_model: 256": "d_model: 16",
        "feed_forward: 1024": "feed_forward: 32",
        "max_updates: 20k": "max_updates: 5",
        "batch_tokens: 4096": "batch_tokens: 300",
        "every: 500": "every: 1, max_sentences: 2",
    },
    "tutorials/several-languages.md": {
        "size: 8000": "size: 500",
        "d_model: 256": "d_model: 16",
        "feed_forward: 1024": "feed_forward: 32",
        "{layers: 6,": "{layers: 1,",
        "model:\n": f"{SHORT}model:\n",
        "max_updates: 40k": "max_updates: 4",
        "batch_tokens: 8192": "batch_tokens: 300, validation: {every: 4}, schedule: {warmup: 2}",
    },
    "tutorials/own-connection.md": {
        "training.max_updates=400": "training.max_updates=3 training.validation.every=3 "
        "training.schedule.warmup=1 model.d_model=16 model.feed_forward=32 training.batch_tokens=300 "
        "data.vocabulary.size=500 data.train=corpus/train data.valid=corpus/valid",
    },
    "start/first-model.md": {
        "train demo\n": "train demo SMALL\n",
        "check demo": "check demo data.train=corpus/train data.valid=corpus/valid data.test=corpus/test",
        "training.max_updates=400": "training.max_updates=4 SMALL",
        "SMALL": "training.max_updates=4 training.validation.every=4 training.checkpoint.every=4 "
        "training.schedule.warmup=1 model.d_model=16 model.feed_forward=32 training.batch_tokens=300 "
        "data.vocabulary.size=500 data.train=corpus/train data.valid=corpus/valid data.test=corpus/test "
        "decoding.max_length_ratio=0 decoding.max_length_extra=4",
        "--sentences 200": "--sentences 5",
        "examples/multi30k/test_2016_flickr.de.gz": "corpus/test.de",
        "examples/multi30k/test_2016_flickr.en.gz": "corpus/test.en",
    },
    "tutorials/compare-two-systems.md": {
        "[training.threads=1]": "[training.threads=1, model.d_model=16, model.feed_forward=32, "
        "data.vocabulary.size=500, data.train=corpus/train, data.valid=corpus/valid, "
        "data.test=corpus/test, training.batch_tokens=300, training.max_updates=3, "
        "training.validation.every=3, training.checkpoint.every=3, training.schedule.warmup=1, "
        "decoding.max_length_ratio=0, decoding.max_length_extra=4]",
        "seeds: [1, 2, 3]": "seeds: [1]",
        # Each trial is a process of its own; tests of `deepwire study` have some.
        "search:\n  max_updates: 400\n  alternatives:\n    half: [training.schedule.peak=0.005]\n"
        "    double: [training.schedule.peak=0.02]\n": "",
    },
}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the text of the tutorials."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # A command with --plugin names it here for those that it starts; what comes after this test has none.
    monkeypatch.setenv("DEEPWIRE_PLUGINS", "")
    (tmp_path / "corpus").mkdir()
    for name, file, count in (("train", "train", 300), ("valid", "val", 8), ("test", "test_2016_flickr", 8)):
        for side in ("de", "en"):
            with gzip.open(TEXT / f"{file}.{side}.gz", "rt", encoding="utf-8") as lines:
                text = "".join(islice(lines, count))
            (tmp_path / "corpus" / f"{name}.{side}").write_text(text, encoding="utf-8")
            if side == "en":  # a third language, of a kind
                (tmp_path / "corpus" / f"{name}.fr").write_text(text[::-1].strip() + "\n", encoding="utf-8")
    return tmp_path


def train_forked(next_run: NextRun, **_: object) -> Iterator[tuple[StudyRun, None]]:
    """Stands for `train_runs`, without the seconds that an interpreter takes to start."""
    while (run := next_run()) is not None:
        ended = deepwire_command("train", run.base, *run.overrides, "--quiet", cwd=Path.cwd())
        assert ended.returncode == 0, ended.stderr
        yield run, None


@pytest.mark.parametrize("page", SMALLER)
def test_the_commands_of_a_page_work_in_order(
    page: str, desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "train_runs", train_forked)
    done = 0
    text = "\n".join(block.text for block in blocks(DOCS / page) if block.language == "sh")
    for old, new in SMALLER[page].items():
        assert old in text, old
        text = text.replace(old, new)
    for line, body in steps(text):
        said = do(line, body, monkeypatch, capsys)
        if "| deepwire" in line or "inspect" in line:
            assert said
        done += 1
    assert done >= 2
    if page.endswith("own-connection.md"):
        from gains import GainConfig

        deepwire.testing.check_connection(GainConfig())


def test_the_python_of_the_notebook_page_runs(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (desk / "demo.yaml").write_text(
        "data: {source: de, target: en, train: corpus/train, valid: corpus/valid, test: corpus/test, "
        "vocabulary: {size: 500}}\n"
        f"{SHORT}model: {{d_model: 16, heads: 2, feed_forward: 32,"
        " encoder: {layers: 1, connection: depth_lstm}}\n"
        "training: {batch_tokens: 300, validation: {every: 2}, "
        "schedule: {type: cosine, peak: 0.01, warmup: 300}}\n",
        encoding="utf-8",
    )
    page = [block.text for block in blocks(DOCS / "tutorials" / "notebook.md") if block.language == "python"]
    names: dict[str, object] = {}
    for text in page:
        small = text.replace('"demo"', '"demo.yaml"').replace(": 200}", ": 2}").replace(": 400}", ": 4}")
        exec(small, names)
    assert len(page) >= 3
    assert "Candidate(text=" in capsys.readouterr().out
