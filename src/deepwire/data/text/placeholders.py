"""Parts of a text that a translation has unchanged: numbers, addresses, variables of programs, tags.

A model reads a text without those that no model can read, and the search brings them into the translation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_LATIN = r"0-9A-Za-z_\u00c0-\u024f\u1e00-\u1eff"
"""Characters within a name. Letters of other scripts are text, as in `%s님`."""
_VARIABLES = (
    r"[$#%@]?\{{1,3}[^{}\n]*\}{1,3}",  # {name} ${name} %{name} #{name} {{name}} {% if %}
    r"'[{}]{1,2}'",  # braces that messages of ICU quote
    r"%(?:\([^)\s]{1,64}\)|<[^>\s]{1,64}>|\[\d+\])?[-+#0]*+\d*+(?:\.\d++)?"
    rf"(?:hh|h|ll|l|q|z|j|t)?[diouxXeEfgGcrsa@](?![{_LATIN}])",  # %s %(name)s %<name>.2f %[1]d %lld %@
    r"%(?:\d+\$)?#@\w+@",  # %#@files@
    r"%\d+\$[-+#0,]*+[\d.]*+(?:hh|h|ll|[lqLzjt])?[A-Za-z@]",  # %1$s %1$@ %2$.1f %1$tY
    rf"(?<![{_LATIN}%#@])(?P<sign>%%?|##?|@@)[A-Za-z_][{_LATIN}]*(?P=sign)(?![{_LATIN}])",  # %NAME% ##name##
    rf"(?:(?<![{_LATIN}%])(?<!\d\s)|(?<=%[A-Za-z]))"
    rf"%(?:[-+#0]*+\d[\d.]*+)?[A-Za-z][{_LATIN}]*",  # %name %Y%m %dpx
    rf"%%[{_LATIN}]*",
    r"\$t\([^()\n]*\)|[$\\]\([A-Za-z_][\w.]*\)",  # $t(key) $(name) \(name)
    rf"(?<![{_LATIN}$])\$[A-Za-z_][{_LATIN}]*(?:(?:\.|->)[{_LATIN}]+)*(?:\$(?![{_LATIN}]))?",  # $name $NAME$
    r"(?<![^\s(\[{\"'«“„>/=,;|\u3001-\u9fff\uac00-\ud7af\uff01-\uff5e-])"
    rf":[A-Za-z_][A-Za-z0-9_]*:?(?![{_LATIN}:])",  # :name, not a:b
    r"\[\[\s*[\w.$|:/-]+\s*\]\]|\[%[^\[\]\n]*%\]|\[_\d+\]",  # [[name]] [% name %] [_1]
    rf"(?<![{_LATIN}])__[A-Za-z][{_LATIN}]*?__(?![{_LATIN}])",  # __name__
    rf"(?<![{_LATIN}])@(?:\.\w+)?:(?:[{_LATIN}.-]*[{_LATIN}]|\([^()\n]*\)|\{{[^{{}}\n]*\}})",  # @.lower:key
    rf"(?<![{_LATIN}.@])@[A-Za-z_][{_LATIN}]*",  # @name
    r"&(?:#\d{1,7}|#x[0-9A-Fa-f]{1,6}|[A-Za-z][\w.]{1,31});",  # &name;
    r"\*\|[^|\n]*\|\*",  # *|NAME|*
    r"<%[^<>\n]*%>|<\?[^<>\n]*\?>|<<[^<>\s]+>>",  # <%= name %> <<name>>
)

KINDS: Mapping[str, str] = {
    "address": r"https?://[^\s<>\"')\]]*[^\s<>\"')\].,;:!?]"
    r"|www\.[^\s<>\"')\]]*[^\s<>\"')\].,;:!?]"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+",
    "tag": r"</?(?:[A-Za-z][^<>\n]*|\d+\s*/?)>",
    "variable": rf"(?=[$#%@{{:\[_&<*'\\])(?:{'|'.join(_VARIABLES)})",
    "number": r"(?<![\w.,:/])\d+(?:[.,:/]\d+)*(?!\w)",
}
"""The pattern of each kind; the earlier one is found first."""

_MILLIONS = (
    r"\s?(?:mil(?:l?i|l[oó]|j|h|(?:le)?\b)|mio\b|m[lr][nd]\b|bil(?:l?i|j)o|bn\b|tri?l|thousand|hundred"
    r"|tausend|hundert|lakh|crore|млн|млрд|мил|тыс|[万萬億亿百千])"
)


def _numbered(number: str) -> str:
    """Variables with a number that no brace ends: %1 and %L1 of Qt, %1!s! of Windows, $1 of browsers."""
    begin = rf"(?:(?<![{_LATIN}%$])|(?<=[%$]\d))"
    end = r"(?!\d|[.,:/–-]\d)"
    return rf"{begin}(?:%L?{number}{end}(?:![\w.-]+!)?|\${number}{end}(?![{_LATIN}]|(?i:{_MILLIONS})))"


_MESSAGE = re.compile(r"\{\s*[\w.]+\s*,\s*(?P<type>plural|selectordinal|select|choice)\s*,")
"""The beginning of a part with branches in a message of ICU."""
_PATTERN, _PATTERN_WITH_NUMBERED = (
    re.compile(
        f"(?P<message>{_MESSAGE.pattern})|"
        + "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in kinds.items())
    )
    for kinds in (KINDS, {**KINDS, "variable": f"{KINDS['variable']}|{_numbered('[1-9][0-9]?')}"})
)
_FIRST_NUMBERED = re.compile(_numbered("1"))
"""Without a first one, `%50` and `$5` are percent and dollars."""
_BRACE = re.compile(r"'[{}][^']*(?:'|\Z)|[{}]")
"""And what quotes braces in messages of ICU."""
_OPENING = frozenset("([{«„“‘‚'\"/=#@-–—$€£")
_CLOSING = frozenset(")]}»“”’'\".,;:!?%/-–—…°€$£")


class Placeholder(NamedTuple):
    """A part of a text that stays."""

    begin: int
    end: int
    kind: str
    """One of `KINDS`."""


def find_placeholders(text: str) -> list[Placeholder]:
    """All of a text, in their order; none overlap."""
    may_be_numbered = ("%" in text or "$" in text) and _FIRST_NUMBERED.search(text)
    pattern = _PATTERN_WITH_NUMBERED if may_be_numbered else _PATTERN
    found, at = list[Placeholder](), 0
    closing: dict[int, int] | None = None
    while match := pattern.search(text, at):
        kind, at = match.lastgroup or "", match.end()
        if match["message"]:
            closing = _closing_braces(text) if closing is None else closing
            at = closing.get(match.start(), len(text))
        found.append(Placeholder(match.start(), at, kind if kind in KINDS else "variable"))
    return found


def is_message(text: str) -> bool:
    """Whether a text begins like a message of ICU with branches."""
    return _MESSAGE.match(text) is not None


def message_branches(text: str) -> list[tuple[int, int]]:
    """Where the branches are of a placeholder that is a message of ICU: the texts of a plural or select."""
    head = _MESSAGE.match(text)
    if head is None or head["type"] == "choice":
        return []
    closing = _closing_braces(text)
    branches, at = [], text.find("{", head.end())
    while at in closing:
        branches.append((at + 1, closing[at] - 1))
        at = text.find("{", closing[at])
    return branches if closing.get(0) == len(text) else []


def _closing_braces(text: str) -> dict[int, int]:
    closing, opened = dict[int, int](), list[int]()
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            opened.append(brace.start())
        elif brace[0] == "}" and opened:
            closing[opened.pop()] = brace.end()
    return closing


def count_placeholders(text: str) -> Counter[str]:
    """How often a text has each."""
    return Counter(text[placeholder.begin : placeholder.end] for placeholder in find_placeholders(text))


def has_letters(text: str) -> bool:
    """Whether there is anything but placeholders, figures and signs, and so something to translate."""
    at = 0
    for placeholder in find_placeholders(text):
        if any(map(str.isalpha, text[at : placeholder.begin])):
            return True
        at = placeholder.end
    return any(map(str.isalpha, text[at:]))


class Core(NamedTuple):
    """A text as a model reads it.

    Attributes:
        before, behind: Placeholders at the ends, with the signs next to them: they stay where they are.
        text: What is between them, without what no model can read: addresses, variables, tags.
        kept: The placeholders that the translation of `text` must have, and how often.
    """

    before: str
    text: str
    behind: str
    kept: Mapping[str, int]


_SIGNS = r"[\s()\[\]–—:;,.!?/|-]*"
_SIGNS_BEFORE = frozenset("([–—:;,/|-")
_BREAK = re.compile(r"[()\[\]–—:;|.!?]|\s-\s")


def core(text: str) -> Core:
    """The part of a text that is to be translated, and what stays.

    A number at an end stays with the text, unless a sign parts them: `12 Hunde`, but not `12: Hunde`.
    """
    placeholders = find_placeholders(text)
    if not placeholders:
        return Core("", text, "", {})
    if not has_letters(text):
        return Core(text, "", "", {})
    begin, end = 0, len(text)
    while placeholders and (gap := re.fullmatch(_SIGNS, text[begin : placeholders[0].begin])) is not None:
        following = re.compile(_SIGNS).match(text, placeholders[0].end)
        edge = following.end() if following else placeholders[0].end
        if placeholders[0].kind == "number" and not _BREAK.search(gap[0] + text[placeholders[0].end : edge]):
            break
        begin = edge
        placeholders.pop(0)
    while placeholders and re.fullmatch(_SIGNS, text[placeholders[-1].end : end]):
        start = placeholders[-1].begin
        while start > begin and (text[start - 1].isspace() or text[start - 1] in _SIGNS_BEFORE):
            start -= 1
        beside = len(placeholders) > 1 and re.fullmatch(
            _SIGNS, text[placeholders[-2].end : placeholders[-1].begin]
        )
        parted = _BREAK.search(text[max(0, start - 1) : placeholders[-1].begin].replace(",", ":"))
        if placeholders[-1].kind == "number" and not (beside or parted):
            break
        end = start
        placeholders.pop()
    if begin >= end:
        return Core(text, "", "", {})
    parts, at, kept = [], begin, Counter[str]()
    for placeholder in placeholders:
        kept[text[placeholder.begin : placeholder.end]] += 1
        if placeholder.kind != "number":
            parts.append(text[at : placeholder.begin])
            at = placeholder.end
    inner = re.sub(r"\(\s*\)|(?<=\s)\s+", "", "".join([*parts, text[at:end]]))
    return Core(text[:begin], inner, text[end:], kept)


def spaced_alike(source: str, translation: str, values: Sequence[str]) -> str:
    """The translation without spaces between a placeholder and a sign that the source has next to it."""
    for value in dict.fromkeys(values):
        at = source.find(value)
        if at < 0:
            continue
        before, behind = source[at - 1 : at] if at else "", source[at + len(value) :][:1]
        if before in _OPENING and f"{before} {value}" in translation:
            translation = translation.replace(f"{before} {value}", before + value)
        if behind in _CLOSING and f"{value} {behind}" in translation:
            translation = translation.replace(f"{value} {behind}", value + behind)
    return translation
