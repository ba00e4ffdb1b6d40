"""What reads a corpus: blocks of lines are cut by one process, and understood by any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from deepwire.data.data_config import BadUtf8
from deepwire.data.text.blocks import RawBlock
from deepwire.data.text.files import BadLine, Decoder, Line, Raw, ReadNotes


@dataclass(frozen=True)
class Lines:
    """The pairs of a block, one for each line."""

    first: int
    """Number of the first line, from 1."""
    sources: list[str]
    targets: list[str]
    faults: dict[int, str]
    """Why pairs cannot be used at all (`bad_utf8`, `nul`, `too_long`), by their place in the block."""

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """`[2, pairs]`: characters of the source and the target sides."""
        return np.array([list(map(len, side)) for side in (self.sources, self.targets)], np.int32)


class Reader(Protocol):
    """One corpus. It can be pickled."""

    def blocks(self) -> Iterator[RawBlock]:
        """The lines of the corpus, in order and in constant memory.

        Raises:
            DataError: a file is missing, empty or damaged, or the sides do not have as many lines.
        """

    def parse(self, block: RawBlock, notes: ReadNotes) -> Lines:
        """The pairs of a block; what was repaired is counted in `notes`.

        Raises:
            DataError: a line is not UTF-8 (and `on_bad_utf8` is `error`), or lacks a column or key.
        """


def decoded(
    path: Path, raw: tuple[Raw, ...], first: int, on_bad_utf8: BadUtf8, notes: ReadNotes
) -> list[Line]:
    """Lines of a file as text, the first of them number `first`."""
    decoder = Decoder(path, on_bad_utf8, notes, before=first - 1)
    groups = [decoder.decode(group) for group in raw]
    return groups[0] if len(groups) == 1 else [line for group in groups for line in group]


def without_faults(lines: list[Line], faults: dict[int, str]) -> list[str]:
    """What can be shown of each line; faults are noted by place, unless there was one before."""
    bad = [place for place, line in enumerate(lines) if line.__class__ is BadLine]
    for place in bad:
        line = lines[place]
        if isinstance(line, BadLine):
            faults.setdefault(place, line.fault)
            lines[place] = line.text
    return cast("list[str]", lines)
