"""Resumable parts: a large text is translated by several processes in parts that outlive an interruption.

A part is a window of lines: the translator sorts and batches lines within a window only, so the parts put
together are what one process would have written.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO, TypeVar, cast

from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import DeepwireError, UsageError
from deepwire.io.atomic import disk_errors, remove_folder, write_json
from deepwire.io.output import open_output
from deepwire.io.regular_files import acquire_lock, read_json

Line = TypeVar("Line")

_PART = re.compile(r"(\d+)-(\d+)")
JOB, _LOCK = "job.json", "lock"
_ELSEWHERE = "delete the folder to start over, or write to another --output"


@dataclass(frozen=True)
class PartsFolder:
    """The folder beside the output, `OUTPUT.parts`, with a file for each part: `<number>-<lines read>`."""

    path: Path

    @classmethod
    def of(cls, output: Path) -> PartsFolder:
        """The folder of an output file."""
        return cls(output.with_name(f"{output.name}.parts"))

    def begun(self) -> bool:
        """Whether a job was interrupted there, or works there now."""
        return (self.path / JOB).exists()

    def done(self) -> dict[int, Path]:
        """The parts that are there, by number from 0."""
        matches = ((path, _PART.fullmatch(path.name)) for path in self.path.iterdir())
        return {int(match[1]): path for path, match in matches if match}

    def file(self, number: int, lines: int) -> Path:
        """The file of a part made of so many lines."""
        return self.path / f"{number:06d}-{lines}"

    @contextmanager
    def held(self, job: Mapping[str, object]) -> Iterator[None]:
        """Make the folder or take what an interrupted job left in it, for this process alone.

        Args:
            job: What the output depends on, as values that JSON can hold.

        Raises:
            UsageError: If another process works there, or what is there is not of this job.
            ResourceError: If the folder cannot be written.
        """
        with disk_errors(self.path):
            self.path.mkdir(exist_ok=True)
            lock = acquire_lock(self.path / _LOCK, self._refuse_second_job)
        with lock:
            self._require_same(job)
            yield

    def _refuse_second_job(self, holder: str) -> None:
        raise UsageError(
            f"{self.path}: another job works there: {holder}", "wait for it, or write to another --output"
        )

    def _require_same(self, job: Mapping[str, object]) -> None:
        path = self.path / JOB
        if not self.begun():
            # All that is there will be removed; a hidden file is what a crash left of the job's.
            if any(each.name != _LOCK and not each.name.startswith(".") for each in self.path.iterdir()):
                raise UsageError(f"{self.path}: has files, but no {JOB}, which says of what", _ELSEWHERE)
            write_json(path, job)
            return
        before = read_json(path)
        now = json.loads(json.dumps(job))
        changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
        if changed:
            raise self.of_another_job(f", which differs in {', '.join(changed)}")

    def of_another_job(self, difference: str = "") -> UsageError:
        """The error for parts that are not those of this job."""
        return UsageError(f"{self.path}: parts of another job{difference}", _ELSEWHERE)

    def join(self, output: Path, lines: int) -> None:
        """Put the parts together, and remove them.

        Raises:
            DeepwireError: If they are not those of so many lines.
        """
        parts = self._complete(lines)
        with open_output(output) as out:
            for path in parts:
                with _opened(path) as part:
                    shutil.copyfileobj(part, out)
        remove_folder(self.path)

    def texts(self, lines: int) -> Iterator[str]:
        """The lines of all parts in order, without line ends.

        Raises:
            DeepwireError: If they are not those of so many lines.
        """
        for path in self._complete(lines):
            with _opened(path) as part:
                for line in part:
                    yield line.removesuffix("\n")

    def _complete(self, lines: int) -> list[Path]:
        parts = [path for _, path in sorted(self.done().items())]
        lines_done = sum(int(path.name.partition("-")[2]) for path in parts)
        if lines_done != lines:
            raise DeepwireError(
                f"{self.path}: {lines} lines were read, but the parts are of {lines_done}",
                "see that the folder is the same for all processes, and run the same command again",
            )
        return parts


def _opened(path: Path) -> TextIO:
    return path.open(encoding="utf-8", errors="surrogateescape", newline="\n")


def translate_parts(
    lines: Iterable[Line],
    translate: Callable[[int, list[Line]], Iterable[str]],
    folder: PartsFolder,
    *,
    size: int,
    workers: ProcessGroup,
) -> int:
    """Translate this process's share of the parts that are not there yet, and wait for the others.

    Args:
        lines: All lines of the text; every process reads all of them.
        translate: The translations of some lines, given the number of the first, from 1.
        folder: Where parts go.
        size: Lines of a part.
        workers: The processes.

    Returns:
        How many lines the text has.

    Raises:
        DeepwireError: If the processes did not read the same number of lines.
    """
    done = set(cast("list[int]", workers.broadcast_value(sorted(folder.done()) if workers.main else None)))
    remaining, number, count, reader = 0, 0, 0, iter(lines)
    while window := list(islice(reader, size)):
        if number not in done:
            if remaining % workers.count == workers.rank:
                with open_output(folder.file(number, len(window))) as out:
                    out.writelines(f"{text}\n" for text in translate(count + 1, window))
            remaining += 1
        number, count = number + 1, count + len(window)
    if workers.all_reduce_numbers([count])[0] != count * workers.count:
        raise DeepwireError("the processes did not read the same text", "see that it does not change")
    return count
