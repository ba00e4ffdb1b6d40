"""Synthetic parallel text: a text and its translations, as files that a run file can name at once.

Sequence-level knowledge distillation (Kim and Rush 2016, section 3.2) trains on a teacher's translations of
the training sources; back-translation (Sennrich et al. 2016) on translations of monolingual target text,
perhaps sampled (Edunov et al. 2018) and marked by a tag (Caswell et al. 2019). Both are the same work: lines
are translated in parts that stay done, and put together at the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from deepwire.data.text.pairs import is_blank
from deepwire.decoding.document_context import require_no_context
from deepwire.decoding.resumable_parts import JOB, PartsFolder, translate_parts
from deepwire.decoding.step_models import StateT
from deepwire.decoding.translator import Translator
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import DataError, UsageError
from deepwire.io.atomic import write_json
from deepwire.io.output import compression, open_output
from deepwire.io.regular_files import read_json


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
        return self._file(f"{self.source}{self.ending}")

    @property
    def made(self) -> Path:
        """Its translations."""
        return self._file(f"{self.target}{self.ending}")

    @property
    def provenance(self) -> Path:
        """How they were made."""
        return self._file("json")

    def _file(self, ending: str) -> Path:
        return self.prefix.with_name(f"{self.prefix.name}.{ending}")


@dataclass
class LineCounts:
    """What a corpus holds; every line of the text is in it, whatever became of it.

    Attributes:
        lines: Pairs.
        empty: Lines of the text without a word; their translations are empty.
        untranslated: Other lines whose translation is empty.
        copied: Translations that repeat their line.
    """

    lines: int = 0
    empty: int = 0
    untranslated: int = 0
    copied: int = 0

    def count(self, text: str, made: str) -> None:
        """Take note of a pair."""
        self.lines += 1
        self.empty += is_blank(text)
        self.untranslated += not is_blank(text) and is_blank(made)
        self.copied += not is_blank(text) and made == text


def check_tag(tag: str) -> str:
    """The tag without spaces around it.

    Raises:
        UsageError: It would break a line in two, or one translation could not be told from the next.
    """
    tag = tag.strip()
    if not tag.isprintable():
        raise UsageError(f"--tag: {tag!r} is no word of one line", "give a word such as '<BT>'")
    return tag


def recorded_job(corpus: SyntheticCorpus) -> dict[str, object]:
    """The job of an earlier call for the same files, finished or not; empty without one.

    Raises:
        ModelError: If its record is damaged.
    """
    parts = PartsFolder.of(corpus.made).path / JOB
    if parts.exists():
        return read_json(parts)
    job = read_json(corpus.provenance).get("job") if corpus.provenance.exists() else None
    return job if isinstance(job, dict) else {}


def finished_counts(corpus: SyntheticCorpus, job: Mapping[str, object]) -> LineCounts | None:
    """What an earlier call made of the same job; None if there is something left to do.

    Raises:
        UsageError: If files of another job are there.
    """
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
        return LineCounts(**counts)
    raise UsageError(
        f"{existing[0]}: exists already, and is not what this command would finish",
        "delete it, or write to another --output",
    )


def synthesize(
    translator: Translator[StateT],
    corpus: SyntheticCorpus,
    read: Callable[[], Iterable[str]],
    job: Mapping[str, object],
    *,
    workers: ProcessGroup,
    tag: str = "",
    direction: tuple[str, str] = ("", ""),
) -> LineCounts | None:
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
        What was counted; None in other processes than the main one.

    Raises:
        UsageError: If another process makes the same files, parts of another job are there, or the tag is no
            word of one line.
        DataError: If the text changes meanwhile.
        ResourceError: If the disk is full.
    """
    require_no_context(translator.context, "but synthetic text is made line by line")
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
        texts = (text.removeprefix(lead) for text in folder.texts(count))
        counts = _write_given(corpus.given, read(), texts)
        write_json(corpus.provenance, {"counts": asdict(counts), "job": dict(job)})
        # The parts go last: until then this call can be made again.
        folder.join(corpus.made, count)
    return counts


def _write_given(path: Path, lines: Iterable[str], made: Iterable[str]) -> LineCounts:
    counts, ended = LineCounts(), object()
    translations = iter(made)
    with open_output(path) as out:
        for line in lines:
            translation = next(translations, ended)
            if not isinstance(translation, str):
                break
            counts.count(line, translation)
            out.write(f"{line}\n")
        else:
            if next(translations, ended) is ended:
                return counts
        raise DataError(
            "the text has changed while it was translated", "run the command again on one that stays"
        )
