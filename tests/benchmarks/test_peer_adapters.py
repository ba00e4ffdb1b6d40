"""Adapters of other toolkits: reading logs and writing settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import training_speed
from peers.base import TASKS, Task
from peers.eole import Eole, EoleBfloat16
from peers.fairseq import Fairseq
from peers.marian import Marian, MarianBfloat16

PYTHON = Path("python")
STEPS = """\
[2026-01-31 12:00:00,500 INFO] Step 5/   20; acc: 1.2; ppl: 9; bsz: 3800/3900/270; 1/ 1 tok/s; 3 sec;
[2026-01-31 12:00:10,000 INFO] something else
[2026-01-31 12:00:12,500 INFO] Step 10/   20; acc: 1.2; ppl: 9; bsz: 3700/4000/260; 1/ 1 tok/s; 9 sec;
"""
FAIRSEQ = """\
2026-01-31 12:00:00,500 | train_inner | {"epoch": 1, "wpb": "3900", "num_updates": "5", "wps": "0"}
2026-01-31 12:00:12,500 | train_inner | {"epoch": 1, "wpb": "4000.0", "num_updates": "10", "wps": "9"}
2026-01-31 12:00:12,600 | train_inner | {"epoch": 1, "wpb"
"""
MARIAN = """\
some warning
{"update": 5, "time": 100.5, "target_tokens": 19500, "loss": 9.0}
{"update": 10, "time": 112.5, "target_tokens": 39500, "loss": 8.0}
{"update": 15, "time": 1
"""


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for language, text in (("de", "ein Hund\nein Haus\n"), ("en", "a dog\na house\n")):
        (tmp_path / f"train.{language}").write_text(text)
    return tmp_path / "train"


@pytest.mark.parametrize(("toolkit", "log"), [(Eole, STEPS), (Fairseq, FAIRSEQ), (Marian, MARIAN)])
def test_a_log_gives_updates_seconds_and_tokens(toolkit, log: str, tmp_path: Path) -> None:
    first, second = toolkit(PYTHON).readings(log, tmp_path)
    assert (first.update, second.update) == (5, 10)
    assert second.seconds - first.seconds == pytest.approx(12)
    assert second.target_tokens - first.target_tokens == 5 * 4000


@pytest.mark.parametrize("toolkit", [Eole, EoleBfloat16, Marian, MarianBfloat16])
@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_settings_name_the_task_and_the_command_the_updates(
    toolkit, task: Task, corpus: Path, tmp_path: Path
) -> None:
    """Every number of the task, and the text, must reach the toolkit."""
    peer = toolkit(PYTHON)
    peer.prepare(tmp_path, task, corpus)
    run = tmp_path / "run"
    run.mkdir()
    command = peer.command(tmp_path, updates=1234, log_every=617, run=run)
    written = "".join(path.read_text() for path in tmp_path.rglob("*") if path.suffix in (".json", ".yaml"))
    everything = written + " ".join(command)
    numbers = (task.layers, task.d_model, task.d_ffn, task.heads, task.batch_tokens, task.label_smoothing)
    for number in (*numbers, 1234, 617):
        assert str(number) in everything, number
    assert str(corpus) in everything


def test_peers_in_bfloat16_say_so(corpus: Path, tmp_path: Path) -> None:
    EoleBfloat16(PYTHON).prepare(tmp_path, TASKS["small"], corpus)
    assert json.loads((tmp_path / "eole.yaml").read_text())["training"]["compute_dtype"] == "bf16"
    MarianBfloat16(PYTHON).prepare(tmp_path, TASKS["small"], corpus)
    assert json.loads((tmp_path / "settings.json").read_text())["precision"] == "bf16"


def test_the_table_carries_the_share_of_the_limit() -> None:
    rounds = [training_speed.Round("deepwire", rate, 2 * rate, 4000.0, 1.0) for rate in (400.0, 500.0, 600.0)]
    limit = training_speed.Limit(50e6, 50e9, "bf16", 9_768)
    options = training_speed.argparse.Namespace(rounds=3, warmup=5, updates=20, note=None)
    lines = training_speed.as_table(TASKS["small"], rounds, {"deepwire": "0.1"}, limit, options)
    table = "\n".join(lines)
    assert limit.tokens_per_second == 1000
    assert "| deepwire | 0.1 | 500 | 400 | 600 | 50% | 1000 | 4000 | 1.00 |" in table
    assert "Limit: 1000 tokens/s, 50.0 MFLOP a token at 50 GFLOP/s (bf16" in table
