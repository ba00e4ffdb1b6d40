"""XLIFF 1.2 and 2: segments without a translation get one, with the inline elements of the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

from deepwire.data.text.language_guess import language_code
from deepwire.errors import DataError
from deepwire.serve.documents.document import Options, Pieces, Run
from deepwire.serve.documents.formats.xliff_content import Markers, SegmentContent
from deepwire.serve.documents.formats.xml_tree import SPACE, local, parse_xml, write_xml, xml_texts


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
            target, places = _target(segment, source)
            self._contents += [SegmentContent(place, markers) for place in places]
            self._targets.append((segment, target))
        self.units: Sequence[Sequence[Run]] = [content.runs for content in self._contents]

    def written(self, translations: Sequence[Pieces]) -> bytes:
        """The file with more targets."""
        texts = xml_texts(self.units, translations, self._options.warn)
        for content, pieces in zip(self._contents, texts, strict=True):
            content.put(pieces)
        for segment, target in self._targets:
            old = segment.find(target.tag)
            if old is not None and old is not target:
                target.attrib.update(old.attrib)
                target.tail = old.tail
                segment.replace(old, target)
            elif old is None:
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
    """Checks that a file is in a language, or into it, if it says which.

    Raises:
        DataError: It says another.
    """
    named = next(filter(None, map(element.get, attributes)), "")
    if named and wanted and language_code(named) != language_code(wanted):
        raise DataError(f"its {side} language is {named}, not {wanted}")


def _segments(root: Any, is_2: bool) -> Iterator[tuple[Any, Any, Markers]]:
    """Segments with something to translate, their sources and markers before them; each is read at once."""
    unit, markers = None, Markers()
    for segment in root.iter():
        name = local(segment)
        if name not in (("segment", "ignorable") if is_2 else ("trans-unit",)):
            continue
        source = _child(segment, "source") if is_2 else _child(segment, "seg-source", "source")
        if source is None:
            continue
        if not is_2 or segment.getparent() is not unit:
            unit, markers = segment.getparent(), Markers()
        markers.keeps_lines = _innermost(source, SPACE) == "preserve"
        done = name == "ignorable" or not _open_parts(segment, source)
        if not done and _innermost(segment, "translate") != "no":
            yield segment, source, markers
        else:
            markers.pass_over(source)


def _child(element: Any, *names: str) -> Any:
    """The first child of the first of some names that there is."""
    found = (child for name in names for child in element if local(child) == name)
    return next(found, None)


def _innermost(element: Any, attribute: str) -> str:
    """An attribute of an element, or of the nearest one around it that has it."""
    values = (one.get(attribute) for one in (element, *element.iterancestors()))
    return str(next(filter(None, values), ""))


def _text(element: Any) -> str:
    return "" if element is None else "".join(element.itertext()).strip()


def _parts(element: Any) -> dict[str, Any]:
    """The segments that a source or target of XLIFF 1.2 is cut into, by their ids; perhaps none."""
    marked = [] if element is None else [one for one in element.iter("{*}mrk") if one.get("mtype") == "seg"]
    return {part.get("mid") or f"part {number}": part for number, part in enumerate(marked)}


def _open_parts(segment: Any, source: Any) -> list[str]:
    """The ids of the segments without a translation; "" for a source that is one segment."""
    target = _child(segment, "target")
    done = _parts(target)
    if _text(target) and not done:
        return []
    parts = _parts(source) or {"": source}
    return [mid for mid, part in parts.items() if _text(part) and not _text(done.get(mid))]


def _target(segment: Any, source: Any) -> tuple[Any, list[Any]]:
    """The target of a source, and the places in it that get a translation; they have their source's text."""
    target, parts, wanted = _child(segment, "target"), _parts(source), _open_parts(segment, source)
    done = _parts(target)
    if not done:
        target = deepcopy(source)
        target.tag = source.tag[: -len(local(source))] + "target"
        target.tail = source.tail
        for name in list(target.attrib):
            if name.endswith("}lang"):
                del target.attrib[name]
        places = _parts(target)
        return target, [places[mid] for mid in wanted] if places else [target]
    before = None
    for mid, part in parts.items():
        if mid not in done:
            done[mid] = deepcopy(part)
            if before is None:
                target.insert(0, done[mid])
            else:
                gap = part.getprevious()
                done[mid].tail, before.tail = before.tail, None if gap is None else gap.tail
                before.addnext(done[mid])
        elif mid in wanted:
            tail, place = done[mid].tail, done[mid]
            done[mid] = deepcopy(part)
            done[mid].tail = tail
            place.getparent().replace(place, done[mid])
        before = done[mid]
    return target, [done[mid] for mid in wanted]


def read_xliff(content: bytes, options: Options) -> XliffDocument:
    """Read a file.

    Raises:
        DataError: As `XliffDocument`.
    """
    return XliffDocument(content, options)
