"""What can be counted of the rules of CONTRIBUTING.md: sizes, file names, where tests lie, public names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import deepwire

ROOT = Path(__file__).parents[1]
SOURCE, TESTS = ROOT / "src" / "deepwire", ROOT / "tests"
SOURCES = sorted(SOURCE.rglob("*.py"))

MOST_LINES_OF_A_FILE, MOST_LINES_OF_A_FUNCTION, MOST_FILES_OF_A_NAME = 800, 60, 2

# Exceptions, each to be mended: an entry that needs none any longer fails its test.
LONG_FILES: set[str] = set()
LONG_FUNCTIONS: set[str] = set()
COMMON_FILE_NAMES = {"__init__.py"}

# Folders of tests that are of no single package.
OTHER_TESTS = {"contract", "documentation", "golden", "endtoend", "faults", "benchmarks", "examples"}

# Whoever uses deepwire from Python relies on these: one that is added goes here, one that is removed breaks
# somebody's program.
PUBLIC_NAMES = {
    "Callback",
    "Model",
    "Run",
    "StopReason",
    "TrainingParts",
    "TrainingSession",
    "UpdateResult",
    "Validation",
    "__version__",
    "build",
    "compare",
    "configure_process",
    "dry_run",
    "evaluate",
    "keep_memory",
    "load",
    "prepare",
    "register_aggregation",
    "register_connection",
    "register_fusion",
    "register_initialization",
    "register_metric",
    "register_mixer",
    "register_optimizer",
    "register_schedule",
    "train",
    "training_parts",
    "training_session",
}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and number of lines of every function, without its parameters: a command has many options."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            begin = node.body[0].lineno
            yield f"{name_of(path)}: {node.name}", (node.end_lineno or begin) - begin + 2


# The section of a docstring, and the names before the colon of each of its entries: "before, now: ...".
ARGUMENTS = re.compile(r"^Args:\n((?:(?: {4}.*)?(?:\n|$))+)", re.MULTILINE)
ENTRY = re.compile(r"^ {4}(\*{0,2}\w+(?:, \*{0,2}\w+)*):", re.MULTILINE)


def documented_arguments(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[str]:
    found = ARGUMENTS.search(ast.get_docstring(node) or "")
    names = [] if found is None else [name for entry in ENTRY.findall(found[1]) for name in entry.split(",")]
    return [name.strip(" *") for name in names]


def arguments(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[str]:
    """Those of a function, or of a class: of its `__init__`, or else the fields of a dataclass."""
    if isinstance(node, ast.ClassDef):
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                return arguments(member)
        return {ast.unparse(member.target) for member in node.body if isinstance(member, ast.AnnAssign)}
    known = node.args
    every = (*known.posonlyargs, *known.args, known.vararg, *known.kwonlyargs, known.kwarg)
    return {each.arg for each in every if each is not None}


# Most lines of each room: who adds says what leaves. All of src shall come down to 61,000.
MOST_LINES_OF_ROOMS = {
    "model": 13_719,
    "data": 7_146,
    "training": 6_155,
    "decoding": 5_628,
    "evaluation": 2_244,
    "checkpoint": 1_551,
    "config": 1_840,
    "cli": 4_255,
    "convert": 6_143,
    "serve": 6_068,
    "lab": 6_389,
}
MOST_LINES, MOST_FILES, MOST_LINES_OF_TESTS = 69_344, 328, 44_550


def lines_of(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


@pytest.mark.parametrize("room", MOST_LINES_OF_ROOMS)
def test_rooms_keep_to_their_budgets(room: str) -> None:
    assert lines_of((SOURCE / room).rglob("*.py")) <= MOST_LINES_OF_ROOMS[room]


def test_the_whole_keeps_to_its_budget() -> None:
    assert lines_of(SOURCES) <= MOST_LINES
    assert len(SOURCES) <= MOST_FILES
    assert lines_of(TESTS.rglob("*.py")) <= MOST_LINES_OF_TESTS


# Docstrings say what a thing is or does, so the subject comes first.
NO_SUBJECT = re.compile(r"(See that|What|That of|Those of|Of)\b")


def test_docstrings_begin_with_what_a_thing_is_or_does() -> None:
    documented = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    wrong = [
        f"{name_of(path)}: {getattr(node, 'name', 'the module')}"
        for path in SOURCES
        for node in ast.walk(parsed(path))
        if isinstance(node, documented) and NO_SUBJECT.match(ast.get_docstring(node) or "")
    ]
    assert wrong == []


def test_there_are_sources() -> None:
    assert len(SOURCES) > 200


def test_files_are_short() -> None:
    lines = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {name for name, count in lines.items() if count > MOST_LINES_OF_A_FILE} == LONG_FILES


def test_functions_are_short() -> None:
    lengths = [entry for path in SOURCES for entry in functions(path)]
    assert {name for name, count in lengths if count > MOST_LINES_OF_A_FUNCTION} == LONG_FUNCTIONS


def test_docstrings_name_arguments_that_there_are() -> None:
    seen, wrong = 0, []
    for path in SOURCES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                named = documented_arguments(node)
                seen += len(named)
                wrong += [
                    f"{name_of(path)}: {node.name}: {name}" for name in named if name not in arguments(node)
                ]
    assert wrong == []
    assert seen > 500


def test_a_file_name_tells_its_room() -> None:
    names = [path.name for path in SOURCES]
    common = {name for name in names if names.count(name) > MOST_FILES_OF_A_NAME}
    assert common == COMMON_FILE_NAMES


def test_the_folders_of_tests_mirror_those_of_the_sources() -> None:
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")} - {Path()}
    strange = [
        str(folder)
        for folder in sorted(folders)
        if folder.parts[0] not in OTHER_TESTS and not (SOURCE / folder).is_dir()
    ]
    assert strange == []


def test_every_package_is_tested_where_its_name_says() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    untested = {name for name in packages if not list((TESTS / name).rglob("test_*.py"))}
    assert untested == {"recipes"}


def test_the_public_names_are_these() -> None:
    """They are also what `from deepwire import` finds."""
    assert set(deepwire.__all__) == PUBLIC_NAMES
    for name in PUBLIC_NAMES:
        assert getattr(deepwire, name) is not None


def test_other_names_are_not_public() -> None:
    with pytest.raises(AttributeError, match="no attribute 'train_everything'"):
        deepwire.train_everything  # noqa: B018
