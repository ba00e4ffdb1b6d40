"""Synthetic parallel text, translated in parts that outlive an interruption.

A part is a window of lines: the translator sorts and batches lines within a window only, so the parts put
together are what one process would have written. Several processes can share the parts.

Sequence-level knowledge distillation (Kim and Rush 2016, section 3.2) trains on a teacher's translations of
the training sources; back-translation (Sennrich et al. 2016) on translations of monolingual target text,
perhaps sampled (Edunov et al. 2018) and marked by a tag (Caswell et al. 2019). Both need a text and its
translations, as files that a run file can name at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from secrets import token_hex
from typing import cast

from deepwire.decoding.translator import Translator
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import DataError, DeepwireError, UsageError
from deepwire.io.atomic import disk_errors, remove_folder, write_json
from deepwire.io.output import compression, open_output
from deepwire.io.regular_files import acquire_lock, read_json

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

    def done(self) -> dict[int, Path]:
        """The parts that are there, by number from 0."""
        matches = ((path, _PART.fullmatch(path.name)) for path in self.path.iterdir())
        return {int(match[1]): path for path, match in matches if match}

    def file(self, number: int, lines: int) -> Path:
        """The file of a part made of so many lines."""
        return self.path / f"{number:06d}-{lines}"

    def take(self, number: int, call: str) -> bool:
        """Whether this process is the first of all of a call to take a part."""
        try:
            (self.path / f"{number:06d}.{call}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    @contextmanager
    def held(self, job: Mapping[str, object]) -> Iterator[None]:
        """Make the folder or take what an interrupted job left in it, for this process alone.

        Raises:
            UsageError: Another process works there, or what is there is not of this job.
            ResourceError: The folder cannot be written.
        """

        def refuse(holder: str) -> None:
            raise UsageError(
                f"{self.path}: another job works there: {holder}", "wait for it, or write to another --output"
            )

        with disk_errors(self.path):
            self.path.mkdir(exist_ok=True)
            lock = acquire_lock(self.path / _LOCK, refuse)
        with lock:
            self._require_same(job)
            yield

    def _require_same(self, job: Mapping[str, object]) -> None:
        path = self.path / JOB
        if not path.exists():
            # All that is there will be removed; a hidden file is what a crash left of the job's.
            if any(each.name != _LOCK and not each.name.startswith(".") for each in self.path.iterdir()):
                raise UsageError(f"{self.path}: has files, but no {JOB}, which says of what", _ELSEWHERE)
            write_json(path, job)
            return
        before = read_json(path)
        now = json.loads(json.dumps(job))
        changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
        if changed:
            raise UsageError(
                f"{self.path}: parts of another job, which differs in {', '.join(changed)}", _ELSEWHERE
            )

    def texts(self, lines: int) -> Iterator[str]:
        """The lines of all parts in order, so many of them."""
        parts = [path for _, path in sorted(self.done().items())]
        lines_done = sum(int(path.name.partition("-")[2]) for path in parts)
        if lines_done != lines:
            raise DeepwireError(
                f"{self.path}: {lines} lines were read, but the parts are of {lines_done}",
                "see that the folder is the same for all processes, and run the same command again",
            )
        for path in parts:
            with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as part:
                yield from part


def translate_parts(
    lines: Iterable[str],
    translate: Callable[[int, list[str]], Iterable[str]],
    folder: PartsFolder,
    *,
    size: int,
    workers: ProcessGroup,
) -> int:
    """Translate parts that are not there yet and that no other process has taken, and wait for the others.

    `translate` gives the translations of some lines, and gets the number of the first, from 1. Every process
    reads all lines.

    Raises:
        DeepwireError: The processes did not read the same number of lines.
    """
    found = [sorted(folder.done()), token_hex(8)] if workers.main else None
    done, call = cast("tuple[list[int], str]", workers.broadcast_value(found))
    there, number, count, reader = set(done), 0, 0, iter(lines)
    while window := list(islice(reader, size)):
        if number not in there and folder.take(number, call):
            with open_output(folder.file(number, len(window))) as out:
                out.writelines(f"{text}\n" for text in translate(count + 1, window))
        number, count = number + 1, count + len(window)
    if workers.all_reduce_numbers([count])[0] != count * workers.count:
        raise DeepwireError("the processes did not read the same text", "see that it does not change")
    return count


@dataclass(frozen=True)
class SyntheticCorpus:
    """The files `PREFIX.de`, `PREFIX.en` (`.gz` if wanted) and `PREFIX.json`.

    Attributes:
        prefix: What `data.train` of a run file names.
        source, target: Languages of the model: of the text that is given, of the translations.
        ending: Of compressed files, `.gz`, `.zst` or `.xz`; empty for plain ones.
    """

    prefix: Path
    source: str
    target: str
    ending: str = ""

    @classmethod
    def of(cls, output: Path, source: str, target: str) -> SyntheticCorpus:
        """The corpus of an `--output`: a prefix, or a prefix and the ending of compressed files."""
        ending = compression(output)
        return cls(output.with_suffix("") if ending else output, source, target, ending)

    @property
    def given(self) -> Path:
        """The text that was translated, line by line."""
        return Path(f"{self.prefix}.{self.source}{self.ending}")

    @property
    def made(self) -> Path:
        """Its translations."""
        return Path(f"{self.prefix}.{self.target}{self.ending}")

    @property
    def provenance(self) -> Path:
        """How they were made."""
        return Path(f"{self.prefix}.json")


def check_tag(tag: str) -> str:
    """The tag without spaces around it."""
    tag = tag.strip()
    if not tag.isprintable():
        raise UsageError(f"--tag: {tag!r} is no word of one line", "give a word such as '<BT>'")
    return tag


def recorded_job(corpus: SyntheticCorpus) -> dict[str, object]:
    """The job of an earlier call for the same files, finished or not; empty without one."""
    parts = PartsFolder.of(corpus.made).path / JOB
    if parts.exists():
        return read_json(parts)
    job = read_json(corpus.provenance).get("job") if corpus.provenance.exists() else None
    return job if isinstance(job, dict) else {}


def finished_lines(corpus: SyntheticCorpus, job: Mapping[str, object]) -> int | None:
    """The lines of an earlier call of the same job; None if there is something left to do."""
    files = [corpus.given, corpus.made, corpus.provenance]
    existing = [path for path in files if path.exists()]
    if not existing or PartsFolder.of(corpus.made).path.exists():
        return None
    record = read_json(corpus.provenance) if corpus.provenance.exists() else {}
    counts = record.get("counts")
    if (
        len(existing) == len(files)
        and record.get("job") == json.loads(json.dumps(job))
        and isinstance(counts, dict)
    ):
        remove_folder(PartsFolder.of(corpus.made).path)  # a killed call may have left some of it
        return int(counts["lines"])
    raise UsageError(
        f"{existing[0]}: exists already, and is not what this command would finish",
        "delete it, or write to another --output",
    )


def synthesize(
    translator: Translator,
    corpus: SyntheticCorpus,
    read: Callable[[], Iterable[str]],
    job: Mapping[str, object],
    *,
    workers: ProcessGroup,
    tag: str = "",
    direction: tuple[str, str] = ("", ""),
) -> int | None:
    """Translate a text and write it beside its translations; what an interrupted call has done stays done.

    Args:
        translator: The model and how it decodes; a part is as long as its window.
        corpus: The files to make.
        read: The lines of the text; called twice.
        job: All that the result depends on, as values that JSON can hold: kept in `PREFIX.json`, and parts
            count only if it is the same.
        workers: The processes that share the work, each of which calls this.
        tag: A word that each translation begins with; an empty one stays empty.
        direction: Languages to translate from and into, for models of several.

    Returns:
        The number of lines; None in other processes than the main one.

    Raises:
        UsageError: If another process makes the same files, parts of another job are there, or the tag is no
            word of one line.
        DataError: If the text changes meanwhile.
        ResourceError: If the disk is full.
    """
    if translator.context.used:
        raise UsageError(
            "the model was trained with data.context and reads documents in their order, but synthetic text "
            "is made line by line",
            "use one process of deepwire translate",
        )
    folder, tag = PartsFolder.of(corpus.made), check_tag(tag)
    lead = f"{tag} " if tag else ""

    def translate(first: int, lines: list[str]) -> Iterator[str]:
        translations = translator.translations(
            lines, window=len(lines), first=first, to=direction[1], from_=direction[0]
        )
        texts = (translation.text for translation in translations)
        return (lead + text if text else text for text in texts)

    with folder.held(job) if workers.main else nullcontext():
        count = translate_parts(read(), translate, folder, size=translator.config.window, workers=workers)
        if not workers.main:
            return None
        with open_output(corpus.given) as given, open_output(corpus.made) as made:
            for line, text in zip_longest(read(), folder.texts(count)):
                if line is None or text is None:
                    raise DataError(
                        "the text has changed while it was translated",
                        "run the command again on one that stays",
                    )
                given.write(f"{line}\n")
                made.write(text)
        write_json(corpus.provenance, {"counts": {"lines": count}, "job": dict(job)})
        remove_folder(folder.path)  # last: until then this call can be made again
    return count
