from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepwire.data.text.placeholders import (
    core,
    count_placeholders,
    find_placeholders,
)

PARTS = ["7", "1.250,50", "%s", "{name}", "<b>", "</b>", "https://a.de/x?y=1", "a@b.de", "Hund", "B2B"]
_PERCENT = ["%<name>s", "%<n>05.2f", "%[1]d", "%lld", "%v", "%Y", "%m", "%d", "%dx", "%d", "%dpx", "%name"]
_PLURAL = "{n, plural, one {{a} 'x' # Tag} other {'{' {b}}}"
SIGNS = ["(", ")", ",", ".", "–"]
TEXTS = st.lists(st.sampled_from([*PARTS, *SIGNS])).map(" ".join)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12 Hunde, 1.000,5 kg um 12:30", ["12", "1.000,5", "12:30"]),
        ("B2B und 3D sind Wörter", []),
        ("Siehe https://a.de/b?c=1. Oder a.b@c.de!", ["https://a.de/b?c=1", "a.b@c.de"]),
        ("%s hat %(n)d, {x} ${y} {{z}} %1$s 100 %", ["%s", "%(n)d", "{x}", "${y}", "{{z}}", "%1$s", "100"]),
        ("Ein <b class='x'>Hund</b>", ["<b class='x'>", "</b>"]),
        ("3 < 4", ["3", "4"]),
        ("%{name} #{name} @{name} ${name} {{{name}}}", "split"),
        ("%<name>s %<n>05.2f %[1]d %lld %v %Y-%m-%d %dx%d %dpx %name", _PERCENT),
        ("%1$@ %2$.1f %1$lld %#@files@ %1$#@files@ %1$tY", "split"),
        ("%1 %L2 %3!s! %10 von $2", ["%1", "%L2", "%3!s!", "%10", "$2"]),
        ("%1%2 zu %1%", ["%1", "%2", "%1"]),
        ("$t(common:haus) $t(a, {n}) $(name)", ["$t(common:haus)", "$t(a, {n})", "$(name)"]),
        ("Hallo \\(name)s", ["\\(name)"]),
        ("100%% der %%s, 5%%", ["100", "%%", "%%s", "5", "%%"]),
        ("$name $user.name $NAME$ %NAME% %%title%% ##name##", "split"),
        (":name :user_name, (:id) = :x; :smile:", [":name", ":user_name", ":id", ":x", ":smile:"]),
        (
            "[[name]] [[ user.name ]] __name__ *|NAME|*",
            ["[[name]]", "[[ user.name ]]", "__name__", "*|NAME|*"],
        ),
        ("@:key @.lower:key @:(key) @:{'key'} @name", "split"),
        ("@:a.b. &brandName; &#160;", ["@:a.b", "&brandName;", "&#160;"]),
        ("<%= name %> <?= $x ?> <<name>>", ["<%= name %>", "<?= $x ?>", "<<name>>"]),
        ("<1>Haus</1> <2/> <3 />", ["<1>", "</1>", "<2/>", "<3 />"]),
        (f"{_PLURAL} da {{c}}", [_PLURAL, "{c}"]),
        ("{n, plural, one {# Tag", ["{n, plural, one {# Tag"]),
        # Scripts without spaces, and endings behind a name.
        ("%sさん、を%d件と$nameさん、%NAME%です", ["%s", "%d", "$name", "%NAME%"]),
        (":attributeは:otherより、:max文字以下", [":attribute", ":other", ":max"]),
        ("第%1个，共%2个，$1的", ["%1", "%2", "$1"]),
        ("%s님이 @name님, __n__개 @:a.b를", ["%s", "@name", "__n__", "@:a.b"]),
        ("%sов, %d-го и %d%%", ["%s", "%d", "%d", "%%"]),
        ("[%name%] [_1] @@name@@ '{' '}'", "split"),
        ("[% name %]", ["[% name %]"]),
        ("{items.length, plural, other {# x}}", ["{items.length, plural, other {# x}}"]),
        # Ordinary prose.
        ("um 10:30, a:b, Lehrer:innen: ja ::x, C++::y", ["10:30"]),
        ("$1 million, $1.50, $1 Milliarde, $5, $10", ["1", "1.50", "1", "5", "10"]),
        ("50%, 50 %ig, %-Klausel, %50, 5% off, 100 %", ["50", "50", "50", "5", "100"]),
        ("AT&T; R&D, [1] [sic] 5 <6, 7> 8, a <> b, a__b__c, @ home", ["1", "5", "6", "7", "8"]),
    ],
)
def test_what_is_a_placeholder(text, expected):
    found = [text[one.begin : one.end] for one in find_placeholders(text)]
    assert found == (text.split() if expected == "split" else expected)


@given(TEXTS)
def test_what_is_cut_off_and_kept_are_all_placeholders(text):
    found = core(text)
    parts = count_placeholders(found.before) + count_placeholders(found.behind)
    assert parts + type(parts)(found.kept) == count_placeholders(text)
    assert text.startswith(found.before)
    assert text.endswith(found.behind)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<b>Ein Hund läuft.</b>", ("<b>", "Ein Hund läuft.", "</b>")),
        ("12 Hunde laufen.", ("", "12 Hunde laufen.", "")),
        ("12: Hunde laufen. (7)", ("12: ", "Hunde laufen.", " (7)")),
        ("Ein {x} läuft.", ("", "Ein läuft.", "")),
        ("7 – 8", ("7 – 8", "", "")),
    ],
)
def test_the_core_of_a_text(text, expected):
    found = core(text)
    assert (found.before, found.text, found.behind) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a" + " " * 100_000 + "b: 5",
        "%(" * 100_000,
        "%" + "0" * 100_000,
        "%0.0" + "0" * 100_000,
        "{" * 100_000,
        "1." * 100_000 + "a",
        "{n,plural," * 20_000,
        "{n,plural,a{" * 20_000 + "}}" * 20_000,
        "%1" * 100_000,
        "$a." * 100_000,
        "__a" * 100_000,
        "@:" + "." * 100_000,
        "[[" + "a" * 100_000,
        "[[ " * 100_000,
        "%a%%a" * 50_000,
        "*|" * 100_000,
        "<%" * 100_000,
        "$t(" * 100_000,
    ],
)
def test_odd_texts_are_read_in_linear_time(text):
    begun = time.perf_counter()
    core(text)
    assert time.perf_counter() - begun < 20, "it took minutes"
