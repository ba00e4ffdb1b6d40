"""XML as text: checked by expat, and read into nodes that know where they stand, so that all else stays."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from deepwire.errors import DataError
from deepwire.serve.documents.marked_text import unescaped

MAX_NODES = 1_000_000
"""Elements and attributes in the files of a document: a tree takes hundreds of bytes for four of a file."""
_DEEPEST = 256
TEXT, OTHER = "#text", "#other"
"""Names of nodes that are no elements: text, and comments and instructions."""


@dataclass(eq=False, slots=True)
class Node:
    """An element, a text between tags, or a comment or instruction.

    Attributes:
        name: The name of the element, without its prefix.
        begin, end: Where it stands.
        inner, inner_end: Where its content stands.
        parent: The element that it is in; None for the whole file.
        tag: The name of the element with its prefix.
        attributes: They, as they are written.
        children: What it consists of, in its order.
    """

    name: str
    begin: int
    end: int
    inner: int
    inner_end: int
    parent: Node | None
    tag: str = ""
    attributes: str = ""
    children: list[Node] = field(default_factory=list)

    @property
    def elements(self) -> list[Node]:
        """The elements among its children."""
        return [child for child in self.children if child.name not in (TEXT, OTHER)]

    def raw_attributes(self) -> dict[str, str]:
        """The values of its attributes by their names, both as they are written."""
        return {match[1]: match[2] for match in _ATTRIBUTE.finditer(self.attributes)}

    def get(self, name: str) -> str | None:
        """An attribute, by its name with or without its prefix; None if it has none."""
        values = self.raw_attributes() if name in self.attributes else {}
        found = (value for key, value in values.items() if name in (key, key.rpartition(":")[2]))
        return next((html.unescape(value[1:-1]) for value in found), None)

    def ancestors(self) -> Iterator[Node]:
        """The elements around it, the nearest one first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def walk(self, skipped: Collection[str] = ()) -> Iterator[Node]:
        """The elements within it in their order, without those within elements of some names."""
        stack = self.elements[::-1]
        while stack:
            node = stack.pop()
            yield node
            if node.name not in skipped:
                stack += node.elements[::-1]


class XmlFile:
    """A file of XML.

    Args:
        content: All of it.
        name: What it is called where it is refused.

    Attributes:
        source: Its text; what stands in sections of CDATA stands there as other text.
        root: Its outermost element.

    Raises:
        DataError: It is not XML, or deeper than anybody writes it, or has entities of its own.
    """

    def __init__(self, content: bytes, name: str) -> None:
        self._charset = _charset(content, name)
        try:
            source = content.decode(self._charset)
        except (UnicodeError, LookupError):
            raise DataError(f"{name}: not XML: it is not {self._charset}") from None
        _check(source, name)
        self.source = _CDATA.sub(lambda match: match[0] if match[1] is None else escaped(match[1]), source)
        self.root = _tree(self.source, name)

    def text(self, node: Node) -> str:
        """The text in a node, as it is read."""
        if node.name == TEXT:
            return unescaped(self.source[node.begin : node.end])
        return "".join(map(self.text, node.children))

    def raw(self, node: Node) -> str:
        """The node, as it is written."""
        return self.source[node.begin : node.end]

    def encoded(self, source: str) -> bytes:
        """Another text of the file in its charset."""
        return source.encode(self._charset, "xmlcharrefreplace")


_CDATA = re.compile(r"<!--.*?-->|<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_DECLARED = re.compile(rb"(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)?<\?xml\b[^>]*?\bencoding\s*=\s*[\"']([^\"'>]*)")
_ATTRIBUTE = re.compile(r"([^\s=]+)\s*=\s*(\"[^\"]*\"|'[^']*')")
_TOKEN = re.compile(
    r"<!--.*?-->|<\?.*?\?>|<!(?:[^\[\"'>]++|\"[^\"]*\"|'[^']*'|\[(?:<!--.*?-->|.)*?\]\s*(?=>))*>"
    r"|</[^>]*>|<(?P<tag>[^\s/>]+)(?P<attributes>(?:[^\"'/>]++|\"[^\"]*\"|'[^']*'|/(?!>))*+)(?P<empty>/?)>",
    re.DOTALL,
)


def _charset(content: bytes, name: str) -> str:
    """The charset of a file; with its byte order mark as a character, that it is written again as it was."""
    declared = _DECLARED.match(content.replace(b"\0", b"")[:1000])
    charset = declared[1].decode("latin-1") if declared else "utf-8"
    is_wide = charset.lower().startswith("utf-16")
    if not (is_wide or _has_ascii(charset)):
        raise DataError(f"{name}: written in {charset}", "convert it to UTF-8")
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16-le" if content[0] == 0xFF else "utf-16-be"
    return "utf-8" if is_wide or content.startswith(b"\xef\xbb\xbf") else charset


_ASCII = "".join(map(chr, range(128)))


def _has_ascii(charset: str) -> bool:
    """Whether a charset writes ASCII as it is; others may take quadratic time, such as punycode."""
    try:
        return _ASCII.encode(charset) == _ASCII.encode()
    except (LookupError, UnicodeError):
        return False


def _check(source: str, name: str) -> None:
    parser = expat.ParserCreate("utf-8", namespace_separator=" ")

    def refuse(*_: object) -> None:
        raise DataError(f"{name}: has entities of its own, which are not resolved", "write out what they say")

    parser.EntityDeclHandler = parser.SkippedEntityHandler = refuse
    try:
        parser.Parse(source.encode("utf-8", "replace"), True)
    except expat.ExpatError as fault:
        raise DataError(f"{name}: line {fault.lineno}: not XML: {expat.ErrorString(fault.code)}") from None


def _tree(source: str, name: str) -> Node:
    top = node = Node("", 0, len(source), 0, len(source), None)
    at = depth = 0
    for token in _TOKEN.finditer(source):
        begin, end = token.span()
        if begin > at:
            node.children.append(Node(TEXT, at, begin, at, begin, node))
        at = end
        if token["tag"] is not None:
            tag = token["tag"]
            attributes = token["attributes"]
            child = Node(tag.rpartition(":")[2], begin, end, end, end, node, tag, attributes)
            node.children.append(child)
            if not token["empty"]:
                node, depth = child, depth + 1
            if depth > _DEEPEST:
                raise DataError(f"{name}: not XML that anybody writes: deeper than {_DEEPEST} elements")
        elif token[0][1] == "/":
            assert node.parent is not None
            node.inner_end, node.end = begin, end
            node, depth = node.parent, depth - 1
        else:
            node.children.append(Node(OTHER, begin, end, begin, end, node))
    (root,) = top.elements
    root.parent = None
    return root


def read_xml(files: Mapping[str, bytes]) -> dict[str, XmlFile]:
    """Files of XML by their names, with no entity resolved, nothing fetched, and bounds for depth and size.

    Raises:
        DataError: As `XmlFile`; or all together are larger than anybody writes them.
    """
    # Without reading them: each node begins with a sign, in UTF-16 too.
    signs = {b"<": 1, b"=": 1, b"&": 1, b"</": -1}
    count = sum(content.count(sign) * weight for content in files.values() for sign, weight in signs.items())
    if count > MAX_NODES:
        raise DataError(
            f"its XML has {count:,} elements, attributes and references, at most {MAX_NODES:,}: too large",
            "split the document",
        )
    return {name: XmlFile(content, name) for name, content in files.items()}


_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not have (section 2.2); a model may write them."""


def escaped(text: str, _raw: str = "") -> str:
    """Text as XML, without what that cannot hold."""
    return html.escape(_NO_XML.sub(lambda sign: " " * sign[0].isspace(), text), quote=False)


_LINE_END = re.compile(r"(?<![ \t])[ \t]*[\r\n][ \t\r\n]*")


def in_one_line(text: str) -> str:
    """Text of a paragraph, in which the ends of lines are spaces."""
    return _LINE_END.sub(" ", text)
