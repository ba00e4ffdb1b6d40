from __future__ import annotations

import io
import sys

import pytest

import deepwire
from deepwire.cli.main import main

QUIET = ("--device", "cpu", "--precision", "fp32", "--quiet")


@pytest.fixture(scope="module")
def save():
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parents[1] / "serve"))
    from conftest import save

    return save


@pytest.fixture(scope="module")
def model(save, tmp_path_factory):
    return save(tmp_path_factory.mktemp("models") / "de-en")


def test_a_document_stands_beside_the_other(model, tmp_path):
    document = tmp_path / "a.txt"
    document.write_text("ein hund\n\nzwei. Drei\n")
    assert main(["translate-file", str(model), "--input", str(document), *QUIET]) == 0
    one, two, three = deepwire.load(model, "cpu", "fp32").translate(["ein hund", "zwei.", "Drei"])
    assert (tmp_path / "a.en.txt").read_text() == f"{one}\n\n{two} {three}\n"


def test_a_document_is_replaced_only_by_name(model, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("ein hund\n")
    (tmp_path / "a.en.txt").write_text("by hand\n")
    command = ["translate-file", str(model), "--input", "a.txt", "--from", "de", *QUIET]
    refused(2, "a.en.txt: exists already\nhint: replace it with --output a.en.txt, or", *command)
    assert (tmp_path / "a.en.txt").read_text() == "by hand\n"
    assert main([*command, "--output", "a.en.txt"]) == 0
    assert (tmp_path / "a.en.txt").read_text() != "by hand\n"


def test_a_terminal_sees_how_far_a_document_is(model, tmp_path, monkeypatch):
    document = tmp_path / "a.html"
    document.write_text("<p>ein hund</p>" + "<p>zwei</p>" * 3 + f"<p>{'katze' * 400}</p>")
    monkeypatch.setenv("TERM", "xterm")
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", screen)
    assert main(["translate-file", str(model), "-i", str(document), *QUIET[:-1]]) == 0
    said = screen.getvalue()
    assert "reading a.html" in said
    assert "\r\x1b[Kwarning: " in said, "a line of its own"
    assert "translating 2 of 2 sentences (100%)" in said


def test_paths_into_json(model, tmp_path, capsys):
    document = tmp_path / "a.json"
    document.write_text('{"a": "ein hund", "b": "zwei"}')
    output = tmp_path / "b.json"
    command = [
        "translate-file",
        str(model),
        "-i",
        str(document),
        "-o",
        str(output),
        "--json-path",
        "a",
        "--json-path",
        "items[*].title",
        *QUIET,
    ]
    assert main(command) == 0
    assert capsys.readouterr().err == f"warning: {document}: no string is under items[*].title\n"
    assert output.read_text().endswith('"b": "zwei"}')
    assert "ein hund" not in output.read_text()


@pytest.mark.parametrize(
    ("name", "content", "options", "code", "expected"),
    [
        ("a.pdf", "", [], 2, "files ending in .pdf cannot be translated"),
        ("a.docx", "broken", [], 3, "a.docx: a damaged file"),
        ("a.po", 'msgid "a"\n"b\nmsgstr ""\n', [], 3, "a.po:2: no line of a gettext catalogue, as "),
        ("a.txt", "ein", ["-o", "o.docx"], 2, "the translation of a.txt is a .txt file too"),
        ("a.txt", None, [], 3, "a.txt: no such file"),
        ("a.txt", "ein", ["--json-path", "a"], 2, "--json-path has an effect only on .json files"),
        ("a.txt", "ein", ["--output", "a.txt"], 2, "is a text that is read"),
        ("a.txt", "ein", ["--to", "fr"], 2, "the model translates from 'de' to 'en', not to 'fr'"),
        ("a.txt", "ein", ["--from", "fr"], 2, "the model translates from 'de' to 'en', not from 'fr'"),
    ],
)  # fmt: skip
def test_mistakes_are_one_clear_line(
    model, tmp_path, monkeypatch, refused, name, content, options, code, expected
):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / name).write_text(content)
    refused(code, expected, "translate-file", model, "--input", name, *options, *QUIET)
    assert sorted(path.name for path in tmp_path.iterdir()) == ([] if content is None else [name])
