"""XLIFF 1.2 and 2: segments without a translation get one, with the inline elements of the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

from deepwire.data.text.language_guess import language_code
from deepwire.documents.document import Options, Pieces, Run
from deepwire.documents.formats.xliff_content import SegmentContent
from deepwire.documents.formats.xml_tree import local, parse_xml, write_xml
from deepwire.errors import DataError


class XliffDocument:
    """A file; a segment that has a translation keeps it.

    Args:
        content: All of it.
        options: The language to translate into is written into the file if it has none.

    Raises:
        DataError: It is no XLIFF, damaged, too large, or of another target language.
    """

    def __init__(self, content: bytes, options: Options) -> None:
        self._content, self._options = content, options
        (self._tree,) = parse_xml({"the file": content}).values()
        root = self._tree.getroot()
        if local(root) != "xliff":
            raise DataError(f"not XLIFF: the file begins with <{local(root)}>")
        for element in root.iter():
            named = element.get("target-language") or element.get("trgLang")
            if named and options.target and language_code(named) != language_code(options.target):
                raise DataError(f"its target language is {named}, not {options.target}")
        self._is_2 = str(root.get("version", "1.2")).startswith("2")
        self._contents: list[SegmentContent] = []
        self._targets: list[tuple[Any, Any]] = []
        for segment, source in _segments(root, self._is_2):
            target = deepcopy(source)
            target.tag = source.tag[: -len("source")] + "target"
            target.tail = source.tail
            for name in list(target.attrib):
                if name.endswith("}lang"):
                    del target.attrib[name]
            self._contents.append(SegmentContent(target))
            self._targets.append((segment, target))
        self.units: Sequence[Sequence[Run]] = [content.runs for content in self._contents]

    def written(self, translations: Sequence[Pieces]) -> bytes:
        """The file with more targets."""
        for content, pieces in zip(self._contents, translations, strict=True):
            content.put(pieces)
        for segment, target in self._targets:
            old = segment.find(target.tag)
            if old is not None:
                segment.replace(old, target)
            else:
                before = [child for child in segment if local(child) in ("source", "seg-source")][-1]
                before.addnext(target)
            if self._is_2:
                segment.set("state", "translated")
                segment.attrib.pop("subState", None)  # of the state before
            else:
                target.set("state", "needs-review-translation")
                target.set("state-qualifier", "mt-suggestion")
        self._name_language()
        return write_xml(self._tree, self._content)

    def _name_language(self) -> None:
        root = self._tree.getroot()
        wanted = self._options.target
        named = (
            [(root, "trgLang")]
            if self._is_2
            else [(file, "target-language") for file in root.iter() if local(file) == "file"]
        )
        for element, attribute in named:
            if wanted and element.get(attribute) is None:
                element.set(attribute, wanted.replace("_", "-"))


def _segments(root: Any, is_2: bool) -> Iterator[tuple[Any, Any]]:
    """Segments that are to be translated, and their sources."""
    for segment in root.iter():
        if local(segment) != ("segment" if is_2 else "trans-unit"):
            continue
        source = next((child for child in segment if local(child) == "source"), None)
        target = next((child for child in segment if local(child) == "target"), None)
        done = target is not None and "".join(target.itertext()).strip()
        said = (element.get("translate") for element in (segment, *segment.iterancestors()))
        kept = next(filter(None, said), "yes") == "no"  # the innermost
        if source is not None and not done and not kept and "".join(source.itertext()).strip():
            yield segment, source


def read_xliff(content: bytes, options: Options) -> XliffDocument:
    """Read a file.

    Raises:
        DataError: As `XliffDocument`.
    """
    return XliffDocument(content, options)
