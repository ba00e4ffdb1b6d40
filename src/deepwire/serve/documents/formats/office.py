"""Word (.docx) and OpenDocument (.odt): the text of paragraphs, tables, headers, footers and notes.

All other files of the package, and all formatting, stay as they are. Word has no elements for bold or italic
text within a sentence, but runs side by side, each with its look: the most frequent one is that of the
paragraph, and what has another one is an element, as in HTML.
"""

from __future__ import annotations

import io
import lzma
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from deepwire.errors import DataError, Tell
from deepwire.serve.documents.document import Options, Pieces, Run, in_order
from deepwire.serve.documents.formats.xliff_content import SegmentContent
from deepwire.serve.documents.formats.xml_tree import (
    SPACE,
    Slot,
    SlotParagraph,
    in_one_line,
    local,
    parse_xml,
    text_slots,
    write_xml,
    xml_texts,
)

MOST_BYTES = 200 << 20
"""The most that all files of a package have, unpacked; most of it may be pictures."""
MOST_TEXT_BYTES = 32 << 20
"""The same of those with text, in which each byte costs far more."""
MOST_FILES = 10_000

_WORD_PARTS = re.compile(r"word/(document\d*|header\d*|footer\d*|footnotes|endnotes)\.xml")
_ODT_PARTS = re.compile(r"(content|styles)\.xml")
_BREAKS = {
    "br": "\n",
    "cr": "\n",
    "tab": "\t",
    "ptab": "\t",
    "noBreakHyphen": "-",
    "line-break": "\n",
    "s": " ",
}
"""Elements that stand for a character."""
_UNSEEN = frozenset(["r", "pPr", "rPr", "proofErr", "lastRenderedPageBreak"])
"""Elements of Word that do not part the text around them."""
_HYPERLINK = "HYPERLINK"
"""The field whose result is text."""
_GONE = frozenset(["del", "moveFrom"])
"""Elements of Word for what is there no more, but in the record of changes."""
_ODT_PARAGRAPHS = frozenset(["p", "h"])
_ODT_INLINE = frozenset(["span", "a", "meta", "meta-field", "ruby", "ruby-base"])
_ODT_BESIDE = frozenset(["tracked-changes", "annotation"])
"""In these, paragraphs are deleted text and comments."""
_ODT_MOVED = frozenset(["span", "a"])
"""Elements of which a paragraph may have another order."""

_LINK, _STRETCH, _NUMBER = "link", "stretch", "n"
"""Names in the tree of elements that stands for a paragraph."""
_MOST_STRETCHES = 1000
"""A paragraph with more of them keeps its order."""


class _Stretch(NamedTuple):
    """Text of one look.

    Attributes:
        text: Of one or more runs.
        link: The hyperlink that it is in.
        run: The first of them, which has the look.
    """

    text: str
    link: Any
    run: Any


class WordParagraph:
    """A paragraph whose formatting may change its order.

    Args:
        nodes: Its runs and links with text.
        stretches: The text in them, of several looks.

    Attributes:
        runs: Its text.
    """

    def __init__(self, nodes: Sequence[Any], stretches: Sequence[_Stretch]) -> None:
        self._nodes, self._stretches = nodes, stretches
        outside = Counter[bytes]()
        for stretch in stretches:
            outside[look_of(stretch.run)] += len(stretch.text.strip()) if stretch.link is None else 0
        base = outside.most_common(1)[0][0]
        self._base = next(stretch.run for stretch in stretches if look_of(stretch.run) == base)
        self._tree = self._as_elements(base)
        self._content = SegmentContent(self._tree)
        self.runs: Sequence[Run] = self._content.runs

    def put(self, pieces: Pieces) -> None:
        """Put a translation there; where nothing changed, the runs stay as they are."""
        if list(pieces) == in_order(self.runs, [run.text for run in self.runs]):
            return
        self._content.put(pieces)
        first = self._nodes[0]
        parent = first.getparent()
        place = parent.index(first)
        written = list(self._written(self._tree, self._base))
        for node in self._nodes:
            parent.remove(node)
        parent[place:place] = written

    def _as_elements(self, base: bytes) -> Any:
        """The paragraph as a tree, in which an element has the number of the stretch whose look it has."""
        from lxml import etree

        tree = parent = etree.Element("paragraph")
        link, parent_look = None, base
        for number, (text, around, run) in enumerate(self._stretches):
            if around is not link:
                parent, parent_look, link = tree, base, around
                if link is not None:
                    parent, parent_look = etree.SubElement(tree, _LINK, {_NUMBER: str(number)}), look_of(run)
            if look_of(run) != parent_look and text.strip():  # a space alone belongs to what is around it
                etree.SubElement(parent, _STRETCH, {_NUMBER: str(number)}).text = text
            elif len(parent):
                parent[-1].tail = (parent[-1].tail or "") + text
            else:
                parent.text = (parent.text or "") + text
        return tree

    def _written(self, node: Any, look: Any) -> Iterator[Any]:
        """The runs and links for an element whose own text looks like a run."""
        yield from _run(node.text, look)
        for child in node:
            stretch = self._stretches[int(child.get(_NUMBER))]
            written = self._written(child, stretch.run)
            if child.tag == _LINK:
                link = stretch.link.makeelement(
                    stretch.link.tag, dict(stretch.link.attrib), nsmap=stretch.link.nsmap
                )
                link.extend(written)
                yield link
            else:
                yield from written
            yield from _run(child.tail, look)


def word_paragraph(paragraph: Any) -> WordParagraph | None:
    """A paragraph with several looks; None where it has one, or anything else than text, such as a break."""
    nodes: list[Any] = []
    stretches: list[_Stretch] = []
    ended = False
    for child in paragraph:
        name = local(child)
        runs = [child] if name == "r" else list(child) if name == "hyperlink" else None
        if runs is None:
            if name not in ("pPr", "proofErr", "bookmarkStart", "bookmarkEnd"):
                return None
            ended = ended or (bool(nodes) and name.startswith("bookmark"))
            continue
        if ended or not all(map(_is_text, runs)):
            return None
        nodes.append(child)
        stretches += [_Stretch(_text(run), None if child is run else child, run) for run in runs]
    stretches = _merged(stretches)
    words = [stretch for stretch in stretches if stretch.text.strip()]
    links = {id(stretch.link) for stretch in stretches} - {id(stretch.link) for stretch in words}
    if len(stretches) > _MOST_STRETCHES or links:
        return None
    if len(_merged(words)) < 2 or all(stretch.link is not None for stretch in words):
        return None
    return WordParagraph(nodes, stretches)


def look_of(run: Any) -> bytes:
    """The formatting of a run, without what nobody sees."""
    from lxml import etree

    properties = next((child for child in run if local(child) == "rPr"), ())
    marks = [child for child in properties if local(child) not in ("lang", "noProof")]
    return b"".join(etree.tostring(mark, with_tail=False) for mark in marks)


def _is_text(node: Any) -> bool:
    return local(node) == "r" and all(local(child) in ("rPr", "t", "lastRenderedPageBreak") for child in node)


def _text(run: Any) -> str:
    return in_one_line("".join(child.text or "" for child in run if local(child) == "t"))


def _merged(stretches: Sequence[_Stretch]) -> list[_Stretch]:
    """Those with text; what looks the same is one."""
    filled = [stretch for stretch in stretches if stretch.text]
    if len(filled) < 2:
        return filled
    alike = groupby(filled, key=lambda stretch: (id(stretch.link), look_of(stretch.run)))
    groups = (list(group) for _, group in alike)
    return [group[0]._replace(text="".join(stretch.text for stretch in group)) for group in groups]


def _run(text: str | None, like: Any) -> Iterator[Any]:
    """A run with this text and the look of another; none without text."""
    if not text:
        return
    run = like.makeelement(like.tag, nsmap=like.nsmap)
    for child in like:
        if local(child) == "rPr":
            run.append(deepcopy(child))
    template = next(child for child in like if local(child) == "t")
    node = run.makeelement(template.tag, {SPACE: "preserve"})
    node.text = text
    run.append(node)
    yield run


Blocks = Iterator[SlotParagraph | WordParagraph | SegmentContent]
"""Paragraphs: with places for text in their order, or with formatting that may change its order."""


class PackageDocument:
    """A package of files, some of which are XML with text. All others stay packed until it is written.

    Args:
        content: The whole package.
        parts: Which of the files have text.
        blocks: The paragraphs of such a file.
        warn: Is told what of the translations it cannot hold.

    Raises:
        DataError: It is no package, damaged, encrypted, without text parts, or larger than anybody writes it.
    """

    def __init__(
        self, content: bytes, parts: re.Pattern[str], blocks: Callable[[Any], Blocks], warn: Tell
    ) -> None:
        self._content, self._warn = content, warn
        self._texts = _texts_of(content, parts)
        if (size := sum(map(len, self._texts.values()))) > MOST_TEXT_BYTES:
            raise DataError(
                f"its text has {size:,} bytes of XML, at most {MOST_TEXT_BYTES:,}: too large",
                "split the document",
            )
        self._trees = parse_xml(self._texts)
        self._blocks = [block for tree in self._trees.values() for block in blocks(tree)]
        self.units: Sequence[Sequence[Run]] = [block.runs for block in self._blocks]

    @property
    def names(self) -> set[str]:
        """The files with text."""
        return set(self._trees)

    def written(self, translations: Sequence[Pieces]) -> bytes:
        """The package with other texts."""
        texts = xml_texts(self.units, translations, self._warn)
        for block, pieces in zip(self._blocks, texts, strict=True):
            block.put(pieces)
        packed = io.BytesIO()
        with (
            zipfile.ZipFile(io.BytesIO(self._content)) as before,
            zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as package,
        ):
            for info in before.infolist():
                name, kind = info.filename, info.compress_type
                tree = self._trees.get(name)
                data = before.read(info) if tree is None else write_xml(tree, self._texts[name])
                package.writestr(info, data, kind)
        return packed.getvalue()


_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    OSError,
    ValueError,
)
"""Errors that reading a package can raise."""
_OLD_OFFICE = b"\xd0\xcf\x11\xe0"


def _texts_of(content: bytes, parts: re.Pattern[str]) -> dict[str, bytes]:
    """The files with text, by name; all others are looked at, and not kept."""
    if content.startswith(_OLD_OFFICE):
        raise DataError("it is encrypted, or a .doc file: save it without a password, in the new format")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as package:
            infos = package.infolist()
            size = sum(info.file_size for info in infos)
            if len(infos) > MOST_FILES or size > MOST_BYTES:
                raise DataError(f"unpacked it would have {size:,} bytes in {len(infos):,} files: too large")
            if any(info.flag_bits & 1 for info in infos):
                raise DataError("it is encrypted: remove the password first")
            # A name that comes twice would be read once and written twice.
            if len({info.filename for info in infos}) < len(infos):
                raise DataError("a damaged file: a part comes twice")
            texts = {}
            for info in infos:
                data = package.read(info)
                if parts.fullmatch(info.filename):
                    texts[info.filename] = data
            return texts
    except _DAMAGED as fault:
        raise DataError(f"a damaged file: {str(fault)[:100]}") from None


def read_docx(content: bytes, options: Options) -> PackageDocument:
    """Read a document of Word.

    Raises:
        DataError: As `PackageDocument`; or it is another kind of package.
    """
    document = PackageDocument(content, _WORD_PARTS, _word_paragraphs, options.warn)
    if not any(name.startswith("word/document") for name in document.names):
        raise DataError("not a document of Word: there is no word/document.xml in it")
    return document


def read_odt(content: bytes, options: Options) -> PackageDocument:
    """Read a text of OpenDocument.

    Raises:
        DataError: As `PackageDocument`; or it is another kind of package.
    """
    document = PackageDocument(content, _ODT_PARTS, _odt_paragraphs, options.warn)
    if "content.xml" not in document.names:
        raise DataError("not a text of OpenDocument: there is no content.xml in it")
    return document


def _word_paragraphs(tree: Any) -> Blocks:
    """The paragraphs; pieces of text of one look with nothing between them that is seen are one run."""
    from lxml import etree

    blocks: dict[Any, SlotParagraph | WordParagraph] = {}
    behind: dict[Any, list[str]] = {}
    look: tuple[Any, bytes] | None = None
    of_run: tuple[Any, bytes] | None = None
    fields, whole = list[_Field](), _whole_fields(tree)
    walk = etree.iterwalk(tree, events=("start",))  # with comments, its time grows with their square
    for _, node in walk:
        name = local(node)
        if name in ("pPr", "rPr", *_GONE):
            walk.skip_subtree()
        if name in _UNSEEN:
            continue
        previous, look = look, None
        if name == "fldChar":
            kind = node.get(f"{node.tag}Type")
            if kind == "begin" and node in whole:
                fields.append(_Field(_link_around(node)))
            elif kind == "end" and node in whole:
                fields.pop()
        elif name == "instrText" and fields:
            fields[-1].instruction += node.text or ""
        if name not in ("t", *_BREAKS) or local(node.getparent()) != "r":
            continue
        paragraph = next((ancestor for ancestor in node.iterancestors() if local(ancestor) == "p"), None)
        if paragraph is None:
            continue
        if paragraph not in blocks:
            blocks[paragraph] = (None if fields else word_paragraph(paragraph)) or SlotParagraph()
        block = blocks[paragraph]
        if isinstance(block, WordParagraph):
            continue
        slots = block.slots
        if name != "t":
            slots.append(Slot(node, False, Run(_BREAKS[name], fixed=True)))
            continue
        if of_run is None or of_run[0] is not node.getparent():
            of_run = node.getparent(), look_of(node.getparent())
        look = of_run[0].getparent(), of_run[1]
        run = _word_run(node, fields[-1] if fields else None)
        node.set(SPACE, "preserve")
        if slots and not (slots[-1].run.fixed or run.fixed) and look == previous:
            behind.setdefault(slots[-1].element, []).append(run.text)
            node.text = ""
        else:
            slots.append(Slot(node, False, run))
    for block in blocks.values():
        if isinstance(block, SlotParagraph):
            block.slots = [_with_text(slot, behind.get(slot.element, ())) for slot in block.slots]
        yield block


def _with_text(slot: Slot, behind: Sequence[str]) -> Slot:
    """A place that takes over the texts behind it, which look the same; without any, it stays."""
    if not behind:
        return slot
    whole = "".join((slot.run.text, *behind))
    slot.put(whole)
    return slot._replace(run=slot.run._replace(text=whole))


@dataclass
class _Field:
    """A field of Word that has begun.

    Attributes:
        around: The link that it is in, if any.
        instruction: What it is, such as `PAGE`.
    """

    around: Any
    instruction: str = ""


def _whole_fields(tree: Any) -> set[Any]:
    """The signs at the begin and end of fields that have both."""
    opened, whole = list[Any](), set[Any]()
    for sign in tree.getroot().iter("{*}fldChar"):
        kind = sign.get(f"{sign.tag}Type")
        if kind == "begin":
            opened.append(sign)
        elif kind == "end" and opened:
            whole |= {opened.pop(), sign}
    return whole


def _link_around(node: Any) -> Any:
    """The nearest link or field around it that is an element."""
    return next((one for one in node.iterancestors() if local(one) in ("hyperlink", "fldSimple")), None)


def _word_run(node: Any, field: _Field | None) -> Run:
    """A piece of text; formulas stay, and so do results of fields, but for links."""
    around = _link_around(node)
    if field is not None and field.around is around:
        instruction = field.instruction
    elif around is None or local(around) == "hyperlink":
        instruction = _HYPERLINK
    else:
        instruction = next((value for name, value in around.items() if name.endswith("}instr")), "")
    stays = instruction.split()[:1] != [_HYPERLINK] or any(
        local(one) == "oMath" for one in node.iterancestors()
    )
    return Run(in_one_line(node.text or ""), stays, filled=field is not None or around is not None)


def _odt_paragraphs(tree: Any) -> Blocks:
    for node in tree.getroot().iter():
        if local(node) in _ODT_PARAGRAPHS and "text:1.0" in str(node.tag):
            if not _ODT_BESIDE.isdisjoint(map(local, node.iterancestors())):
                continue
            inner = [local(child) for child in node.iterdescendants()]
            is_free = bool(inner) and set(inner) <= _ODT_MOVED and all(map(_has_text, node.iterdescendants()))
            yield SegmentContent(node) if is_free else SlotParagraph(text_slots(node, _odt_opaque))


def _has_text(node: Any) -> bool:
    return bool("".join(node.itertext()).strip())


def _odt_opaque(name: str) -> str | None:
    """Breaks have their characters; notes and frames within a paragraph have paragraphs of their own."""
    return None if name in _ODT_INLINE else _BREAKS.get(name, "")
