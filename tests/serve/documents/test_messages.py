"""Messages of programs: what their translations have of placeholders, plurals and numbered tags."""

from __future__ import annotations

import json

import pytest
from aligned_texts import straight, translated

from deepwire.serve.documents.document import Options
from deepwire.serve.documents.json_values import read_json
from deepwire.serve.documents.registry import read_document
from deepwire.serve.documents.xliff import XliffDocument


def capitals(document):
    """The file in the language of a model that writes capitals."""
    return document.render(translated(document, straight)).decode()


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
    document = read_json(json.dumps({"a": message}).encode(), Options())
    assert json.loads(capitals(document))["a"] == expected


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
    source = (
        "<xliff version='1.2'><file source-language='de' target-language='en'><body>"
        f"<trans-unit id='1'><source>{text}</source></trans-unit></body></file></xliff>"
    )
    written = capitals(XliffDocument(source.encode(), Options("de", "en")))
    target = written[written.index("<target") :].replace('"', "'")
    assert "{VAR, plural, =1 {EIN TAG} other {<x id='A'/> TAGE}} HIER" in target
