"""Runs made by hand, so that every number of the comparison is known."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_runs import ModelMaker, Store

from deepwire.checkpoint.model_files import write_manifest
from deepwire.errors import ModelError, UsageError
from deepwire.evaluation.comparison import PairedTest
from deepwire.evaluation.texts import SearchSettings, Text
from deepwire.lab.compare import ComparisonRequest, compare_runs, differing, example_table, flat, read_run
from deepwire.lab.finding import BarChart, Finding, Table
from deepwire.lab.subject import ParallelText, Scorer

RunMaker = Callable[..., str]


@pytest.fixture
def run(make_model: ModelMaker, store: Store, tmp_path: Path) -> RunMaker:
    """Writes a run directory with one checkpoint and gives its name."""

    def write(
        name: str, losses: list[float], encoder: dict[str, object] | None = None, **settings: object
    ) -> str:
        folder = tmp_path / "runs" / name
        model = store(make_model(encoder or {}), f"{name}.model", update=len(losses) * 10)
        (folder / "checkpoints").mkdir(parents=True)
        shutil.move(model, folder / "checkpoints" / f"update-{len(losses) * 10:06d}")
        everything = {
            "seed": 1,
            "run": str(folder),
            "model": {"encoder": encoder or {}},
            "training": {},
            **settings,
        }
        (folder / "config.resolved.json").write_text(json.dumps(everything))
        lines = []
        for place, loss in enumerate(losses, 1):
            entry = {"kind": "train", "update": place * 10, "nll": loss, "target_tokens": place * 1e6}
            lines.append(entry | {"seconds": place * 3600.0, "tokens_per_second": 100.0 + place})
            lines.append(
                {"kind": "valid", "update": place * 10, "nll": loss + 0.5, "perplexity": 10.0 - place}
            )
        (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return str(folder)

    return write


def table(finding: Finding, title: str) -> Table:
    return next(one for one in finding.tables if one.title == title)


def compared(models: list[str], text: tuple[Path, Path] | None = None, **more: Any) -> Finding:
    source, reference = text or (None, None)
    paired = more.pop("paired", PairedTest("bootstrap"))
    request = ComparisonRequest(
        models, paired, source, reference, translate=text is not None, device="cpu", precision="fp32", **more
    )
    return compare_runs(request, lambda line: None)


def test_what_the_runs_recorded_stands_side_by_side(run: RunMaker) -> None:
    first = run("a", [3.0, 2.0], training={"batch": 4}, data={"train": [{"prefix": "x"}]})
    second = run(
        "b",
        [3.5, 2.5, 1.5],
        {"connection": "depth_lstm"},
        training={"batch": 8},
        data={"train": [{"prefix": "x"}]},
    )
    finding = compared([first, second])
    assert finding.title == "2 runs side by side: a, b"
    overview = table(finding, "Overview").rows
    assert [row[0] for row in overview] == ["a", "b"]
    assert [row[2:] for row in overview] == [(20, 2.0, 2.0, 8.0, 101.5), (30, 3.0, 3.0, 7.0, 102.0)]
    assert overview[0][1] != overview[1][1]
    differences = {row[0]: row[1:] for row in table(finding, "Settings that differ").rows}
    assert differences == {
        "model.encoder": ("{}", None),
        "model.encoder.connection": (None, "depth_lstm"),
        "training.batch": ("4", "8"),
    }


def at_update(run: str, update: int, state: dict[str, object] | None = None) -> str:
    """An earlier checkpoint of a run; with what training keeps of its own progress, if given."""
    newest = max((Path(run) / "checkpoints").glob("update-*"))
    earlier = newest.with_name(f"update-{update:06d}")
    shutil.copytree(newest, earlier)
    record = json.loads((earlier / "config.json").read_text())
    record["metadata"]["update"] = update
    (earlier / "config.json").write_text(json.dumps(record))
    if state is not None:
        (earlier / "state.json").write_text(json.dumps(state))
    write_manifest(earlier)
    return f"{run}@update-{update}"


def test_facts_are_those_of_the_checkpoint(run: RunMaker) -> None:
    """Both rows had the tokens, hours and perplexity of the end of the run."""
    first = run("a", [3.0, 2.0, 1.5])
    state = {"update": 15, "target_tokens": 1_400_000, "seconds": 5400.0, "scores": {"perplexity": 8.5}}
    models = [f"{first}@last", at_update(first, 10), at_update(first, 15, state), at_update(first, 17)]
    finding = compared(models)
    overview = table(finding, "Overview")
    assert [row[2:6] for row in overview.rows] == [
        (30, 3.0, 3.0, 7.0), (10, 1.0, 1.0, 9.0), (15, 1.4, 1.5, 8.5), (17, None, None, None),
    ]  # fmt: skip


def test_settings_that_differ_are_rows() -> None:
    first = flat({"a": {"type": "x", "size": 1}, "b": {"type": "y", "size": 1}, "c": 1, "run": "first"})
    second = flat({"a": {"type": "z", "deep": {"er": 2}}, "b": {"type": "y", "size": 2}, "c": 1})
    assert differing([first, second]) == {
        "a.deep.er": [None, "2"],
        "a.size": ["1", None],
        "a.type": ["x", "z"],
        "b.size": ["1", "2"],
    }
    assert differing([first, first]) == {}


def test_learning_curves_are_the_points_of_the_record(run: RunMaker) -> None:
    finding = compared([run("a", [3.0, 2.0]), run("b", [3.5])])
    training, validation = finding.figures
    assert [(one.name, one.x, one.y) for one in training.series] == [
        ("a", (10, 20), (3.0, 2.0)),
        ("b", (10,), (3.5,)),
    ]
    assert [one.y for one in validation.series] == [(3.5, 2.5), (4.0,)]


def test_scores_are_tested_against_the_first(run: RunMaker, text: tuple[Path, Path]) -> None:
    first, second = run("a", [3.0]), run("b", [3.0], {"connection": "depth_lstm"})
    finding = compared([first, f"{first}@last", second], text, examples=2)
    scores = table(finding, "Scores")
    assert [column.name for column in scores.columns][:6] == [
        "model",
        "BLEU",
        "BLEU difference",
        "from",
        "to",
        "p",
    ]
    names = [row[0] for row in scores.rows]
    assert names == ["a", "a@last", "b"]
    assert scores.rows[0][2:6] == (None,) * 4
    assert scores.rows[1][2] == 0
    assert scores.rows[1][5] == 1.0
    assert any(note.startswith("BLEU|nrefs:1|") for note in finding.notes)
    (bars,) = [figure for figure in finding.figures if isinstance(figure, BarChart)]
    assert bars.categories == ("a", "a@last", "b")
    for series in bars.series:
        for low, value, high in zip(series.low, series.y, series.high, strict=True):
            assert low <= value <= high
    assert any("translated in fp32" in note for note in finding.notes)
    assert finding.provenance.data[0].endswith("3 pairs")


def test_examples_are_the_lines_that_differ_most() -> None:
    reference = ["a small dog sleeps", "two cats play", "the end"]
    ours = ["a small dog sleeps", "two cats play", "the beginning"]
    theirs = ["a small dog sleep", "seven birds", "the beginning"]
    pairs = ParallelText(Text("s", ["eins", "zwei", "drei"]), Text("r", reference))
    translations = [Text("a", ours), Text("b", theirs)]
    rows = example_table(translations, pairs, 1).rows
    assert [row[:2] for row in rows] == [(2, "source"), (2, "reference"), (2, "a"), (2, "b")]
    assert [row[3] for row in rows] == ["zwei", "two cats play", "two cats play", "seven birds"]
    assert rows[2][2] == 100
    # The third line is the same in both, so it is no example, however many are asked for.
    assert {row[0] for row in example_table(translations, pairs, 9).rows} == {1, 2}


def test_mistakes_are_named(run: RunMaker, tmp_path: Path) -> None:
    name = run("a", [3.0])
    with pytest.raises(UsageError, match="two or more systems"):
        compared([name])
    with pytest.raises(ModelError, match="no such model"):
        compared([name, str(tmp_path / "absent")])
    with pytest.raises(UsageError, match="unknown paired test"):
        compared([name, name], (tmp_path / "s", tmp_path / "t"), paired=PairedTest("t"))
    (Path(name) / "config.resolved.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.resolved\.json"):
        read_run(name)


@pytest.mark.parametrize(
    ("metadata", "name", "tokenizer"),
    [({"target": "zh"}, "r", "zh"), ({"target": "target"}, "r.zh", "zh"), ({"target": "de"}, "r.zh", "13a")],
)
def test_analyses_score_in_the_language_of_the_model_or_of_the_reference(
    make_model: ModelMaker, store: Store, metadata: dict[str, object], name: str, tokenizer: str
) -> None:
    warnings: list[str] = []
    pairs = ParallelText(Text("s", ["a dog sleeps"]), Text(name, ["一只狗在院子里睡觉"]))
    model = store(make_model({}), **metadata)
    scorer = Scorer(model, pairs, SearchSettings({}, "cpu", "fp32"), warnings.append)
    assert f"tok:{tokenizer}" in scorer.settings["BLEU"]
    assert scorer.score(["两只狗在院子里睡觉"]) > 50 or tokenizer == "13a"
    assert len(warnings) == (tokenizer == "13a")
