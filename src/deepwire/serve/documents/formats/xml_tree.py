"""XML read without trusting it, and the places in a tree that hold text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from deepwire.config.counts import counted
from deepwire.errors import DataError, Tell
from deepwire.serve.documents.document import Piece, Pieces, Run, Unit, in_order
from deepwire.serve.documents.file_text import has_ascii

SPACE = "{http://www.w3.org/XML/1998/namespace}space"
MOST_NODES = 1_000_000
"""Elements and attributes in the files of a document: a tree takes hundreds of bytes for four of a file."""


class Slot(NamedTuple):
    """A place for text in a tree; one that is fixed may have none.

    Attributes:
        element: Whose text or tail it is.
        is_tail: Which of them.
        run: What is there.
    """

    element: Any
    is_tail: bool
    run: Run

    def put(self, text: str) -> None:
        """Put another text there."""
        if self.run.fixed:
            return
        if self.is_tail:
            self.element.tail = text
        else:
            self.element.text = text


class SlotParagraph:
    """A paragraph without marks, whose places for text keep their order.

    Args:
        slots: The places.
    """

    def __init__(self, slots: Iterable[Slot] = ()) -> None:
        self.slots = list(slots)

    @property
    def runs(self) -> list[Run]:
        """The texts of the places."""
        return [slot.run for slot in self.slots]

    def put(self, pieces: Pieces) -> None:
        """Put a translation there; where nothing changed, the text stays as it is written."""
        if list(pieces) == in_order(self.runs, [run.text for run in self.runs]):
            return
        for slot, piece in zip(self.slots, pieces, strict=True):
            slot.put(piece.text)


def parse_xml(files: Mapping[str, bytes]) -> dict[str, Any]:
    """The trees of files, with no entity resolved, nothing fetched, and bounds for depth and size.

    Args:
        files: The content of each, by its name.

    Raises:
        DataError: One is not XML, or deeper than anybody writes it, or all together are larger.
    """
    count = sum(map(_most_nodes, files.values()))
    if count > MOST_NODES:
        raise DataError(
            f"its XML has {count:,} elements, attributes and references, at most {MOST_NODES:,}: too large",
            "split the document",
        )
    return {name: _parsed(content, name) for name, content in files.items()}


def _most_nodes(content: bytes) -> int:
    """How many nodes a file has at most, without reading it: each begins with a sign, in UTF-16 too."""
    return sum(map(content.count, (b"<", b"=", b"&"))) - content.count(b"</")


_DECLARED = re.compile(rb"(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)?<\?xml\b[^>]*?\bencoding\s*=\s*[\"']([^\"'>]*)")


def _parsed(content: bytes, name: str) -> Any:
    from lxml import etree

    declared = _DECLARED.match(content.replace(b"\0", b""))
    charset = declared[1].decode("latin-1") if declared else "utf-8"
    if not (has_ascii(charset) or charset.lower().startswith("utf-16")):
        raise DataError(f"{name}: written in {charset}", "convert it to UTF-8")
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, remove_blank_text=False
    )
    try:
        tree = etree.fromstring(content, parser).getroottree()
    except etree.XMLSyntaxError as fault:
        line = fault.lineno or 1
        said = str(fault.msg).partition(", line")[0][:120]
        raise DataError(f"{name}: line {line}: not XML: {said}") from None
    declared = tree.docinfo.internalDTD
    if (declared is not None and any(declared.iterentities())) or any(tree.getroot().iter(etree.Entity)):
        raise DataError(f"{name}: has entities of its own, which are not resolved", "write out what they say")
    return tree


def write_xml(tree: Any, source: bytes) -> bytes:
    """The tree as a file, in its encoding, with a line break at the end where the source has one."""
    from lxml import etree

    info = tree.docinfo
    content: bytes = etree.tostring(
        tree, xml_declaration=True, encoding=info.encoding or "UTF-8", standalone=info.standalone or None
    )
    end = next((end for end in (b"\n", b"\r\n") if source.endswith(b">" + end)), b"")
    return content + end


_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not have (section 2.2)."""


def xml_texts(units: Sequence[Unit], translations: Sequence[Pieces], warn: Tell) -> Sequence[Pieces]:
    """Translations of units without what XML cannot hold; a model may write it.

    Args:
        units: Of a document.
        translations: One for each; of fixed runs the file keeps its own.
        warn: Is told once, if there is any.
    """
    cleaned = [_xml_pieces(*each) for each in zip(units, translations, strict=True)]
    counts = [count for _, count in cleaned if count]
    if counts:
        characters, texts = counted(sum(counts), "character"), counted(len(counts), "text")
        warn(f"left out {characters} in {texts}: the file cannot hold them")
    return [pieces for pieces, _ in cleaned]


def _xml_pieces(unit: Unit, pieces: Pieces) -> tuple[Pieces, int]:
    """Pieces as XML can hold them, and how many characters are left out."""
    kept, count = list[Piece](), 0
    for piece in pieces:
        text, gone = piece.text, 0
        if piece.run is None or not unit[piece.run].fixed:
            text, gone = _NO_XML.subn(_space_or_nothing, text)
        kept.append(piece._replace(text=text) if gone else piece)
        count += gone
    return kept, count


def _space_or_nothing(character: re.Match[str]) -> str:
    return " " if character[0].isspace() else ""


_LINE_END = re.compile(r"[ \t]*[\r\n][ \t\r\n]*")


def in_one_line(text: str) -> str:
    """Text of a paragraph, in which the ends of lines are spaces."""
    return _LINE_END.sub(" ", text)


def local(element: Any) -> str:
    """The name of an element without its namespace; empty for comments and the like."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def text_slots(element: Any, opaque: Callable[[str], str | None]) -> Iterator[Slot]:
    """The places of text within an element, in their order.

    Args:
        element: Where to look.
        opaque: Given the name of an element within it, what stands for that element, whose inside is no text
            of this one; None for an element whose inside is. A comment has the name "".
    """
    # No recursion: the depth of a tree is not ours.
    stack: list[tuple[Any, bool]] = [(element, False)]
    while stack:
        node, is_tail = stack.pop()
        if is_tail:
            if node.tail:
                yield Slot(node, True, Run(in_one_line(node.tail)))
            continue
        if node is not element:
            stack.append((node, True))
            if (stands := opaque(local(node))) is not None:
                yield Slot(node, False, Run(stands, fixed=True))
                continue
        if node.text:
            yield Slot(node, False, Run(in_one_line(node.text)))
        stack += [(child, False) for child in reversed(node)]
