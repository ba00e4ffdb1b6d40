"""Registries of models: a file ``models.json`` beside folders of models, behind any address or on a disk.

The file says of each model what it translates, under which licence, how large it is, how it scored, and the
SHA-256 digest of each of its files. So the files may come from anywhere: what arrives is what was registered.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping, Set
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Annotated, Literal
from urllib.parse import quote, urljoin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from deepwire.checkpoint.store import OPTIMIZER, STATE, metadata_of, read_config, require_model
from deepwire.config.validation_messages import first_fault
from deepwire.data.languages import known_directions
from deepwire.errors import DataError, LogFn, ModelError, UsageError
from deepwire.io.atomic import disk_errors, json_text, new_folder, require_absent, write_text
from deepwire.io.download import download, file_digest
from deepwire.io.regular_files import acquire_lock, open_regular

REGISTRY = "models.json"
_LOCK = f".{REGISTRY}.lock"
_MAX_BYTES = 4 * 1024 * 1024
_NOT_FOR_TRANSLATION = {OPTIMIZER, STATE}
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_Name = Annotated[str, Field(pattern=f"^{_NAME}$")]
_Progress = Callable[[int, int | None], None]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    @field_validator("*")
    @classmethod
    def _is_printable(cls, value: object) -> object:
        """Control characters would do something to the terminal that shows them."""
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not text.isprintable():
                raise ValueError(f"holds characters that cannot be shown: {text!a}")
        return value


class RegisteredFile(_Part):
    """A file of a model."""

    path: str = Field(min_length=1, max_length=200)
    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")

    @field_validator("path")
    @classmethod
    def _stays_within_the_folder(cls, path: str) -> str:
        parts = PurePosixPath(path).parts
        odd = any(part.startswith(".") for part in parts) or any(mark in path for mark in ("\\", "\0", ":"))
        if odd or PurePosixPath(path).is_absolute() or str(PurePosixPath(path)) != path:
            raise ValueError("must be a plain path within the folder of the model")
        return path


class RegisteredScore(_Part):
    """A score with what it takes to compare it."""

    test: str = Field(description="test set")
    score: float
    signature: str = Field(min_length=1, description="of sacrebleu, or what else says how it was computed")


class RegisteredModel(_Part):
    """The entry of a model in a registry."""

    name: _Name
    directions: list[str] = Field(min_length=1, description="such as de-en")
    licence: str = Field(min_length=1, description="SPDX name, or words")
    description: str = ""
    scores: list[RegisteredScore] = []
    files: list[RegisteredFile] = Field(min_length=1)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


class Registry(_Part):
    """The content of ``models.json``."""

    format: Literal[1]
    models: list[RegisteredModel]

    @field_validator("models")
    @classmethod
    def _has_one_of_a_name(cls, models: list[RegisteredModel]) -> list[RegisteredModel]:
        names = [model.name for model in models]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two models are called {twice[0]}")
        return models


class Shelf:
    """A registry, and the place where its models lie.

    Args:
        place: Address or path of ``models.json``, or of the folder that holds it.
        warn: Hears that a plain http address can bring anything.

    Attributes:
        models: By name, in the order of the file.

    Raises:
        UsageError: There is no registry.
        DataError: It is damaged, or from a newer version.
        DeepwireError: The server cannot be reached or refuses.
    """

    def __init__(self, place: str, warn: LogFn | None = None) -> None:
        self._remote = "://" in place
        named = place if place.endswith(".json") else f"{place.rstrip('/')}/{REGISTRY}"
        self.place, self._warn = named, warn
        text = self._read_remote() if self._remote else _read(Path(named))
        self.models: Mapping[str, RegisteredModel] = {
            model.name: model for model in _parsed(text, named).models
        }

    def find(self, name: str) -> RegisteredModel:
        """The model of this name.

        Raises:
            UsageError: There is none.
        """
        if name not in self.models:
            near = get_close_matches(name, sorted(self.models))
            hint = (
                f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(self.models) or 'none'}"
            )
            raise UsageError(f"{self.place}: has no model {name}", hint)
        return self.models[name]

    def get(self, name: str, target: Path, progress: _Progress | None = None) -> None:
        """Put a model into a new folder, which has its name when all of it is there and right.

        An interrupted call leaves ``.NAME.part`` beside it, with which the next one goes on.

        Raises:
            UsageError: There is no such model, or the folder exists.
            DataError: A file is not the one that was registered.
            ModelError: It is no model that this version reads.
        """
        model = self.find(name)
        if target.exists():
            raise UsageError(f"{target}: exists", "move it away, or name another folder with --to")
        part = target.with_name(f".{target.name}.part")
        before = 0
        for file in model.files:
            tell = None if progress is None else _from(before, model.size, progress)
            self._fetch(model, file, part / file.path, tell)
            before += file.size
        _remove_others(part, {part / file.path for file in model.files})
        require_model(part)
        with disk_errors(target):
            part.replace(target)

    def _fetch(
        self, model: RegisteredModel, file: RegisteredFile, path: Path, tell: _Progress | None
    ) -> None:
        with disk_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        if self._remote:
            url = urljoin(self.place, quote(f"{model.name}/{file.path}"))
            download(url, path.parent, sha256=file.sha256, on_progress=tell, most_bytes=file.size)
            return
        source = Path(self.place).parent / model.name / file.path
        if not source.is_file():
            raise DataError(f"{source}: is missing", f"{self.place} names it")
        with disk_errors(path):
            shutil.copyfile(source, path)
        if file_digest(path) != file.sha256:
            path.unlink()
            raise DataError(f"{source}: is not the file that {self.place} names: its digest differs")

    def _read_remote(self) -> str:
        with TemporaryDirectory() as folder:
            fetched = download(self.place, Path(folder), warn=self._warn, most_bytes=_MAX_BYTES)
            return _read(fetched.path)


def _remove_others(folder: Path, files: Set[Path]) -> None:
    """Leave nothing in a folder but these files: an interrupted call may have got others."""
    with disk_errors(folder):
        for path in folder.rglob("*"):
            if path not in files and not path.is_dir():
                path.unlink()


def register(
    folder: Path,
    model: Path,
    *,
    name: str,
    licence: str,
    description: str = "",
    scores: list[RegisteredScore] | None = None,
) -> RegisteredModel:
    """Copy a model into the folder of a registry, made where there is none, and enter it there.

    Args:
        folder: Of the registry.
        model: Folder of the model; what only training needs is left out.
        name: In the registry; an entry of this name must not be there.
        licence: Under which others may use the model.
        description: One line.
        scores: With signatures.

    Raises:
        UsageError: The name is taken, in the registry or by a folder, or cannot be one.
        ModelError: It is no model, or says no direction.
    """
    if not re.fullmatch(_NAME, name):
        raise UsageError(
            f"{name!r} cannot be the name of a model: letters, digits, '.', '_' and '-' only, at most 100, "
            "the first a letter or digit",
            "name it as multi30k-de-en",
        )
    require_model(model)
    registry_file = folder / REGISTRY
    _others(registry_file, name)
    require_absent(folder / name, "take another name")
    directions = _directions(model)
    files = sorted(
        path for path in model.rglob("*") if path.is_file() and path.name not in _NOT_FOR_TRANSLATION
    )
    try:
        entry = RegisteredModel(
            name=name,
            directions=directions,
            licence=licence,
            description=description,
            scores=scores or [],
            files=[
                RegisteredFile(
                    path=path.relative_to(model).as_posix(),
                    size=path.stat().st_size,
                    sha256=file_digest(path),
                )
                for path in files
            ],
        )
    except ValidationError as error:
        raise UsageError(first_fault(error)) from None
    with new_folder(folder / name) as copy:
        for path in files:
            (copy / path.relative_to(model)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy / path.relative_to(model))
    with disk_errors(folder):
        lock = acquire_lock(folder / _LOCK, lambda _holder: None)  # which it holds only to write
    with lock:
        registry = Registry(format=1, models=[*_others(registry_file, name), entry])
        write_text(registry_file, json_text(registry.model_dump()))
    return entry


def _others(registry_file: Path, name: str) -> list[RegisteredModel]:
    """The models that are registered, none of this name."""
    known = _parsed(_read(registry_file), str(registry_file)).models if registry_file.exists() else []
    if any(entry.name == name for entry in known):
        raise UsageError(f"{registry_file}: has a model {name} already", "take another name")
    return known


def _directions(model: Path) -> list[str]:
    directions = known_directions(metadata_of(read_config(model)))
    if not directions:
        raise ModelError(f"{model}: does not say which languages it translates")
    return list(map(str, directions))


def _read(path: Path) -> str:
    try:
        with open_regular(path) as file:
            text = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such registry", f"a registry is a file {REGISTRY}") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from error
    if len(text) > _MAX_BYTES:
        raise DataError(f"{path}: is larger than a registry can be")
    return text.decode("utf-8", errors="replace")


def _parsed(text: str, place: str) -> Registry:
    try:
        record = json.loads(text)
        if isinstance(record, dict) and isinstance(record.get("format"), int) and record["format"] > 1:
            raise DataError(f"{place}: is of a newer version (format {record['format']})", "update deepwire")
        return Registry.model_validate(record)
    except (ValueError, RecursionError) as error:
        detail = first_fault(error) if isinstance(error, ValidationError) else "it is not JSON"
        raise DataError(f"{place}: is no registry of models: {detail}") from None


def _from(before: int, total: int, progress: _Progress) -> _Progress:
    return lambda done, _of_file: progress(before + done, total)
