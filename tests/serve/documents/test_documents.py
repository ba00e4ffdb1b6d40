"""A document of each kind there and back: all that is no text stays, and wrong files are refused."""

# ruff: noqa: E501 - documents stand here as they are

from __future__ import annotations

import io
import json
import re
import time
import tracemalloc
import zipfile

import pytest
from aligned_texts import backwards, in_other_words, package, part_of, translated

from deepwire.data.text.sentences import SentenceSplitter
from deepwire.errors import DataError, DeepwireError, UsageError
from deepwire.serve.documents.document import Options, in_order
from deepwire.serve.documents.registry import read_document
from deepwire.serve.documents.translation_plan import TranslationPlan

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
ODF = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
)


def text_of(name, content, **options):
    return in_other_words(name, content, **options).decode()


def docx(body, **others):
    document = f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?><w:document {WORD}><w:body>{body}</w:body></w:document>'
    return package({"[Content_Types].xml": "<Types/>", "word/document.xml": document, **others})


def odt(body):
    return package(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f"<office:document-content {ODF}><office:body>{body}</office:body></office:document-content>",
        }
    )


def test_plain_text():
    text = "\ufeffHallo Welt. Noch ein Satz.\r\n\r\n  Ende\n"
    assert text_of("a.txt", text) == "\ufeffHALLO WELT. NOCH EIN SATZ.\r\n\r\n  ENDE\n"
    assert text_of("a.TXT", "") == ""
    assert text_of("a.txt", "Hallo".encode("utf-16")) == "HALLO"


def test_figures_and_addresses_alone_stay():
    texts = ["12345", "1.234,50 €", "https://example.org/haus", "a@b.de", "\t\t"]
    for name, content in (("a.txt", "\n".join(texts)), ("a.json", json.dumps({"a": texts}))):
        assert text_of(name, content, change=lambda _: "lost") == content


def test_markdown():
    page = (
        "---\ntitle: nicht\n---\n# Eine *große* Zahl\n\nEin Wort mit `code` und [einem Link](http://x.de/a_b) auf\n"
        "zwei Zeilen.  \nHart.\n\n> Zitat\n> weiter\n\n- [ ] eins\n- <b>zwei</b> ![Bild](a.png)\n\n"
        "| Kopf | Zahl |\n|---|:-:|\n| eins | http://a.de |\n\n```\nkein_text()\n```\n\n[r]: http://r.de\n<div>\nroh\n</div>\n"
    )
    assert text_of("a.md", page) == (
        "---\ntitle: nicht\n---\n# EINE *GROSSE* ZAHL\n\nEIN WORT MIT `code` UND [EINEM LINK](http://x.de/a_b) AUF "
        "ZWEI ZEILEN.  \nHART.\n\n> ZITAT WEITER\n\n- [ ] EINS\n- <b>ZWEI</b> ![BILD](a.png)\n\n"
        "| KOPF | ZAHL |\n|---|:-:|\n| EINS | http://a.de |\n\n```\nkein_text()\n```\n\n[r]: http://r.de\n<div>\nroh\n</div>\n"
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Wort[^1].\n\n[^1]: Eine Note\nweiter\n[^b]:  Noch *eine*\n", "WORT[^1].\n\n[^1]: EINE NOTE WEITER\n[^b]:  NOCH *EINE*\n"),
        ("Im [x][r] und [Ein\nHeft][], ![Heft], [kein]", "IM [X][r] UND [EIN HEFT][Ein Heft], ![HEFT][Heft], [KEIN]"),
        ("eins\\\nzwei\\\\\ndrei\\", "EINS\\\nZWEI\\\\ DREI\\"),
        ("- [x] eins\n- [X] *zwei*\n- [ ] drei [x] vier", "- [x] EINS\n- [X] *ZWEI*\n- [ ] DREI [X] VIER"),
        ("> [!NOTE]\n> Ein\n> Wort", "> [!NOTE]\n> EIN WORT"),
        ("+++\ntitle = 'x'\n+++\nEin Wort", "+++\ntitle = 'x'\n+++\nEIN WORT"),
        ("Es ist\n$$\nx = y\n+ z\n$$\nund\n$$ a $$\n$$a$$ ist $$b$$", "ES IST\n$$\nx = y\n+ z\n$$\nUND\n$$ a $$\n$$a$$ IST $$b$$"),
        (":::note Titel\nEin\nWort\n:::\n\n!!! tip \"Titel\"\n    Noch\n    eins\n\n!!! Na so was", ":::note Titel\nEIN WORT\n:::\n\n!!! tip \"Titel\"\n    NOCH EINS\n\n!!! NA SO WAS"),
        ("Hund\n:   Ein\n    Tier", "HUND\n:   EIN TIER"),
        ("&nbsp;\n\n![](a.png)\n\n<br>\n\nEin", "&nbsp;\n\n![](a.png)\n\n<br>\n\nEIN"),
        ("# Ein Titel {#anker}\n\nEr ist {{ name }}&#8212;", "# EIN TITEL {#anker}\n\nER IST {{ name }}&#8212;"),
        ("Rufe ``a`b`` und `c` auf ``", "RUFE ``a`b`` UND `c` AUF ``"),
        ("Ein <!-- `a --> Wort \\__ snake__case_", "EIN <!-- `a --> WORT \\__ SNAKE__CASE_"),
        ("| a \\| b | c |\n|---|---|\n| d | `e \\| f` g |", "| A \\| B | C |\n|---|---|\n| D | `e \\| f` G |"),
    ],
)  # fmt: skip
def test_what_markdown_is_read_by_stays(source, expected):
    labels = "\n\n[r]: http://r.de\n[ein Heft]: http://h.de\n[heft]: http://i.de\n[*Heft* 2]: http://j.de\n"
    assert text_of("a.md", source + labels) == expected + labels


@pytest.mark.parametrize(
    "page",
    [
        "".join("  " * level + "- ein wort\n" for level in range(40)),
        "- > " * 20 + "ein wort\n",
        "ein wort. " * 15_000 + "\n",
        "| a |\n|---|\n| " + "ein wort. " * 12_000 + "|\n",
        "ein\0wort\n\n- ein\0wort\n",
    ],
    ids=["list", "both", "long paragraph", "long cell", "NUL"],
)
def test_no_text_of_markdown_is_left_out_for_its_depth_or_length(page):
    assert text_of("a.md", page) == page.upper().replace("\0", " ")


def test_html():
    page = (
        "<!DOCTYPE html>\n<html><head><title>Titel</title><style>p {}</style></head><body CLASS=x>\n"
        "<p>Ein <b>roter</b> Hund &amp; eine\n  Katze.<br/>Ruf <code>foo()</code> auf.</p>\n"
        '<!-- nein --><script>if (a<b) c("d")</script><ul><li>eins<li>zwei</ul>'
        '<p translate="no">nein</p><span class="notranslate">nein</span> 3 < 4</body></html>'
    )
    found = text_of("a.html", page)
    tags = re.compile("<[^<>]*>")
    assert tags.findall(found) == tags.findall(page)
    assert "<p>EIN <b>ROTER</b> HUND &amp; EINE KATZE.<br/>RUF <code>foo()</code> AUF.</p>" in found
    assert '<p translate="no">nein</p><span class="notranslate">nein</span>' in found
    assert "<title>TITEL</title><style>p {}</style>" in found


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<head><title>Titel</title><body><p>Ein Wort", "<head><title>TITEL</title><body><p>EIN WORT"),
        ("<p translate=NO>nein<b>!</b><p>Ja</p><div><p class=notranslate>nein</div>Ja", "<p translate=NO>nein<b>!</b><p>JA</p><div><p class=notranslate>nein</div>JA"),
        ("<p data-translate=no>Ja</p>", "<p data-translate=no>JA</p>"),
        ("<div translate=no>nein<div>nein</div><p>nein</p></div>Ja", "<div translate=no>nein<div>nein</div><p>nein</p></div>JA"),
        ("<p>&nbsp;</p><p><b>&nbsp;</b> &shy;</p><p>Ja", "<p>&nbsp;</p><p><b>&nbsp;</b> &shy;</p><p>JA"),
        ("<meta charset=iso-8859-1><p>sch&ouml;n", "<meta charset=iso-8859-1><p>SCH&#214;N"),
        ("<meta content='text/html; charset=\"UTF-8\"'><p>sch&ouml;n", "<meta content='text/html; charset=\"UTF-8\"'><p>SCHÖN"),
    ],
)  # fmt: skip
def test_html_that_leaves_out_ends_or_has_another_charset(source, expected):
    assert text_of("a.html", source) == expected


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("a.html", "die <code>URL</code>s", "DIE <code>URL</code>S"),
        ("a.md", "der `Hund`e Vor`satz`", "DER `Hund`E VOR`satz`"),
        ("a.md", "ein `b`s und Bus", "EIN `b`S UND BUS"),
        ("a.html", "<code>foo</code><code>bar</code> ist", "<code>foo</code><code>bar</code> IST"),
        ("a.html", "<p>un<code>um</code>gänglich, unum", "<p>UN<code>um</code>GÄNGLICH, UNUM"),
        ("a.json", '["ein {n}mal"]', '["EIN {n}MAL"]'),
    ],
)
def test_what_stays_within_a_word_is_there_once(name, source, expected):
    assert text_of(name, source) == expected


def test_subtitles():
    srt = "1\r\n00:00:01,000 --> 00:00:03,000\r\nEin <i>Hund</i> läuft\r\nauf der Wiese.\r\n\r\n2\r\n00:00:04,000 --> 00:00:05,000\r\n- Ja!\r\n"
    assert text_of("a.srt", srt) == srt.replace("Ein", "EIN").replace("Hund", "HUND").replace(
        "läuft\r\nauf der Wiese", "LÄUFT AUF\r\nDER WIESE"
    ).replace("Ja", "JA")
    talk = "1\n00:00:01,000 --> 00:00:02,000\n- Ja! Ein\nHund.\n- <i>Wo</i>?\n"
    assert text_of("a.srt", talk) == talk.replace("Ja! Ein\nHund", "JA! EIN\nHUND").replace("Wo", "WO")
    marked = "1\n00:00:01,000 --> 00:00:02,000\n{\\an8}<i>- Ja!\nEin Hund.</i>\n<i>- Wo</i>?\n"
    assert text_of("a.srt", marked) == marked.replace("Ja!\nEin Hund", "JA! EIN\nHUND").replace("Wo", "WO")
    crowded = "1\n00:00:01,000 --> 00:00:02,000\nHund 3\n2\n00:00:02,000 --> 00:00:03,000\n3\n4\n00:00:03,000 --> 00:00:04,000\nTag"
    assert text_of("a.srt", crowded, change=lambda text: f"<{text}>") == crowded.replace(
        "Hund 3", "<Hund 3>"
    ).replace("Tag", "<Tag>"), "no empty lines between them"
    vtt = "WEBVTT\n\nNOTE nein\n\nSTYLE\n::cue {}\n\nmarke\n00:01.000 --> 00:02.000 align:start\n<v Anna>Guten Tag.\n"
    assert text_of("a.vtt", vtt) == vtt.replace("Guten Tag", "GUTEN TAG")
    signs = "WEBVTT\n\n00:01.000 --> 00:02.000\nA &lt; b &amp; c\n"
    assert text_of("a.vtt", signs) == signs.replace("b &amp; c", "B &amp; C")
    loose = "1\n0:0:1 --> 0:0:2,5\nEin Hund\n"
    assert text_of("a.srt", loose) == loose.replace("Ein Hund", "EIN HUND")


def test_json():
    source = '{"a": "Ein Hund",\n "b": [1.50, {"t": "Hallo {name}, %s"}, "x\\u00e4 \\n y", "\\/"], "c": null, "d": {}}'
    found = text_of("a.json", source)
    assert found == source.replace("Ein Hund", "EIN HUND").replace("Hallo", "HALLO").replace(
        "x\\u00e4 \\n y", "X\\u00c4 \\n Y"
    )
    escaped = '{"a": "\\ud83d\\ude00 zu {name}\\n\\"{\\u0061}\\" \\u00e4"}'
    assert text_of("a.json", escaped) == escaped.replace("zu", "ZU").replace("\\u00e4", "\\u00c4")
    assert text_of("a.json", '{"a": "\\ud800", "b": "zu \\udc00"}').startswith('{"a": "\\ud800", "b": "ZU ')
    swapped = text_of("a.json", '{"a": "%s in {name}"}', change=lambda _: "For {name}: %s")
    assert swapped == '{"a": "For {name}: %s"}'
    chosen = '{"i": [{"t": "eins", "u": "zwei"}, {"t": "drei"}], "t": "vier"}'
    for path, expected in {
        "i[*].t": ["EINS", "zwei", "DREI", "vier"],
        "i[0].t": ["EINS", "zwei", "drei", "vier"],
        "$.t": ["eins", "zwei", "drei", "VIER"],
        "**.t": ["EINS", "zwei", "DREI", "VIER"],
        "i[*].*": ["EINS", "ZWEI", "DREI", "vier"],
    }.items():
        record = json.loads(text_of("a.json", chosen, paths=(path,)))
        assert [record["i"][0]["t"], record["i"][0]["u"], record["i"][1]["t"], record["t"]] == expected, path


HEAD = 'msgid ""\nmsgstr ""\n"X-Tool: t\\n"\n"A: b\\n"\n\n'


def test_gettext():
    source = (
        f'# Kopf\n{HEAD}# Notiz\n#: a.c:3\n#, c-format\n#| msgid "vorher"\nmsgid "Hallo %s, ein Hund.\\n"\nmsgstr ""\n\n'
        'msgid "fertig"\nmsgstr "done"\n\n#~| msgid "älter"\n#~ msgid "alt"\n#~ msgstr ""\n\n'
        '#| msgid "Hund"\nmsgctxt "m"\nmsgid "ein \\"Hund\\""\nmsgid_plural "%d\\tHunde"\nmsgstr[0] ""\nmsgstr[1] ""\n'
        'msgstr[2] ""\n\n#, fuzzy\nmsgid ""\n"Zeile\\n"\n"zwei"\nmsgstr   ""\n# Ende\n'
    )
    expected = (
        source.replace("c-format", "c-format, fuzzy")
        .replace('ein Hund.\\n"\nmsgstr ""', 'ein Hund.\\n"\nmsgstr "HALLO %s, EIN HUND.\\n"')
        .replace('#| msgid "Hund"', '#, fuzzy\n#| msgid "Hund"')
        .replace('[0] ""', '[0] "EIN \\"HUND\\""')
        .replace('[1] ""', '[1] "%d\\tHUNDE"')
        .replace('[2] ""', '[2] "%d\\tHUNDE"')
        .replace('msgstr   ""', 'msgstr   ""\n"ZEILE\\n"\n"ZWEI"')
    )
    assert text_of("a.po", source) == expected
    assert text_of("a.po", "\ufeff" + source.replace("\n", "\r\n")) == "\ufeff" + expected.replace(
        "\n", "\r\n"
    )


@pytest.mark.parametrize("named", ["ISO-8859-1", "CHARSET", "utf-16", "UTF-8", "utf8"])
def test_a_catalogue_is_written_in_utf_8(named):
    source = f'# charset=no\nmsgid ""\nmsgstr ""\n"Content-Type: text/plain; charset={named}\\n"\n\nmsgid "x charset=no"\nmsgstr '
    found = text_of("a.po", source + '""\n', change=lambda _: "Öffnen")
    written = named if named.lower().startswith("utf") and "8" in named else "UTF-8"
    assert (
        found == source.replace(named, written).replace('\nmsgid "x', '\n#, fuzzy\nmsgid "x') + '"Öffnen"\n'
    )


def test_xliff_1():
    source = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><!-- k -->'
        '<file original="a" source-language="de" datatype="plaintext"><body>'
        '<trans-unit id="1"><source>Ein <g id="1">roter</g> Hund<x id="2"/>.</source><note>nein</note></trans-unit>'
        '<trans-unit id="2"><source>Alt</source><target>old</target></trans-unit>'
        '<trans-unit id="3" translate="no"><source>Nein</source></trans-unit>'
        '<trans-unit id="4"><source>Neu</source><target/></trans-unit><group translate="no">'
        '<trans-unit id="5" translate="yes"><source>Zu <mrk mtype="protected">tun</mrk></source></trans-unit></group></body></file></xliff>\n'
    )
    found = text_of("a.xlf", source)
    state = 'state="needs-review-translation" state-qualifier="mt-suggestion"'
    assert f'<target {state}>EIN <g id="1">ROTER</g> HUND<x id="2"/>.</target><note>nein' in found
    assert "<source>Alt</source><target>old</target>" in found
    assert "<source>Nein</source></trans-unit>" in found
    assert f'<target {state}>ZU <mrk mtype="protected">tun</mrk></target>' in found
    assert found.count("<target") == 4
    assert 'target-language="en"' in found
    assert found.endswith("</xliff>\n")
    with pytest.raises(DataError, match="target language is en, not fr"):
        read_document("a.xlf", found.encode(), Options("de", "fr"))


def in_xliff(unit):
    return f'<xliff version="1.2"><file source-language="de"><body>{unit}</body></file></xliff>'


def seg(mid, text):
    return f'<mrk mtype="seg" mid="{mid}">{text}</mrk>'


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("", f"{seg(1, 'EINS.')} {seg(2, 'ZWEI <x id=%/>.')}\n{seg(3, 'DREI.')}"),
        (f"{seg(1, '')} {seg(2, '')}\t{seg(3, '')}", f"{seg(1, 'EINS.')} {seg(2, 'ZWEI <x id=%/>.')}\t{seg(3, 'DREI.')}"),
        (f"{seg(1, 'Done')}!{seg(3, '')}", f"{seg(1, 'Done')} {seg(2, 'ZWEI <x id=%/>.')}!{seg(3, 'DREI.')}"),
        (f"{seg(3, 'done')} {seg(2, 'too')}", f"{seg(1, 'EINS.')} {seg(3, 'done')} {seg(2, 'too')}"),
        (seg(2, "<g id=%>done</g>"), f"{seg(1, 'EINS.')} {seg(2, '<g id=%>done</g>')}\n{seg(3, 'DREI.')}"),
        ("whole", "whole"),
    ],
)  # fmt: skip
def test_segments_within_a_unit_keep_their_own_targets(target, expected):
    source = f"{seg(1, 'Eins.')} {seg(2, 'zwei <x id=%/>.')}\n{seg(3, 'drei.')}"
    old = f"<target>{target}</target>" if target else ""
    unit = f"<trans-unit id='1'><source>Eins. zwei <x id=%/>. drei.</source><seg-source>{source}</seg-source>{old}</trans-unit>"
    found = text_of("a.xlf", in_xliff(unit).replace("%", '"7"')).replace("</mrk></mrk>", "</mrk>")
    (said,) = re.findall("<target[^>]*>(.*)</target>", found, re.DOTALL)
    assert said == expected.replace("%", '"7"')
    assert f"<seg-source>{source}</seg-source>".replace("%", '"7"') in found


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ('<x id="START_LINK"/>', '<x id="CLOSE_LINK"/>'),
        ('<x id="0" equiv-text="&lt;b class=&quot;x&quot;&gt;"/>', '<x id="1" equiv-text="&lt;/b&gt;"/>'),
        ('<ph id="0">&lt;i&gt;</ph>', '<ph id="1">&lt;/i&gt;</ph>'),
    ],
)
def test_codes_that_only_a_name_pairs_stay_around_their_words(begin, end):
    unit = f'<trans-unit id="1"><source>ein {begin}hund mit {begin}namen{end}{end} <x id="START_OTHER"/>hier</source></trans-unit>'
    document = read_document("a.xlf", in_xliff(unit).encode(), Options("de", "en"))
    found = document.render(translated(document, backwards)).decode()
    assert f"{begin}{begin}NAMEN{end} MIT HUND{end} EIN</target>" in found


def test_xliff_2():
    source = (
        '<xliff version="2.1" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="de"><file id="f"><unit id="u">'
        '<originalData><data id="d">nein</data></originalData>'
        '<segment state="initial" subState="a:b"><source xml:space="preserve">Ein <pc id="1">Hund</pc> mit <ph id="2" dataRef="d"/>.</source></segment></unit></file></xliff>'
    )
    found = text_of("a.xliff", source)
    assert (
        '<target xml:space="preserve">EIN <pc id="1">HUND</pc> MIT <ph id="2" dataRef="d"/>.</target>'
        in found
    )
    assert 'trgLang="en"' in found
    assert '<segment state="translated">' in found
    assert ">nein</data>" in found


def xliff_2(*segments):
    inside = "".join(f"<segment><source>{segment}</source></segment>" for segment in segments)
    return f'<xliff version="2.0" srcLang="de"><file id="f"><unit id="u">{inside}</unit></file></xliff>'


def test_an_empty_target_of_xliff_keeps_its_attributes():
    unit = '<trans-unit id="1"><source xml:lang="de">Ein</source>\n<target xml:lang="en" state="new" resname="x"/> <note/></trans-unit>'
    found = text_of("a.xlf", f'<xliff version="1.2"><file source-language="de">{unit}</file></xliff>')
    state = 'state="needs-review-translation" resname="x" state-qualifier="mt-suggestion"'
    assert f'</source>\n<target xml:lang="en" {state}>EIN</target> <note/>' in found
    source = xliff_2("Ein").replace("</source>", '</source><target order="2" my:x="keep"/>')
    found = text_of("a.xlf", source.replace("<xliff ", '<xliff xmlns:my="urn:my" '))
    assert '<target order="2" my:x="keep">EIN</target></segment>' in found


def test_what_is_protected_in_xliff_stays():
    for protected in (
        '<mrk id="1" translate="no">Titel (<mrk id="2">der Hund</mrk>) eins</mrk>',
        '<mrk id="1" mtype="protected">Titel</mrk>',
    ):
        assert f"<target>SIEHE {protected} DORT.</target>" in text_of(
            "a.xlf", xliff_2(f"Siehe {protected} dort.")
        )


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("{count, plural, one {# hund} other {# hunde}}", "{count, plural, one {# HUND} other {# HUNDE}}"),
        (
            "{sex, select, female {das buch} other {das haus}} im park",
            "{sex, select, female {DAS BUCH} other {DAS HAUS}} IM PARK",
        ),
        (
            "{n, plural, =0 {} one{{name} sah {x}.}other {nein}}",
            "{n, plural, =0 {} one{{name} SAH {x}.}other {NEIN}}",
        ),
        (
            "{n, plural, offset:1 one {{g, select, f {sie} other {er}} kam} other {b}}",
            "{n, plural, offset:1 one {{g, select, f {SIE} other {ER}} KAM} other {B}}",
        ),
        (
            "{n, selectordinal, one {#st tag} other {#th tag}}",
            "{n, selectordinal, one {#st TAG} other {#th TAG}}",
        ),
        ("{0, choice, 0#nichts|1#ein hund|1<{0} hunde}", "{0, choice, 0#nichts|1#ein hund|1<{0} hunde}"),
        ("{n, plural, one {# hund", "{n, plural, one {# hund"),
        ("ein %{hund} und <1>haus</1> und <2/>", "EIN %{hund} UND <1>HAUS</1> UND <2/>"),
    ],
)
def test_messages_keep_what_programs_read(message, expected):
    assert json.loads(text_of("a.json", json.dumps([message]))) == [expected]


@pytest.mark.parametrize(
    ("message", "count"),
    [
        ("{0, choice, 0#nichts|1#ein hund}", 1),
        ("ein {n, plural, one {# hund", 1),
        ("{n, plural," + "a{{n, plural," * 11 + "b{ein hund}" + "}}" * 11 + "}", 1),
        ("{n} hunde", 0),
    ],
)
def test_a_message_that_stays_is_warned_of(message, count):
    told: list[str] = []
    read_document("a.json", json.dumps([message]).encode(), Options(warn=told.append))
    assert len(told) == count


def test_a_plural_between_codes_of_xliff():
    text = "{VAR, plural, =1 {ein tag} other {<x id='A'/> tage}} hier"
    written = text_of("a.xlf", in_xliff(f"<trans-unit id='1'><source>{text}</source></trans-unit>"))
    target = written[written.index("<target") :].replace('"', "'")
    assert "{VAR, plural, =1 {EIN TAG} other {<x id='A'/> TAGE}} HIER" in target


@pytest.mark.parametrize(("header", "count"), [("fr", 1), ("en_GB", 0), (None, 0)])
def test_a_catalogue_of_another_language_is_warned_of(header, count):
    told: list[str] = []
    said = "" if header is None else f'"Language: {header}\\n"\n'
    in_other_words("a.po", f'msgid ""\nmsgstr ""\n{said}\nmsgid "Hund"\nmsgstr ""\n', warn=told.append)
    assert [f"Language: {header}, " in one for one in told] == [True] * count


def test_docx():
    bold = "<w:rPr><w:b/></w:rPr>"
    body = (
        f"<w:p><w:pPr><w:jc/></w:pPr><w:r><w:t>Ein </w:t></w:r><w:r>{bold}<w:t>ro</w:t></w:r><w:r>{bold}<w:t>ter</w:t></w:r>"
        "<w:r><w:t> Hund.</w:t><w:br/><w:t>Zeile zwei.</w:t></w:r><w:r><w:instrText>PAGE</w:instrText></w:r></w:p>"
        "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>Zelle</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
        "<w:p><w:del><w:r><w:delText>weg</w:delText></w:r></w:del><w:moveFrom><w:r><w:t>fort</w:t></w:r></w:moveFrom></w:p>"
        "<w:p><w:r><w:t>Links</w:t><w:ptab/><w:t>rechts</w:t></w:r></w:p>"
    )
    header = f"<w:hdr {WORD}><w:p><w:r><w:t>Kopf</w:t></w:r></w:p></w:hdr>"
    source = docx(body, **{"word/header1.xml": header, "word/media/a.png": b"\x89PNG"})
    found = in_other_words("a.docx", source)
    document = part_of(found, "word/document.xml")
    texts = re.findall(r"<w:t [^>]*>([^<]*)|<w:t/>|<w:t [^>]*/>", document)
    assert [text for text in texts if text] == [
        "EIN ",
        "ROTER",
        " HUND.",
        "ZEILE ZWEI.",
        "ZELLE",
        "LINKS",
        "RECHTS",
    ]
    assert "<w:instrText>PAGE</w:instrText>" in document
    assert "<w:delText>weg</w:delText>" in document
    assert "<w:t>fort</w:t>" in document
    assert ">KOPF<" in part_of(found, "word/header1.xml")
    with zipfile.ZipFile(io.BytesIO(found)) as after, zipfile.ZipFile(io.BytesIO(source)) as before:
        assert after.namelist() == before.namelist()
        assert after.read("word/media/a.png") == b"\x89PNG"


def test_odt():
    body = (
        '<text:h>Titel</text:h><text:p>Ein <text:span text:style-name="B">roter</text:span> Hund.<text:note><text:note-citation>1</text:note-citation>'
        "<text:note-body><text:p>Eine Note.</text:p></text:note-body></text:note> Noch<text:s/>ein<text:line-break/>Satz.</text:p>"
        "<text:tracked-changes><text:p>weg</text:p></text:tracked-changes><text:p>Da<office:annotation><text:p>Frage</text:p></office:annotation></text:p>"
    )
    found = in_other_words("a.odt", odt(body))
    content = part_of(found, "content.xml")
    assert "<text:h>TITEL</text:h>" in content
    assert 'EIN <text:span text:style-name="B">ROTER</text:span> HUND.<text:note>' in content
    assert "<text:note-citation>1</text:note-citation><text:note-body><text:p>EINE NOTE.</text:p>" in content
    assert "<text:line-break/>SATZ.</text:p>" in content
    assert "<text:p>weg</text:p></text:tracked-changes><text:p>DA<office:annotation><text:p>Frage" in content
    with zipfile.ZipFile(io.BytesIO(found)) as archive:
        assert archive.namelist()[0] == "mimetype"


XLIFF_OF_TWO = (
    '<xliff version="1.2"><file source-language="de"><body><trans-unit id="1"><source>Hund.</source></trans-unit>'
    '<trans-unit id="2"><source>Katze.</source></trans-unit></body></file></xliff>'
)


@pytest.mark.parametrize(
    ("name", "content", "inside", "expected"),
    [
        ("a.xlf", XLIFF_OF_TWO, None, [">Ahund.</target>", ">Akatze.</target>"]),
        ("a.docx", docx("<w:p><w:r><w:t>Hund.</w:t></w:r></w:p><w:p><w:r><w:t>Katze.</w:t></w:r></w:p>"), "word/document.xml", [">Ahund.<", ">Akatze.<"]),
        ("a.docx", docx("<w:p><w:r><w:rPr><w:b/></w:rPr><w:t>Hund </w:t></w:r><w:r><w:t>bellt</w:t></w:r></w:p><w:p><w:r><w:t>Katze</w:t></w:r></w:p>"), "word/document.xml", ["bellt<", ">Akatze<"]),
        ("a.odt", odt("<text:p>Hund.</text:p><text:p>Katze.</text:p>"), "content.xml", [">Ahund.<", ">Akatze.<"]),
        ("a.odt", odt("<text:p><text:span>Hund</text:span> bellt.</text:p><text:p>Katze.</text:p>"), "content.xml", ["bellt.<", ">Akatze.<"]),
        ("a.html", "<p>Hund.</p><p>Katze.</p>", None, ["<p>Ahund.</p>", "<p>Akatze.</p>"]),
    ],
    ids=["xlf", "docx", "docx in two looks", "odt", "odt with spans", "html"],
)  # fmt: skip
def test_what_xml_cannot_hold_is_left_out(name, content, inside, expected):
    """A model may write control characters; the whole document was lost."""
    found = in_other_words(name, content, lambda text: f"\x02A\uffff\ud800{text.lower()}")
    text = found.decode() if inside is None else part_of(found, inside)
    assert [one for one in expected if one not in text] == []


def damaged(content):
    """A package whose first part has bytes that were changed."""
    at = content.index(b"word/document.xml") + len("word/document.xml") + 9  # behind the head of LZMA
    return content[:at] + b"\xff" * 9 + content[at + 9 :]


def declared(charset):
    """XML whose nodes cannot be counted without knowing its charset."""
    return f'<?xml version="1.0" encoding="{charset}"?><a>+ADw-b/+AD4-</a>'.encode()


DEEP = "<w:p>" * 5000


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.docx", b"no zip", "a damaged file"),
        ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 999, "it is encrypted, or a .doc file"),
        ("a.docx", damaged(package({"word/document.xml": "b" * 99}, zipfile.ZIP_LZMA)), "a damaged file"),
        ("a.docx", package({"a": "b"}), "there is no word/document.xml"),
        ("a.docx", docx(DEEP), "not XML: mismatched tag"),
        ("a.docx", lambda: package({"word/document.xml": b"0" * (201 << 20)}), "too large"),
        ("a.docx", lambda: docx("<a/>" * 1_000_001), r"its XML has 1,000,0\d\d elements, .*at most 1,000,000: too large"),
        ("a.docx", lambda: docx("", **{"word/footnotes.xml": "a" * (32 << 20)}), r"its text has 33,554,\d+ bytes of XML"),
        ("a.odt", lambda: odt("<a b='c'/>" * 500_001), "its XML has 1,000,0"),
        ("a.xlf", declared("UTF-7"), "written in UTF-7"),
        ("a.odt", docx("<w:p/>"), "there is no content.xml"),
        ("a.odt", package({"content.xml": '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'}), "entities of its own"),
        ("a.xlf", b"<xliff>", "line 1: not XML"),
        ("a.xlf", b"<html/>", "not XLIFF: the file begins with <html>"),
        ("a.json", b"{", "line 1: not JSON"),
        ("a.json", b"[" * 100_000, "nested too deeply"),
        ("a.po", b"Hallo\n", "line 1: no line of a gettext catalogue"),
        ("a.po", b'msgid "a"\n\n#: x.c:1\nmsgid "b"\nmsgstr ""\n', "line 4: msgid behind msgid"),
        ("a.po", b'msgid "a"\nmsgstr[' + b"9" * 5000 + b'] ""\n', "line 2: no line of a gettext"),
        ("a.srt", b"Hallo\n", "no subtitles"),
        ("a.txt", b"gut\nsch\xf6n", r"line 2: not UTF-8 \(byte 7\)"),
    ],
)  # fmt: skip
def test_wrong_files_are_refused_with_a_reason(name, content, said):
    with pytest.raises(DataError, match=said):
        read_document(name, content() if callable(content) else content, Options("de", "en"))


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("<w:r><w:t>x</w:t></w:r>", 20_000),
        ("<w:r>" + "<w:t>x</w:t>" * 20_000 + "</w:r>", 1),
        ("<!---->", 100_000),
    ],
    ids=["runs", "texts", "comments"],
)
def test_a_paragraph_of_many_parts_is_read_in_linear_time(body, count):
    begun = time.process_time()
    read_document("a.docx", docx(f"<w:p>{body * count}</w:p>"), Options("de", "en"))
    assert time.process_time() - begun < 8, "it took minutes"


@pytest.mark.parametrize("name", ["a.pdf", "a", "a.doc", ".docx"])
def test_other_endings_are_refused_with_those_that_are_known(name):
    with pytest.raises(UsageError) as caught:
        read_document(name, b"", Options())
    assert ".docx" in caught.value.hint


def test_paths_that_cannot_be_understood_or_lead_nowhere():
    with pytest.raises(UsageError, match="is no path into JSON"):
        read_document("a.json", b"{}", Options(paths=("a[",)))
    with pytest.raises(DataError, match=r"no string is under a\.b"):
        read_document("a.json", b"{}", Options(paths=("a.b",)))


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("menu.open", "in steps"),
        ("$['menu.open']", "with a dot"),
        (r'["a\"]"].*', "quote"),
        ("list[0]['x']", "listed"),
        ("['*']", "star"),
        ("**['[0]']", "bracket"),
    ],
)
def test_keys_in_quotes_are_taken_as_they_stand(path, found):
    content = (
        r'{"menu": {"open": "in steps"}, "menu.open": "with a dot", "a\"]": {"b": "quote"}, '
        r'"list": [{"x": "listed"}], "*": "star", "d": {"[0]": "bracket"}}'
    )
    document = read_document("a.json", content.encode(), Options(paths=(path,)))
    assert [run.text for unit in document.units for run in unit] == [found]


@pytest.mark.parametrize("ending", [".txt", ".md", ".html", ".srt", ".vtt", ".po", ".xlf", ".json"])
@pytest.mark.parametrize("seed", [b"", b"\x00", b"<a>" * 100_000, b"a" * 1_000_000, b"<!--" * 50_000, b"`" * 50_000, b"*a " * 30_000,
                                  b"> " * 3000, b"- " * 3000, b"1\n00:00:01,000 --> 00:00:02,000\n" * 5000])  # fmt: skip
def test_odd_files_are_read_or_refused_and_never_hang(ending, seed):
    begin = time.process_time()
    try:
        found = read_document(f"a{ending}", seed, Options("de", "en"))
    except DeepwireError:
        found = None
    if found is not None:
        texts = [in_order(unit, [run.text for run in unit]) for unit in found.units]
        assert isinstance(found.render(texts), bytes)
    assert time.process_time() - begin < 60


CUE = "1\n00:00:01,000 --> 00:00:02,000\n"
BRACKETS = "[a" * 30_000 + "]" * 30_000


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.srt", CUE + "{\\" * 100_000),
        ("a.html", '<a "' * 60_000 + "'>"),
        ("a.html", "<a<b" * 50_000 + '">'),
        ("a.md", " ".join("`" * count for count in range(1, 440))),
        ("a.md", "x" + "[^" * 49_000),
        ("a.md", f"x{BRACKETS}\n\n[a]: http://a.de\n"),
        ("a.md", "!!! a" + " " * 99_000 + "X"),
        ("a.json", f'["%{"0" * 99_000}"]'),
        ("a.xlf", f"<xliff><trans-unit><source>{'ein<bx/>' * 30_000}</source></trans-unit></xliff>"),
        ("a.xlf", f"<xliff><trans-unit><source>ein{' ' * 300_000}wort</source></trans-unit></xliff>"),
    ],
    ids=lambda value: value[-10:],
)
def test_what_has_no_end_is_read_in_linear_time(name, content):
    begun = time.process_time()
    document = read_document(name, content.encode(), Options("de", "en"))
    texts = [[run.text if run.fixed else f"{run.text} " for run in unit] for unit in document.units]
    document.render([in_order(*unit) for unit in zip(document.units, texts, strict=True)])
    assert time.process_time() - begun < 20, "it took minutes"


def test_a_text_of_many_short_lines_takes_little_memory():
    document = read_document("a.txt", b"a\n" * 20_000, Options("de", "en"))
    tracemalloc.start()
    plan = TranslationPlan(document.units, SentenceSplitter("de"), "en")
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert plan.texts == ["a"]
    assert (kept < 8 << 18, most < 8 << 20) == (True, True), "it took 350 bytes for each of the file"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.html", "<p><b>ein</b> <img src=a> hund</p>"),
        ("a.html", "<p><b>ein</b> <img src=a> <i>hund</i></p>"),
        ("a.md", "**ein** ![](a.png) hund\n"),
        ("a.json", '{"a": "<1>ein</1> <2/> hund"}'),
        ("a.po", 'msgid ""\nmsgstr ""\n\n#, fuzzy\nmsgid "<b>x</b> <br/> y"\nmsgstr ""\n'),
    ],
)
def test_spaces_on_both_sides_of_what_has_no_text_stay(name, content):
    expected = content.replace("ein", "EIN").replace("hund", "HUND")
    expected = expected.replace('msgstr ""\n', 'msgstr "<b>X</b> <br/> Y"\n').replace(
        'msgstr "<b>X</b> <br/> Y"', 'msgstr ""', 1
    )
    assert text_of(name, content) == expected
