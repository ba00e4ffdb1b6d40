"""Word and OpenDocument: what is bold, or a link, goes with its words when the order changes."""

from __future__ import annotations

import io
import random
import re
import zipfile

import pytest
from aligned_texts import aligned, answer, backwards, package, straight, translated

from deepwire.data.text.sentences import SentenceSplitter
from deepwire.serve.documents.document import Options, in_order
from deepwire.serve.documents.registry import read_document
from deepwire.serve.documents.translation_plan import TranslationPlan

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
ODF = "urn:oasis:names:tc:opendocument:xmlns:office:1.0", "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
LINK = '<w:hyperlink w:anchor="there">{}</w:hyperlink>'


def docx(paragraph):
    body = f'<w:document xmlns:w="{WORD}"><w:body><w:p>{paragraph}</w:p></w:body></w:document>'
    return read_document("a.docx", package({"word/document.xml": body}), Options())


def odt(paragraph):
    spaces = f'xmlns:office="{ODF[0]}" xmlns:text="{ODF[1]}"'
    body = f"<office:text {spaces}><text:p>{paragraph}</text:p></office:text>"
    return read_document("a.odt", package({"content.xml": body}), Options())


def run(text, look=""):
    properties = "".join(f"<w:{mark}/>" for mark in look)
    return f"<w:r><w:rPr>{properties}</w:rPr><w:t>{text}</w:t></w:r>"


def paragraph_of(content, name):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        text = archive.read(name).decode()
    (found,) = re.findall(r"<(?:w|text):p[ >].*</(?:w|text):p>|<(?:w|text):p>.*</(?:w|text):p>", text)
    return found


def looks(document, order=None):
    """What stands in a paragraph of Word afterwards: text, look, and whether it is in the link."""
    pieces = [in_order(unit, [run.text for run in unit]) for unit in document.units]
    found = paragraph_of(
        document.render(translated(document, order) if order else pieces), "word/document.xml"
    )
    shown, linked = [], False
    pattern = r"<(/?)w:(hyperlink)|<w:r[ >](?:(?!</w:r>).)*?<w:t[^>]*>([^<]+)</w:t></w:r>"
    for part in re.finditer(pattern, found):
        if part[2]:
            linked = not part[1]
        else:
            look = re.search("<w:rPr>(.*)</w:rPr>", part[0])
            shown.append((part[3], "".join(re.findall(r"<w:(\w+)", look[1])) if look else "", linked))
    return shown


def test_bold_and_a_link_go_with_their_words():
    bold = run("zwei ") + run("drei", "b") + run(" vier ")
    document = docx(
        f"<w:pPr><w:jc/></w:pPr>{run('eins ')}{bold}{LINK.format(run('fünf', 'u'))}{run(' sechs')}"
    )
    assert looks(document, backwards) == [
        ("SECHS ", "", False),
        ("FÜNF", "u", True),
        (" VIER ", "", False),
        ("DREI", "b", False),
        (" ZWEI EINS", "", False),
    ]


def test_a_link_of_two_looks():
    inside = run("zwei ", "u") + run("drei", "ub")
    document = docx(run("eins eins ") + LINK.format(inside) + run(" vier"))
    assert looks(document, backwards) == [
        ("VIER ", "", False),
        ("DREI", "ub", True),
        (" ZWEI", "u", True),
        (" EINS EINS", "", False),
    ]


@pytest.mark.parametrize(
    "between",
    [
        "<w:r><w:br/></w:r>",
        "<w:r><w:footnoteReference/></w:r>",
        "<w:ins><w:r><w:t>neu</w:t></w:r></w:ins>",
        "<!-- x -->",
    ],
)
def test_with_anything_else_in_it_the_order_stays(between):
    document = docx(f"{run('eins zwei ')}{between}{run('drei vier', 'b')}")
    found = [look for _, look, _ in looks(document, backwards)]
    assert found == sorted(found)


def field(instruction, *result):
    begin, separate, end = (
        f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end")
    )
    return f"{begin}<w:r><w:instrText>{instruction}</w:instrText></w:r>{separate}{''.join(result)}{end}"


@pytest.mark.parametrize(
    "between",
    [
        field("PAGE", run("3")),
        field("REF", run("Bild 3")),
        field(' DATE \\@ "d. MMMM" ', run("3. "), run("Mai", "b")),
        field("TOC", run("Titel"), field("PAGEREF", run("Seite 3"))),
        LINK.format(run("titel ") + field("HYPERLINK", run("hier"))),
        f'<w:fldSimple w:instr=" DOCPROPERTY Titel">{run("ein Wort")}</w:fldSimple>',
        f'<w:fldSimple w:instr=" HYPERLINK x">{run("dort")}</w:fldSimple>',
        field("HYPERLINK", run("die "), run("Hilfe", "b")),
        LINK.format(run("dort")) + '<w:bookmarkStart w:id="1"/>',
        '<w:r><w:footnoteReference w:id="1"/></w:r>',
        '<m:oMath xmlns:m="math"><m:r><m:t>x</m:t></m:r></m:oMath>',
    ],
)
def test_what_is_between_two_runs_of_word_stays_there(between):
    document = docx(f"{run('Wort ')}{between}{run(' hier.')}")
    found = document.render(translated(document, straight))
    is_field = "HYPERLINK" not in between and "hyperlink" not in between
    expected = between if is_field else re.sub(r"(?<=<w:t>)[^<]+", lambda text: text[0].upper(), between)
    shown = paragraph_of(found, "word/document.xml").replace(' xml:space="preserve"', "")
    assert f"{run('WORT ')}{expected}{run(' HIER.')}" in shown


def test_in_a_link_the_result_of_another_field_stays():
    document = docx(LINK.format(run("titel eins ") + field("PAGEREF", run("Seite 3"))))
    found = paragraph_of(document.render(translated(document, straight)), "word/document.xml")
    assert re.findall("<w:t[^>]*>([^<]*)", found) == ["TITEL EINS ", "Seite 3"]


SEEN = "Siehe Bild 3 im Anhang", "See figure 3 in the appendix"


def test_what_stays_of_a_field_takes_the_place_of_its_translation():
    links = [(0, 0), (1, 1), (2, 2), (3, 3), (3, 4), (4, 5)]
    document = docx(run("Siehe ") + field("REF", run("Bild 3")) + run(" im Anhang"))
    plan = TranslationPlan(document.units, SentenceSplitter("de"), "en")
    found = document.render(plan.translated_units([answer(SEEN[1], aligned(*SEEN, links))]))
    texts = re.findall("<w:t[^>]*>([^<]*)", paragraph_of(found, "word/document.xml"))
    assert texts == ["See ", "Bild 3", " in the appendix"]


@pytest.mark.parametrize("space", ["\n   ", "\r\n", "  \n\n "])
def test_a_line_end_in_a_paragraph_is_a_space(space):
    documents = [odt(f"ein{space}hund"), odt(f"ein{space}<text:span>hund</text:span>")]
    documents += [docx(run(f"ein{space}hund")), docx(run("ein", "b") + run(f"{space}hund"))]
    for document in documents:
        assert "".join(run.text for unit in document.units for run in unit) == "ein hund"


def test_the_result_of_a_field_is_never_without_text():
    document = docx(run("Lies ") + field("HYPERLINK", run("die Hilfe")) + run(" jetzt"))
    known = {
        "Lies die Hilfe jetzt": "Read it now",
        "Lies": "Read it",
        "jetzt": "now",
        "die Hilfe": "the help",
    }
    plan = TranslationPlan(document.units, SentenceSplitter("de"))
    found = document.render(plan.translated_units([answer(known[text]) for text in plan.texts]))
    assert re.findall("<w:t [^>]*>([^<]*)", paragraph_of(found, "word/document.xml")) == [
        "Read ",
        "it",
        " now",
    ]


def test_what_stays_the_same_is_not_written_anew():
    text = '<w:r w:rsidR="1"><w:t>eins </w:t></w:r>' + run("zwei", "b")
    document = docx(text)
    same = [in_order(unit, [run.text for run in unit]) for unit in document.units]
    assert 'w:rsidR="1"' in paragraph_of(document.render(same), "word/document.xml")


@pytest.mark.parametrize("seed", range(15))
def test_no_word_is_lost_and_each_keeps_its_look(seed):
    generator = random.Random(seed)
    words = [f"w{number}" for number in range(generator.randint(3, 20))]
    text, expected = run("und und und "), {"UND": ("", False)}
    for word in words:
        look, linked = generator.choice(["", "", "b", "i", "bi"]), generator.random() < 0.2
        text += LINK.format(run(word, look)) if linked else run(word, look)
        text += run(" ", generator.choice(["", "b"]))
        expected[word.upper()] = look, linked
    found = looks(docx(text), lambda count: [0, 1, 2, *range(3, count)[::-1]])
    assert "".join(one for one, _, _ in found).split() == ["UND"] * 3 + [word.upper() for word in words[::-1]]
    shown = {word: (look, linked) for one, look, linked in found for word in one.split()}
    assert shown == expected


def test_spans_and_links_of_opendocument():
    span = '<text:span text:style-name="B">drei</text:span>'
    document = odt(f'eins zwei {span} vier <text:a href="x">fünf</text:a> sechs')
    found = paragraph_of(document.render(translated(document, backwards)), "content.xml")
    assert found == (
        '<text:p>SECHS <text:a href="x">FÜNF</text:a> VIER <text:span text:style-name="B">DREI</text:span> '
        "ZWEI EINS</text:p>"
    )
    document = odt(f"eins {span}<text:line-break/>zwei")
    found = paragraph_of(document.render(translated(document, backwards)), "content.xml")
    assert found.index("<text:span") < found.index("<text:line-break/>")
