"""What the parser in C makes of a text, the one in Python makes of it too."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from deepwire.config import yaml_tree
from deepwire.config.yaml_tree import Node, Problems, SourceLocation, parse_yaml
from deepwire.errors import UsageError

ROOT = Path(__file__).parents[2]
FILES = [*(ROOT / "src" / "deepwire" / "recipes").rglob("*.yaml"), *(ROOT / "examples").rglob("*.yaml")]
ODD = [
    *(
        "",
        "# nothing",
        "null",
        "a:",
        "a: [1, x y, 'q', {b: c}]",
        "{a: 1,}",
        "{a:1}",
        "a: 'x\n y'",
        "? a\n: b",
    ),
    *("a: |\n x\n y\nb:", "a: >\n  x\n\n  y", 'a: "\\x41"', "a: 1\r\nb: 2", "a: 1\na: 2", "a: é\u2028b: 1"),
    *("a:\n  -\n  - b\n", "---\na: 1\n...", "\ufeffa: 1", "a: ${env:NOT_SET_HERE}", "a: http://a.b:80/c"),
    *(
        "- [",
        "a: b: c",
        "a: 'b",
        "a: *x",
        "&a b",
        "!!x y",
        "---\na: 1\n---\nb: 2",
        "a: - b",
        '"\\q"',
        "[" * 99,
    ),
    *("a: \0", "a: \ud800", "a: @x", "a: 1\na: 2\nb: [", "a:\tb", "a: b\n\tc: d", "[a, b]: c", "- a\n b: c"),
]


def outcome(text: str) -> tuple[Node | None, list[str]] | str:
    problems = Problems()
    try:
        return parse_yaml(text, SourceLocation("file", 1, Path()), problems), problems.lines
    except UsageError as error:
        return f"{error}; {error.hint}"


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="this PyYAML has no parser in C")
def test_both_parsers_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, lines, and messages about what is wrong."""
    assert len(FILES) > 200
    texts = [*(path.read_text("utf-8") for path in FILES), *ODD]
    quick = [outcome(text) for text in texts]
    monkeypatch.setattr(yaml_tree, "_FAST_LOADER", None)
    for text, found in zip(texts, quick, strict=True):
        assert outcome(text) == found, text
