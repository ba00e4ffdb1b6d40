from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BeforeValidator, Field, model_validator

from deepwire.config.choice import by_name_or
from deepwire.config.counts import Count, Duration
from deepwire.config.section import Section
from deepwire.config.settings_reader import Settings, SettingsDocument, read_settings
from deepwire.config.yaml_tree import Problems, SourceLocation, parse_yaml, plain
from deepwire.errors import UsageError


class Plain(Section):
    type: Literal["plain"] = "plain"
    eps: float = 1e-5


class Gated(Section):
    type: Literal["gated"] = "gated"
    share: Literal["all", "gates", "none"] = "gates"
    size: int = Field(4, ge=1)
    order: Literal[2, 4] = 2


def _named(value: object) -> object:
    return {"type": value} if isinstance(value, str) else value


Connection = Annotated[Plain | Gated, Field(discriminator="type"), BeforeValidator(_named)]


class Patience(Section):
    type: Literal["patience"] = "patience"
    rounds: int = 5
    least: int = 0


class Never(Section):
    type: Literal["never"] = "never"


class Other(Section):
    type: Literal["other"] = "other"
    least: int = 0


StopRule = Annotated[Patience | Never | Other, Field(discriminator="type"), by_name_or("patience")]


class Corpus(Section):
    prefix: Path
    weight: float = Field(1.0, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"prefix": value} if isinstance(value, str) else value


class Data(Section):
    source: str = "de"
    train: Annotated[list[Corpus], BeforeValidator(lambda v: v if isinstance(v, list) else [v])] = Field([])
    column: int | str | None = None


class Model(Section):
    d_model: int = 8
    heads: int = 2
    connection: Connection = Plain()

    @model_validator(mode="after")
    def _divides(self) -> Model:
        if self.d_model % self.heads:
            raise ValueError(f"heads ({self.heads}) does not divide d_model ({self.d_model})")
        return self


class Training(Section):
    learning_rate: float = 1e-3
    max_updates: Count = 10
    stop: Duration | None = None


class Run(Section):
    seed: int = 1
    data: Data = Data()
    model: Model = Model()
    training: Training = Training()
    note: dict[str, float] | None = None
    stop_rule: StopRule = Patience()
    rates: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(1,), min_length=1)


def locate(name: str, parent: SettingsDocument | None) -> SettingsDocument:
    path = Path(name) if parent is None else parent.path.parent / name
    if not path.exists():
        raise UsageError(f"{name}: no such file")
    return SettingsDocument(path.resolve(), path.name, path.parent)


@pytest.fixture
def read(tmp_path: Path):
    """Write run.yaml (and more files) and read it."""

    def reader(text: str | bytes, *overrides: str, **files: str) -> Settings[Run]:
        path = tmp_path / "run.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        for name, content in files.items():
            (tmp_path / f"{name}.yaml").write_text(content)
        return read_settings(Run, str(path), overrides, locate=locate, own_keys=frozenset({"note"}))

    return reader


@pytest.fixture
def mistakes(read):
    """The lines of the error that a run file causes."""

    def lines(text: str | bytes, *overrides: str, **files: str) -> list[str]:
        with pytest.raises(UsageError) as caught:
            read(text, *overrides, **files)
        assert caught.value.exit_code == 2
        return caught.value.message.splitlines()

    return lines


def test_values_of_every_kind(read) -> None:
    run = read(
        "seed: 3\ndata: {source: no, train: [a, {prefix: b, weight: 2}]}\ntraining: {learning_rate: 1e-4}\n"
    )
    assert run.section.seed == 3
    assert run.section.data.source == "no"
    assert run.section.data.train == [Corpus(prefix=Path("a")), Corpus(prefix=Path("b"), weight=2)]
    assert run.section.training.learning_rate == 1e-4


def test_overrides_are_yaml_and_the_last_wins(read) -> None:
    run = read(
        "model: {d_model: 4}",
        "model.d_model=16",
        "model.d_model=32",
        "data.train=[a,b]",
        "training.max_updates=2k",
        "model.connection={type: gated, share: all}",
    ).section
    assert run.model == Model(d_model=32, connection=Gated(share="all"))
    assert [c.prefix for c in run.data.train] == [Path("a"), Path("b")]
    assert run.training.max_updates == 2000


def test_extends_merges_deeply_and_later_wins(read) -> None:
    run = read(
        "extends: base.yaml\nmodel: {heads: 4}\n",
        base="extends: root.yaml\nseed: 7\nmodel: {d_model: 16, heads: 1}\n",
        root="seed: 5\ntraining: {max_updates: 3}\nnote: {a: 1}\n",
    )
    assert run.section == Run(seed=7, model=Model(d_model=16, heads=4), training=Training(max_updates=3))
    assert str(run.location_of(("model", "heads"))) == "run.yaml:2"
    assert str(run.location_of(("training", "max_updates"))) == "root.yaml:2"
    assert run.origins()["model.d_model"] == "base.yaml:3"


@pytest.mark.parametrize(
    ("base", "later", "result"),
    [
        ("{type: gated, size: 9}", "{share: all}", Gated(size=9, share="all")),
        ("{type: gated, size: 9}", "{type: gated, share: all}", Gated(size=9, share="all")),
        ("{type: gated, size: 9}", "{type: plain}", Plain()),
        ("{type: gated, size: 9}", "gated", Gated()),
        ("gated", "{share: none}", Gated(share="none")),
        ("gated", "plain", Plain()),
    ],
)
def test_how_a_chosen_part_is_refined_or_replaced(read, base: str, later: str, result: Section) -> None:
    by_file = read(
        f"extends: base.yaml\nmodel: {{connection: {later}}}", base=f"model: {{connection: {base}}}"
    )
    by_override = read(f"model: {{connection: {base}}}", f"model.connection={later}")
    assert by_file.section.model.connection == by_override.section.model.connection == result


def test_a_mapping_without_a_type_is_of_the_default_one(read, mistakes) -> None:
    """So another type replaces it, and the same one refines it."""
    base = "stop_rule: {rounds: 3}"
    for later, result in (
        ("{type: patience, least: 2}", Patience(rounds=3, least=2)),
        ("{type: never}", Never()),
        ("never", Never()),
        ("{least: 2}", Patience(rounds=3, least=2)),
    ):
        by_file = read(f"extends: base.yaml\nstop_rule: {later}", base=base)
        assert by_file.section.stop_rule == read(base, f"stop_rule={later}").section.stop_rule == result
    assert read("seed: 1", "stop_rule.least=4", "stop_rule.type=other").section.stop_rule == Other(least=4)
    assert mistakes("stop_rule: {rounds: x, type: never}") == [
        "run.yaml:1: stop_rule.rounds: unknown key (known: type)"
    ]


def test_environment_variables(read, mistakes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "12")
    monkeypatch.delenv("NOWHERE", raising=False)
    assert read("seed: ${env:HERE}\ndata: {source: 'x${env:HERE}y'}").section.data.source == "x12y"
    assert mistakes("data:\n  source: ${env:NOWHERE}\nseed: ${other}") == [
        "run.yaml:2: data.source: the environment variable NOWHERE is not set",
        "run.yaml:3: seed: ${other} is not understood; write ${env:NAME}",
    ]


def test_every_mistake_is_reported_with_its_line(mistakes) -> None:
    lines = mistakes(
        "seed: x\ndata:\n  train: [a, {prefix: b, weight: -1, wieght: 2}]\n"
        "model:\n  connection:\n    type: gated\n    share: al\n    eps: 1\n"
        "training:\n  lerning_rate: 1\n  max_updates: many\n  beam: 2\n",
        "model.d_model=[1]",
        "nothing=1",
    )
    assert lines == [
        "command line: model.d_model: must be a whole number, not a list",
        "command line: nothing: unknown key (known: seed, data, model, training, note, stop_rule, rates)",
        "run.yaml:1: seed: must be a whole number, not 'x'",
        "run.yaml:3: data.train.1.weight: must be greater than 0.0, not -1",
        "run.yaml:3: data.train.1.wieght: unknown key (did you mean data.train.1.weight?)",
        "run.yaml:7: model.connection.share: must be all, gates or none, not 'al' (did you mean all?)",
        "run.yaml:8: model.connection.eps: unknown key (known: type, share, size, order)",
        "run.yaml:10: training.lerning_rate: unknown key (did you mean training.learning_rate?)",
        "run.yaml:11: training.max_updates: must be a whole number such as 4096, 4k or 1.5M, not 'many'",
        "run.yaml:12: training.beam: unknown key (known: learning_rate, max_updates, stop)",
    ]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"", "run.yaml: is empty"),
        (b"- a\n- b\n", "run.yaml:1: a run file holds keys (like 'data:'), not a list"),
        (b"seed: 1\nmodel:\n\td_model: 2\n", "run.yaml:3: a tab is used where YAML needs spaces"),
        (b"seed: 1\nmodel: {d_model: 2\n", "not valid YAML"),
        (b"seed: 1\ndata: \xff\n", "run.yaml:2: is not UTF-8 (byte 0xff)"),
        (b"seed: 1\n---\nseed: 2\n", "a second document"),
        (b"a: &x 1\nb: *x\n", "anchors and aliases"),
        (b"a: " + b"[" * 100_000, "nested more than"),
        (b"seed: !!int 1\n", "run.yaml:1: tags"),
        (b"#" * 5_000_000, "larger than 4 MiB"),
    ],
)
def test_what_is_no_run_file(mistakes, text: bytes, part: str) -> None:
    (line,) = mistakes(text)
    assert line.startswith("run.yaml")
    assert part in line


def test_yaml_never_executes(mistakes, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    for tag in (
        "!!python/object/apply:os.system",
        "!!python/object/new:os.system",
        "!!python/name:os.system",
    ):
        assert "are not supported" in mistakes(f"seed: {tag} ['touch {canary}']")[0]
        assert "are not supported" in mistakes("seed: 1", f"seed={tag} ['touch {canary}']")[0]
    assert not canary.exists()


def test_missing_files_and_directories(read, mistakes, tmp_path: Path) -> None:
    assert mistakes("extends: gone.yaml") == ["run.yaml:1: extends: gone.yaml: no such file"]
    os.mkfifo(tmp_path / "pipe.yaml")
    assert mistakes("extends: pipe.yaml") == ["run.yaml:1: extends: pipe.yaml: is not a regular file"]
    assert mistakes("extends: [a]") == [
        "run.yaml:1: extends: must be a recipe or the path of a file, not a list"
    ]


def test_a_cycle_is_refused(mistakes) -> None:
    assert mistakes("extends: a.yaml", a="seed: 1\nextends: b.yaml", b="extends: a.yaml") == [
        "b.yaml:1: extends: a.yaml extends itself through this file"
    ]
    assert mistakes("extends: run.yaml") == ["run.yaml:1: extends: run.yaml extends itself through this file"]


words = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=8)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=10,
)


@given(values)
def test_the_tree_holds_what_was_written(value: object) -> None:
    import json

    text = json.dumps({"top": value}, ensure_ascii=False)
    problems = Problems()
    node = parse_yaml(text.replace("${", ""), SourceLocation("x", 1, Path()), problems)
    assert node is not None
    assert plain(node) == json.loads(text.replace("${", ""))


@settings(max_examples=300)
@given(st.text(alphabet="abd: \n-[]{}&*!|>'\"#?%@`,~\t0.5e", max_size=60))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    problems = Problems()
    refused: list[str] = []
    try:
        parse_yaml(text, SourceLocation("x", 1, Path()), problems)
    except UsageError as error:
        refused = error.message.split("\n")
    assert all(re.match(r"x:\d+: \S", line) for line in [*refused, *problems.lines])
