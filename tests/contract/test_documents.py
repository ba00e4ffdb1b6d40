"""One document of each kind is translated, and everything in it that is no text stays."""

# ruff: noqa: E501 - documents are as they are
from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from contract_runs import succeed
from contract_texts import EXACT, copy_of_old

SOURCE, TARGET = "Ein Hund rennt im Schnee.", "A dog is running in the snow"
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
ODF = "urn:oasis:names:tc:opendocument:xmlns"

DOCUMENTS = {
    "a.txt": "{}\n\n{}\n",
    "a.md": "# {}\n\n```\ncode = 1\n```\n\n- {}\n",
    "a.html": '<!DOCTYPE html>\n<html><body class="x"><p id="p1">{}</p><script>var a = "b";</script></body></html>\n',
    "a.srt": "1\n00:00:01,000 --> 00:00:02,500\n{}\n\n2\n00:00:03,000 --> 00:00:04,000\n{}\n",
    "a.vtt": "WEBVTT\n\nfirst\n00:01.000 --> 00:02.500 align:start\n{}\n",
    "a.json": '{{\n  "title": "{}",\n  "count": 3,\n  "list": [true, null, 1.50]\n}}\n',
}
PO = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n# a comment\n#: a.c:3\nmsgid "{}"\nmsgstr "{}"\n'
XLIFF = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">'
    '<file original="a" source-language="de" target-language="en" datatype="plaintext"><body>'
    '<trans-unit id="u1"><source>{}</source>{}<note>a note</note></trans-unit></body></file></xliff>\n'
)
PACKAGES = {
    "a.docx": (
        "word/document.xml",
        f'<w:document xmlns:w="{WORD}"><w:body><w:p><w:pPr><w:pStyle w:val="Title"/></w:pPr><w:r>'
        "<w:t>{}</w:t></w:r></w:p></w:body></w:document>",
        {
            "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
            '<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-'
            'officedocument.wordprocessingml.document.main+xml"/></Types>',
            "_rels/.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
            '<Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/'
            'officeDocument" Target="word/document.xml"/></Relationships>',
            "word/media/image1.png": "no text",
        },
    ),
    "a.odt": (
        "content.xml",
        f'<office:document-content xmlns:office="{ODF}:office:1.0" xmlns:text="{ODF}:text:1.0"><office:body>'
        '<office:text><text:p text:style-name="P1">{}</text:p></office:text></office:body>'
        "</office:document-content>",
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "META-INF/manifest.xml": '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:'
            'manifest:1.0"><manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/>'
            "</manifest:manifest>",
            "Pictures/a.png": "no text",
        },
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_old(tmp_path_factory.mktemp("documents"))


def translate(folder: Path, name: str) -> Path:
    """The translation of a document of the folder, written beside it."""
    succeed("translate-file", "model", "--input", name, *EXACT, cwd=folder)
    stem, _, ending = name.rpartition(".")
    return folder / f"{stem}.en.{ending}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_only_the_text_changes(folder: Path, name: str) -> None:
    form = DOCUMENTS[name]
    texts = form.count("{}")
    (folder / name).write_text(form.format(*[SOURCE] * texts), encoding="utf-8")
    assert translate(folder, name).read_text(encoding="utf-8") == form.format(*[TARGET] * texts)


def test_messages_get_their_translation(folder: Path) -> None:
    (folder / "a.po").write_text(PO.format(SOURCE, ""), encoding="utf-8")
    po = translate(folder, "a.po").read_text(encoding="utf-8")
    assert "# a comment\n#: a.c:3\n" in po
    assert f'msgid "{SOURCE}"\nmsgstr "{TARGET}"\n' in po


def test_units_get_their_target(folder: Path) -> None:
    (folder / "a.xlf").write_text(XLIFF.format(SOURCE, ""), encoding="utf-8")
    text = translate(folder, "a.xlf").read_text(encoding="utf-8")
    assert f"<source>{SOURCE}</source>" in text
    assert f">{TARGET}</target>" in text
    assert "<note>a note</note>" in text


@pytest.mark.parametrize("name", PACKAGES)
def test_only_the_text_of_a_package_changes(folder: Path, name: str) -> None:
    place, form, others = PACKAGES[name]
    with zipfile.ZipFile(folder / name, "w") as package:
        for other, content in {**others, place: form.format(SOURCE)}.items():
            package.writestr(other, content)
    with zipfile.ZipFile(translate(folder, name)) as package:
        assert set(package.namelist()) == {place, *others}
        text = package.read(place).decode().replace(' xml:space="preserve"', "")
        assert text.endswith(form.format(TARGET).partition("<w:body>")[2] or form.format(TARGET))
        for other in ("word/media/image1.png", "Pictures/a.png"):
            assert other not in others or package.read(other) == b"no text"
