"""Inline markup in translations: nothing is lost, all is well nested, and it is at its own words."""

# ruff: noqa: E501 - documents stand here as they are

from __future__ import annotations

import html
import json
import random
import re

import pytest
from aligned_texts import (
    aligned,
    answer,
    backwards,
    is_nested,
    markup,
    package,
    part_of,
    shuffled,
    tags_of,
    translated,
)
from lxml import etree

from deepwire.data.text.sentences import SentenceSplitter
from deepwire.serve.documents.document import Options
from deepwire.serve.documents.hypertext import html_text
from deepwire.serve.documents.registry import read_document
from deepwire.serve.documents.translation_plan import TranslationPlan


def page(source, order):
    document = html_text(source)
    return document.text_with(translated(document, order))


def letters(text):
    return re.sub(r"\s+", "", re.sub("<[^<>]*>", "", text))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("ich habe <b>das Buch</b> gelesen", "GELESEN <b>BUCH DAS</b> HABE ICH"),
        ("<a>gestern</a> ging er", "ER GING <a>GESTERN</a>"),
        ("<b>rot <i>und</i> blau</b> hier", "HIER <b>BLAU <i>UND</i> ROT</b>"),
        ("ein <b>Wort</b> <i>mehr</i>", "<i>MEHR</i> <b>WORT</b> EIN"),
        ("rufe <code>foo()</code> jetzt auf", "AUF JETZT <code>foo()</code> RUFE"),
        ("Bild<img src=x> hier", "HIER BILD<img src=x>"),
        ("eins <img src=x> zwei", "<img src=x> ZWEI EINS"),
        ("eins <img src=x><wbr> zwei drei", "DREI <img src=x><wbr> ZWEI EINS"),
        ("eins <sup><a href=n>2</a></sup> drei", "DREI <sup><a href=n>2</a></sup> EINS"),
        # An element of two sentences stands together.
        ("Null <b>eins. Zwei drei.</b>", "<b>EINS. NULL DREI. ZWEI</b>"),
    ],
)
def test_elements_are_at_the_words_that_belong_to_theirs(source, expected):
    assert page(source, backwards) == expected


def elements(text):
    """The words within each element, by the number that it has."""
    found: dict[str, set[str]] = {}
    stack: list[str] = []
    for end, number, word in re.findall(r'<(/?)[a-z]+(?: n="(\d+)")?[^<>]*>|(\w+)', text):
        if word:
            for one in stack:
                found[one].add(word.upper())
        elif end:
            stack.pop()
        elif number:
            stack.append(number)
            found[number] = set()
    return found


def test_html_keeps_every_tag_nested_and_the_text():
    for seed in range(100):
        source = f"<p>{markup(seed)}</p>"
        document = html_text(source)
        pieces = translated(document, shuffled(seed))
        found = document.text_with(pieces)
        assert tags_of(found) == tags_of(source)
        assert is_nested(found), source
        assert letters(found) == "".join(piece.text for unit in pieces for piece in unit).replace(" ", "")
        assert sorted(letters(found)) == sorted(letters(source).upper())


def test_elements_whose_words_stay_together_keep_them():
    for source in (markup(seed, point="", between=" ") for seed in range(100)):
        if letters(source) and not re.search(r">\s*</", source):
            assert elements(page(source, backwards)) == elements(source)


def xliff(version, source):
    """A file with one segment, of markup as `markup` makes it."""
    element, point = ("g", "x") if version == "1.2" else ("pc", "ph")
    source = source.replace("span", element).replace("<wbr>", f"<{point}/>")
    body = f"<source>{source.replace(' n=', ' id=')}</source>"
    unit = (
        f"<trans-unit>{body}</trans-unit>" if version == "1.2" else f"<unit><segment>{body}</segment></unit>"
    )
    return f'<xliff version="{version}"><file>{unit}</file></xliff>'.encode()


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("version", ["1.2", "2.0"])
def test_xliff_keeps_every_element(seed, version):
    document = read_document("a.xlf", xliff(version, markup(seed, ("span",))), Options("de", "en"))
    found = document.render(translated(document, shuffled(seed))).decode()
    root = etree.fromstring(found.encode())
    source, target = root.find(".//source"), root.find(".//target")
    if document.units:
        kept = [
            sorted((one.tag, one.get("id", "")) for one in side.iterdescendants())
            for side in (source, target)
        ]
        assert kept[0] == kept[1]
        assert sorted(letters("".join(target.itertext()))) == sorted(
            letters("".join(source.itertext())).upper()
        )


def target_of(source):
    """The target that a segment of XLIFF 1.2 gets, its words backwards."""
    unit = f'<trans-unit id="1"><source>{source}</source></trans-unit>'
    content = f'<xliff version="1.2"><file>{unit}</file></xliff>'
    document = read_document("a.xlf", content.encode(), Options("de", "en"))
    return document.render(translated(document, backwards)).decode().partition("<target")[2]


def test_pairs_of_codes_go_with_their_words():
    pair = '<bpt id="1">&lt;b&gt;</bpt>', '<ept id="1">&lt;/b&gt;</ept>'
    found = target_of(f'ich habe {pair[0]}das <g id="2">Buch</g>{pair[1]} gelesen<x id="3"/>')
    assert f'GELESEN {pair[0]}<g id="2">BUCH</g> DAS{pair[1]} HABE ICH<x id="3"/><' in found


def test_a_code_without_its_other_half_leaves_the_order_as_it_is():
    found = target_of('eins <bpt id="1"/>zwei <g id="2">drei</g>')
    order = [found.index(part) for part in ("<bpt", "<g ", "</g>")]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("auf der **Straße** [Link](http://a.de/b_c)", "[LINK](http://a.de/b_c) **STRASSE** DER AUF"),
        ("ein *sehr **guter** Hund* hier", "HIER *HUND **GUTER** SEHR* EIN"),
        ("rufe `foo()` auf ![Bild](a.png)", "![BILD](a.png) AUF `foo()` RUFE"),
        ("5 * 3 <b>ist</b> _fünfzehn_", "_FÜNFZEHN_ <b>IST</b> 3 * 5"),
    ],
)
def test_markdown(source, expected):
    document = read_document("a.md", source.encode(), Options("de", "en"))
    assert document.render(translated(document, backwards)).decode() == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("**roter** *großer* ~~x~~ Hund", "*DOG*"),
        ("ein **![](a.png)** Hund", "**![](a.png)** DOG"),
    ],
)
def test_emphasis_without_words_leaves_no_signs(source, expected):
    """Four asterisks are no emphasis of nothing, but text."""
    document = read_document("a.md", source.encode(), Options("de", "en"))
    plan = TranslationPlan(document.units, SentenceSplitter("de"), "en")
    assert document.render(plan.translated_units([answer("DOG")])).decode().strip() == expected


TAGGED = [
    ("ich habe <b>das Buch</b> gelesen", "GELESEN <b>BUCH DAS</b> HABE ICH"),
    ("ich <A x=1>habe <i>das</i> %s</A> gelesen", "GELESEN <A x=1>%s <i>DAS</i> HABE</A> ICH"),
    ("das Bild<img> <icon/>hier", "<icon/>HIER BILD<img> DAS"),
    ("lies <link>das da</link> hier", "HIER <link>DA DAS</link> LIES"),
    ("eins zwei<br>drei vier", "ZWEI EINS<br>VIER DREI"),
    ("<p>eins <b>zwei</b></p><p>drei vier</p>", "<p><b>ZWEI</b> EINS</p><p>VIER DREI</p>"),
    ("kann <file> nicht<p>lesen", "NICHT <file> KANN<p>LESEN"),
    # Where tags are no pairs, they keep their order.
    ("das </b>rote <b>Haus", "HAUS </b>ROTE <b>DAS"),
    ("das <b>rote Haus", "<b>HAUS ROTE DAS"),
    ("<b>das <i>rote</b> Haus</i>", "<b>HAUS <i>ROTE</b> DAS</i>"),
]


def in_json(text):
    return json.dumps([text]).replace("/", "\\/"), lambda found: json.loads(found)[0]


def in_po(text):
    return f'msgid "{text}"\nmsgstr ""\n', lambda found: found.partition('msgstr "')[2][:-2]


def in_xliff(text):
    escaped = html.escape(text)
    unit = f'<trans-unit id="1"><source>{escaped}</source></trans-unit>'
    content = f'<xliff version="1.2"><file>{unit}</file></xliff>'
    return content, lambda found: etree.fromstring(found.encode()).findtext(".//target")


@pytest.mark.parametrize(("name", "form"), [("a.json", in_json), ("a.po", in_po), ("a.xlf", in_xliff)])
@pytest.mark.parametrize(("source", "expected"), TAGGED)
def test_tags_in_the_text_of_a_message_are_elements(name, form, source, expected):
    content, read = form(source)
    document = read_document(name, content.encode(), Options("de", "en"))
    found = document.render(translated(document, backwards)).decode()
    assert read(found) == expected


def test_without_links_nothing_is_lost():
    document = html_text("<p>ein <b>roter</b> <img src=a> Hund <code>x()</code></p>")
    plan = TranslationPlan(document.units, SentenceSplitter("de"), "en")
    found = document.text_with(
        plan.translated_units([answer("A RED DOG", aligned(plan.texts[0], "A RED DOG", []))])
    )
    assert tags_of(found) == tags_of("<p><b></b><img src=a><code></code></p>")
    assert letters(found).replace("x()", "") == "AREDDOG"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('<x id="1"/> 3 hunde', '<x id="1"/> HUNDE 3'),
        ('das haus <x id="1"/>', 'HAUS DAS <x id="1"/>'),
        ('<x id="1"/> <x id="2"/> ein hund <x id="3"/>', '<x id="1"/> <x id="2"/> HUND EIN <x id="3"/>'),
        (' <x id="1"/> ein hund <x id="2"/> ', ' <x id="1"/> HUND EIN <x id="2"/> '),
        ('<x id="1"/> <g id="2">ein hund</g>', '<x id="1"/> <g id="2">HUND EIN</g>'),
        ('ein hund<x id="1"/> ', 'HUND EIN<x id="1"/> '),
    ],
)
def test_spaces_beside_codes_at_the_edges_stay_between_them_and_the_words(content, expected):
    assert f">{expected}</target>" in target_of(content)


SAME = {
    "a.html": ["<p>%s</p>", "<b>%s</b> x <br>%s", "<li> %s <li>3<li>http://a.de\n<li>a\t b"],
    "a.md": ["%s\nzwei  \ndrei\n", "- %s\n- 3\n", "| %s | http://a.de |\n|---|---|\n| %s | a\tb |\n"],
    "a.vtt": [
        "WEBVTT\n\n00:01.000 --> 00:02.000\n- %s &amp; b &#228;\n- http://a.de\n\n00:02.000 --> 00:03.000\n3\n"
    ],
    "a.srt": ["1\n00:00:01,000 --> 00:00:02,000\n- %s\nzwei\n- 3\n"],
    "a.json": ['{"a": " \\u00e4 {n}s \\t%s ", "b": "%%s. B %s", "c": "12", "d": "http://a.de"}'],
    "a.txt": ["%s\t\r\n\r\n 3\nhttp://a.de x.  Y\n好。去吧！"],
}


@pytest.mark.parametrize(("name", "page"), [(name, page) for name, pages in SAME.items() for page in pages])
def test_what_a_model_leaves_as_it_is_stays_byte_for_byte(name, page):
    for seed in range(8):
        text = markup(seed, ("b", "i", "code", "span"), between=(" ", ". W. ", "")).replace('"', "")
        source = page.replace("%s", text).encode()
        assert unchanged(name, source) == source


def inside(element):
    """The content of an element of XML, as text."""
    return re.sub(r"^<[^>]*>|</[^<]*>$", "", etree.tostring(element, with_tail=False).decode())


def unchanged(name, content):
    document = read_document(name, content, Options("de", "zh"))
    plan = TranslationPlan(document.units, SentenceSplitter("de"), "zh")
    return document.render(plan.translated_units([*map(answer, plan.texts)]))


CODES = {
    "1.2": ("<x id='7'/> ", " <bpt id='8'/>", " 3 <ept id='8'/>"),
    "2.0": (" <ph id='7'/>", " <sc id='8'/> ", "%s. <ec startRef='8'/>"),
}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("version", ["1.2", "2.0"])
def test_of_xliff_it_is_what_the_source_is(version, seed):
    more = f"\n  W.  {''.join(CODES[version])} {{n}} &lt;b>x&lt;/b> a\tb"
    found = etree.fromstring(unchanged("a.xlf", xliff(version, markup(seed, ("span",)) + more)))
    assert inside(found.find(".//target")) == inside(found.find(".//source"))


@pytest.mark.parametrize("seed", range(8))
def test_of_a_document_of_word_the_text_and_its_looks_stay(seed):
    generator = random.Random(seed)
    words = ("eins ", "Zwei.", " W. ", "3", "a\tb", "http://a.de ", " vier", "fünf\n sechs")
    runs = []
    for _ in range(generator.randint(1, 9)):
        look = generator.choice(["", "<w:b/>", "<w:i/>"])
        run = f"<w:r><w:rPr>{look}</w:rPr><w:t>{generator.choice(words)}</w:t></w:r>"
        runs.append(
            generator.choice(["{}", "{}", "<w:hyperlink>{}</w:hyperlink>", "<w:r><w:br/></w:r>{}"]).format(
                run
            )
        )
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    content = f"<w:document {space}><w:p>{''.join(runs)}</w:p></w:document>"
    found = part_of(unchanged("a.docx", package({"word/document.xml": content})), "word/document.xml")
    assert looks_of(found) == looks_of(content)


def looks_of(document):
    """Each character of a document of Word with its look."""
    found = []
    for node in etree.fromstring(document).iter("{*}t", "{*}br"):
        around = [etree.QName(one).localname for one in node.iterancestors()]
        look = [etree.QName(one).localname for one in node.getparent().iterfind("{*}rPr/*")]
        text = re.sub("\n *", " ", node.text or "") if node.tag.endswith("}t") else "\n"
        found += [(character, look, "hyperlink" in around) for character in text]
    return found
