"""Paragraphs of Word with nothing but runs of text and links: their formatting goes to its own words.

Word has no elements for bold or italic text within a sentence, but runs side by side, each with its look.
Here the most frequent look is that of the paragraph, and what has another one is an element, as in HTML.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import groupby
from typing import Any, NamedTuple

from deepwire.serve.documents.document import Pieces, Run, in_order
from deepwire.serve.documents.formats.xliff_content import SegmentContent
from deepwire.serve.documents.formats.xml_tree import SPACE, in_one_line, local

_LINK, _STRETCH, _NUMBER = "link", "stretch", "n"
"""Names in the tree of elements that stands for a paragraph."""
_MOST_STRETCHES = 1000
"""Of a paragraph whose formatting may change its order; with more it stays in order."""


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
