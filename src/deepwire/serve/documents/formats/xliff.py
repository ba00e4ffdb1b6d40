"""XLIFF 1.2 and 2: segments without a translation get one, with the inline elements of the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

from deepwire.data.text.language_guess import language_code
from deepwire.errors import DataError
from deepwire.serve.documents.document import Options, Pieces, Run
from deepwire.serve.documents.formats.xliff_content import Markers, SegmentContent
from deepwire.serve.documents.formats.xml_tree import local, parse_xml, write_xml, xml_texts


class XliffDocument:
    """A file; a segment that has a translation keeps it.

    Args:
        content: All of it.
        options: The language to translate into is written into the file if it has none.

    Raises:
        DataError: It is no XLIFF, damaged, too large, or of another source or target language.
    """

    def __init__(self, content: bytes, options: Options) -> None:
        self._content, self._options = content, options
        (self._tree,) = parse_xml({"the file": content}).values()
        root = self._tree.getroot()
        if local(root) != "xliff":
            raise DataError(f"not XLIFF: the file begins with <{local(root)}>")
        for element in root.iter("{*}xliff", "{*}file"):
            _require_language(element, "source", ("source-language", "srcLang"), options.source)
            _require_language(element, "target", ("target-language", "trgLang"), options.target)
        self._is_2 = str(root.get("version", "1.2")).startswith("2")
        self._contents: list[SegmentContent] = []
        self._targets: list[tuple[Any, Any]] = []
        for segment, source, markers in _segments(root, self._is_2):
            target = deepcopy(source)
            target.tag = source.tag[: -len("source")] + "target"
            target.tail = source.tail
            for name in list(target.attrib):
                if name.endswith("}lang"):
                    del target.attrib[name]
            self._contents.append(SegmentContent(target, markers))
            self._targets.append((segment, target))
        self.units: Sequence[Sequence[Run]] = [content.runs for content in self._contents]

    def written(self, translations: Sequence[Pieces]) -> bytes:
        """The file with more targets."""
        texts = xml_texts(self.units, translations, self._options.warn)
        for content, pieces in zip(self._contents, texts, strict=True):
            content.put(pieces)
        for segment, target in self._targets:
            old = segment.find(target.tag)
            if old is not None:
                target.attrib.update(old.attrib)
                target.tail = old.tail
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


def _require_language(element: Any, side: str, attributes: Sequence[str], wanted: str) -> None:
    """See that a file is in a language, or into it, if it says which.

    Raises:
        DataError: It says another.
    """
    named = next(filter(None, map(element.get, attributes)), "")
    if named and wanted and language_code(named) != language_code(wanted):
        raise DataError(f"its {side} language is {named}, not {wanted}")


def _segments(root: Any, is_2: bool) -> Iterator[tuple[Any, Any, Markers]]:
    """Segments that are to be translated, their sources, and what has begun before; each is read at once."""
    unit, markers = None, Markers()
    for segment in root.iter():
        name = local(segment)
        if name not in (("segment", "ignorable") if is_2 else ("trans-unit",)):
            continue
        if not is_2 or segment.getparent() is not unit:
            unit, markers = segment.getparent(), Markers()
        source = next((child for child in segment if local(child) == "source"), None)
        target = next((child for child in segment if local(child) == "target"), None)
        done = name == "ignorable" or (target is not None and "".join(target.itertext()).strip())
        said = (element.get("translate") for element in (segment, *segment.iterancestors()))
        kept = next(filter(None, said), "yes") == "no"  # the innermost
        if source is not None and not done and not kept and "".join(source.itertext()).strip():
            yield segment, source, markers
        elif source is not None:
            markers.pass_over(source)


def read_xliff(content: bytes, options: Options) -> XliffDocument:
    """Read a file.

    Raises:
        DataError: As `XliffDocument`.
    """
    return XliffDocument(content, options)
