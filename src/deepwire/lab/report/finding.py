"""A finding: what an analysis measured, its numbers, and where they come from."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from deepwire import __version__
from deepwire.command_line import again
from deepwire.errors import DataError
from deepwire.io.json_lines import finite
from deepwire.lab.report.tables_and_figures import Figure, ReportRecord, Table

_FEW_MODELS = 3


class ModelSource(ReportRecord):
    """A model that numbers come from.

    Attributes:
        name: As the user named it.
        folder: The model directory that the name stood for.
        digest: Fingerprint of all its files.
        update: Updates it was trained for, where the model says so.
    """

    name: str
    folder: str
    digest: str
    update: int | None = None


class Provenance(ReportRecord):
    """What is needed to get the same numbers again.

    Attributes:
        models: The models looked at.
        data: The texts, each with its size.
        settings: What else decides the numbers: beam, seed, precision.
        command: As typed; empty where it was called from Python.
        date: UTC, ISO 8601.
        deepwire, torch, python, machine: Versions and processor.
    """

    models: tuple[ModelSource, ...] = ()
    data: tuple[str, ...] = ()
    settings: dict[str, str] = Field(default_factory=dict)
    command: str = ""
    date: str
    deepwire: str
    torch: str
    python: str
    machine: str


class Finding(ReportRecord):
    """The result of one analysis of one model, or of several beside each other.

    Attributes:
        format: Version of this form; it changes when a reader of the old form would misread the new one.
        analysis: Name of the analysis: what follows ``deepwire analyze``.
        title: What was looked at, in one line.
        measured: What the numbers are and how they were measured, in one paragraph.
        tables, figures: The numbers. What a figure shows needs no table of its own.
        notes: What a reader should know before drawing conclusions.
        provenance: Where the numbers come from.
    """

    format: Literal[1] = 1
    analysis: str
    title: str
    measured: str
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
    provenance: Provenance

    @property
    def subject(self) -> str:
        """Models and texts in one line, to stand below a figure; empty where neither was read."""
        models = [
            model.name if model.update is None else f"{model.name} (update {model.update})"
            for model in self.provenance.models
        ]
        named = ", ".join(models) if len(models) <= _FEW_MODELS else f"{len(models)} models"
        return "; ".join(part for part in (named, *self.provenance.data) if part)

    @model_validator(mode="after")
    def _names_differ(self) -> Finding:
        names = [figure.name for figure in self.figures]
        if len(set(names)) < len(names):
            raise ValueError(f"two figures have one name: {', '.join(names)}")
        return self


class Findings(ReportRecord):
    """Several findings, as they are written to a JSON file; what else the file holds is left alone."""

    model_config = ConfigDict(extra="ignore")

    format: Literal[1] = 1
    findings: tuple[Finding, ...]


def provenance(
    models: Sequence[ModelSource] = (),
    data: Sequence[str] = (),
    settings: dict[str, str] | None = None,
) -> Provenance:
    """Where numbers come from that are measured now, by this process."""
    return Provenance(
        models=tuple(models),
        data=tuple(data),
        settings=settings or {},
        command=again(),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        deepwire=__version__,
        torch=version("torch"),
        python=platform.python_version(),
        machine=f"{platform.system()} {platform.machine()}",
    )


def to_json(
    findings: Sequence[Finding], *, indent: int | None = None, more: Mapping[str, object] | None = None
) -> str:
    """Findings as JSON; `from_json` gives back what was written, number for number.

    Args:
        findings: What to write.
        indent: Spaces for each level; None for one line.
        more: Further keys beside the findings, which `from_json` does not read.
    """
    record = Findings(findings=tuple(findings))
    if not more:
        return record.model_dump_json(indent=indent)
    return json.dumps(finite({**record.model_dump(mode="json"), **more}), indent=indent, ensure_ascii=False)


def from_json(text: str | bytes, name: str) -> tuple[Finding, ...]:
    """Read findings.

    Args:
        text: What `to_json` gave.
        name: What to call the text in errors.

    Raises:
        DataError: It is something else.
    """
    try:
        return Findings.model_validate_json(text).findings
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DataError(
            f"{name}: holds no findings of an analysis: {f'{where}: ' if where else ''}{first['msg']}",
            "give a file that 'deepwire analyze ... --json' wrote",
        ) from error
