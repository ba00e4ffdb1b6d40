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
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple

from deepwire.errors import DataError
from deepwire.serve.documents.document import Document, Options, Pieces, Run
from deepwire.serve.documents.marked_text import Block, Item, ReplacedText, Stretch, block_of
from deepwire.serve.documents.xml_source import OTHER, TEXT, Node, XmlFile, escaped, in_one_line, read_xml

MAX_BYTES = 200 << 20
"""The most that all files of a package have, unpacked; most of it may be pictures."""
MAX_TEXT_BYTES = 32 << 20
"""The same of those with text, in which each byte costs far more."""
MAX_FILES = 10_000

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
_NO_TEXT = frozenset(["pPr", "rPr", "del", "moveFrom"])
"""Elements of Word whose inside is no text, or is there no more but in the record of changes."""
_HYPERLINK = "HYPERLINK"
"""The field whose result is text."""
_ODT_TEXT = re.compile(r"xmlns(?::([^\s=]+))?\s*=\s*[\"'][^\"']*:text:1\.0[\"']")
_ODT_INLINE = frozenset(["span", "a", "meta", "meta-field", "ruby", "ruby-base"])
_ODT_BESIDE = frozenset(["tracked-changes", "annotation"])
"""In these, paragraphs are deleted text and comments."""
_ODT_MOVED = frozenset(["span", "a"])
"""Elements of which a paragraph may have another order."""
_MAX_STRETCHES = 1000
"""A paragraph with more of them keeps its order."""


class _PackageDocument:
    """A package of files, some of which are XML with text. All others stay packed until it is written.

    `parts` are those with text; `main` is how the name of the one begins that each such package has.
    """

    def __init__(
        self, content: bytes, parts: re.Pattern[str], main: str, read: Callable[[XmlFile], ReplacedText]
    ) -> None:
        self._content = content
        texts = _texts_of(content, parts)
        if (size := sum(map(len, texts.values()))) > MAX_TEXT_BYTES:
            raise DataError(
                f"its text has {size:,} bytes of XML, at most {MAX_TEXT_BYTES:,}: too large",
                "split the document",
            )
        self.parts = {name: (xml, read(xml)) for name, xml in read_xml(texts).items()}
        if not any(name.startswith(main) for name in self.parts):
            raise DataError(f"not a document of this kind: there is no {main}.xml in it")
        self.units: Sequence[Sequence[Run]] = [unit for _, text in self.parts.values() for unit in text.units]

    def render(self, translations: Sequence[Pieces]) -> bytes:
        pieces = iter(translations)
        texts = {
            name: xml.encoded(text.text_with([next(pieces) for _ in text.units]))
            for name, (xml, text) in self.parts.items()
        }
        packed = io.BytesIO()
        with (
            zipfile.ZipFile(io.BytesIO(self._content)) as before,
            zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as package,
        ):
            for info in before.infolist():
                name, kind = info.filename, info.compress_type
                package.writestr(info, texts[name] if name in texts else before.read(info), kind)
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
            if len(infos) > MAX_FILES or size > MAX_BYTES:
                raise DataError(f"unpacked it would have {size:,} bytes in {len(infos):,} files: too large")
            if any(info.flag_bits & 1 for info in infos):
                raise DataError("it is encrypted: remove the password first")
            # A name that comes twice would be read once and written twice.
            if len({info.filename for info in infos}) < len(infos):
                raise DataError("a damaged file: a part comes twice")
            contents = {info.filename: package.read(info) for info in infos if parts.fullmatch(info.filename)}
            if package.testzip() is not None:
                raise DataError("a damaged file")
            return contents
    except _DAMAGED as fault:
        raise DataError(f"a damaged file: {str(fault)[:100]}") from None


def read_docx(content: bytes, options: Options) -> Document:  # noqa: ARG001 - as all readers
    """Read a document of Word.

    Raises:
        DataError: It is no such package, damaged, encrypted, or larger than anybody writes it.
    """
    return _PackageDocument(content, _WORD_PARTS, "word/document", _read_word)


def read_odt(content: bytes, options: Options) -> Document:  # noqa: ARG001 - as all readers
    """Read a text of OpenDocument.

    Raises:
        DataError: It is no such package, damaged, encrypted, or larger than anybody writes it.
    """
    return _PackageDocument(content, _ODT_PARTS, "content", _read_odt)


_Field = tuple[Node | None, str]
"""A field of Word that has begun: the link that it is in, if any, and what it is, such as `PAGE`."""


def _read_word(xml: XmlFile) -> ReplacedText:
    """The paragraphs; pieces of text of one look with nothing between them that is seen are one run."""
    blocks: dict[Node, Block] = {}
    paragraphs: dict[Node, list[Stretch]] = {}  # those whose order stays
    look: tuple[Node, str] | None = None
    fields = list[_Field]()
    looks = _Looks(xml)
    for node in xml.root.walk(_NO_TEXT):
        name = node.name
        if name in _UNSEEN:
            continue
        previous, look = look, None
        if name == "fldChar":
            if node.get("fldCharType") == "begin":
                fields.append((_link_around(node), ""))
            elif node.get("fldCharType") == "end":
                del fields[-1:]
        elif name == "instrText" and fields:
            link, instruction = fields.pop()
            fields.append((link, instruction + xml.text(node)))
        if name not in ("t", *_BREAKS) or node.parent is None or node.parent.name != "r":
            continue
        paragraph = next((ancestor for ancestor in node.ancestors() if ancestor.name == "p"), None)
        if paragraph is None or paragraph in blocks:
            continue
        if paragraph not in paragraphs:
            block = None if fields else _free_paragraph(xml, paragraph, looks)
            if block is not None:
                blocks[paragraph] = block
                continue
        stretches = paragraphs.setdefault(paragraph, [])
        if name != "t":
            stretches.append(Stretch(node.begin, node.end, Run(_BREAKS[name], fixed=True)))
            continue
        assert node.parent.parent is not None
        look = node.parent.parent, looks.of(node.parent)
        run = _word_run(in_one_line(xml.text(node)), node, fields[-1] if fields else None)
        last = stretches[-1] if stretches else None
        if last is not None and not (last.run.fixed or run.fixed) and look == previous:
            run = last.run._replace(text=last.run.text + run.text)
            stretches[-1] = Stretch(last.begin, node.end, run)
        else:
            stretches.append(Stretch(node.begin, node.end, run))
    blocks |= {paragraph: Block(stretches) for paragraph, stretches in paragraphs.items()}
    ordered = sorted(blocks, key=lambda paragraph: paragraph.begin)
    return ReplacedText(xml.source, [blocks[paragraph] for paragraph in ordered], _word_encoded)


def _word_encoded(text: str, raw: str) -> str:
    """Text as XML; in place of one or more elements with text, as one of them."""
    if not raw:
        return escaped(text)
    name = re.split(r"[\s/>]", raw[1:], maxsplit=1)[0]
    return f'<{name} xml:space="preserve">{escaped(text)}</{name}>'


def _link_around(node: Node) -> Node | None:
    return next((one for one in node.ancestors() if one.name in ("hyperlink", "fldSimple")), None)


def _word_run(text: str, node: Node, field: _Field | None) -> Run:
    """A piece of text; formulas stay, and so do results of fields, but for links."""
    around = _link_around(node)
    if field is not None and field[0] is around:
        instruction = field[1]
    elif around is None or around.name == "hyperlink":
        instruction = _HYPERLINK
    else:
        instruction = around.get("instr") or ""
    stays = instruction.split()[:1] != [_HYPERLINK] or any(one.name == "oMath" for one in node.ancestors())
    return Run(text, stays, filled=field is not None or around is not None)


class _Looks:
    """The formatting of runs of a file."""

    def __init__(self, xml: XmlFile) -> None:
        self._xml, self.of = xml, cache(self._of)

    def _of(self, run: Node) -> str:
        """The formatting of a run, without what nobody sees."""
        properties = (child for child in run.elements if child.name == "rPr")
        marks = (mark for each in properties for mark in each.elements)
        return "".join(self._xml.raw(mark) for mark in marks if mark.name not in ("lang", "noProof"))

    def around(self, run: Node) -> tuple[str, str]:
        """The markup before and behind text that looks as a run."""
        properties = "".join(self._xml.raw(child) for child in run.elements if child.name == "rPr")
        text = next(child.tag for child in run.elements if child.name == "t")
        return f'<{run.tag}>{properties}<{text} xml:space="preserve">', f"</{text}></{run.tag}>"


class _Looking(NamedTuple):
    """Text of one look.

    Attributes:
        text: Of one or more runs.
        link: The hyperlink that it is in.
        run: The first of them, which has the look.
    """

    text: str
    link: Node | None
    run: Node


def _free_paragraph(xml: XmlFile, paragraph: Node, looks: _Looks) -> Block | None:
    """A paragraph with several looks; None where it has one, or anything else than text, such as a break."""
    nodes: list[Node] = []
    texts: list[_Looking] = []
    ended = False
    for child in paragraph.children:
        runs = [child] if child.name == "r" else child.elements if child.name == "hyperlink" else None
        if runs is None:
            if child.name not in ("pPr", "proofErr", "bookmarkStart", "bookmarkEnd", TEXT):
                return None
            ended = ended or (bool(nodes) and child.name.startswith("bookmark"))
            continue
        if ended or not all(map(_is_text, runs)):
            return None
        nodes.append(child)
        for run in runs:
            said = in_one_line("".join(xml.text(part) for part in run.elements if part.name == "t"))
            texts.append(_Looking(said, None if child is run else child, run))
    texts = _merged(texts, looks)
    words = [text for text in texts if text.text.strip()]
    links = {text.link for text in texts} - {text.link for text in words}
    if len(texts) > _MAX_STRETCHES or links:
        return None
    if len(_merged(words, looks)) < 2 or all(text.link is not None for text in words):
        return None
    outside = Counter[str]()
    for text in texts:
        outside[looks.of(text.run)] += len(text.text.strip()) if text.link is None else 0
    base = outside.most_common(1)[0][0]
    items = _items_of_looks(texts, base, looks)
    block = block_of(xml.source, [item for item, _ in items], trimmed=False)
    outer = next(text.run for text in texts if looks.of(text.run) == base)
    around: dict[int | None, tuple[str, str]] = {None: looks.around(outer)}
    around |= {number: looks.around(run) for number, (_, run) in enumerate(items) if run is not None}
    return block._replace(around=around, extent=(nodes[0].begin, nodes[-1].end))


def _items_of_looks(texts: Sequence[_Looking], base: str, looks: _Looks) -> list[tuple[Item, Node | None]]:
    """The paragraph with its links, and what looks otherwise than it, as elements, each with its run."""
    items: list[tuple[Item, Node | None]] = []
    for link, together in groupby(texts, key=lambda text: text.link):
        linked = list(together)
        usual = base
        if link is not None:
            usual = looks.of(linked[0].run)
            items.append((Item(link.begin, link.inner, "open", name="link"), linked[0].run))
        for text, _, run in linked:
            at = run.begin
            item = Item(at, at, "text", text), None
            if looks.of(run) != usual and text.strip():  # a space alone belongs to what is around it
                items += [(Item(at, at, "open", name="look"), run), item]
                items.append((Item(at, at, "close", name="look"), None))
            else:
                items.append(item)
        if link is not None:
            items.append((Item(link.inner_end, link.end, "close", name="link"), None))
    return items


def _is_text(node: Node) -> bool:
    inside = (child.name for child in node.children)
    return node.name == "r" and all(name in ("rPr", "t", "lastRenderedPageBreak", TEXT) for name in inside)


def _merged(texts: Iterable[_Looking], looks: _Looks) -> list[_Looking]:
    """Those with text; what looks the same is one."""
    filled = (text for text in texts if text.text)
    alike = groupby(filled, key=lambda text: (text.link, looks.of(text.run)))
    groups = (list(group) for _, group in alike)
    return [group[0]._replace(text="".join(text.text for text in group)) for group in groups]


def _read_odt(xml: XmlFile) -> ReplacedText:
    """The paragraphs; notes and frames within one have paragraphs of their own, and keep their place."""
    prefixes = {match[1] or "" for match in _ODT_TEXT.finditer(xml.source)}
    tags = {f"{prefix}:{name}".lstrip(":") for prefix in prefixes for name in ("p", "h")}
    blocks = []
    for node in xml.root.walk(_ODT_BESIDE):
        if node.tag in tags:
            inside = list(node.walk())
            is_free = all(one.name in _ODT_MOVED and xml.text(one).strip() for one in inside)
            items = _odt_items(xml, node)
            if is_free:
                blocks.append(block_of(xml.source, items, trimmed=False))
            else:
                texts = [item for item in items if item.kind == "text"]
                blocks.append(Block([Stretch(one.begin, one.end, Run(one.text, one.fixed)) for one in texts]))
    return ReplacedText(xml.source, blocks, escaped)


def _odt_items(xml: XmlFile, node: Node) -> list[Item]:
    items: list[Item] = []
    for child in node.children:
        if child.name == TEXT:
            items.append(Item(child.begin, child.end, "text", in_one_line(xml.text(child))))
        elif child.name in _ODT_INLINE:
            name = f"{child.tag} {child.begin}"
            items.append(Item(child.begin, child.inner, "open", name=name))
            items += _odt_items(xml, child)
            items.append(Item(child.inner_end, child.end, "close", name=name))
        elif child.name != OTHER:
            stands = _BREAKS.get(child.name, "")
            items.append(Item(child.begin, child.end, "text", stands, fixed=True))
    return items
