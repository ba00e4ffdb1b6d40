"""Writing files and folders that a crash cannot leave half done."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deepwire.io.disk_errors import disk_errors

_TEMPORARY = ".tmp"
_REPLACED = ".old"
_RUBBISH = ".delete"


def sync(path: Path) -> None:
    """Wait until a file or folder has reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` in one step: readers see the old file or the new one."""
    temporary = path.with_name(f".{path.name}{_TEMPORARY}")
    with disk_errors(path):
        temporary.unlink(missing_ok=True)  # what a crash left there, or a link
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync(path.parent)


def write_json(path: Path, value: object) -> None:
    """Replace ``path`` by ``value`` as JSON in one step."""
    write_text(path, json_text(value))


def json_text(value: object) -> str:
    """``value`` as JSON for people to read too."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Give a temporary folder to fill; it takes the place of ``target`` when the block ends well.

    A crash at any moment leaves the old ``target`` or the new one, or a leftover that ``recover`` removes.
    """
    temporary = target.with_name(f".{target.name}{_TEMPORARY}")
    with disk_errors(target):
        _clear(temporary)
        temporary.mkdir(parents=True)
    try:
        with disk_errors(target):
            yield temporary
            for path in sorted(temporary.rglob("*")):
                sync(path)
            sync(temporary)
            _put(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _put(temporary: Path, target: Path) -> None:
    replaced = target.with_name(f".{target.name}{_REPLACED}")
    if target.exists():
        _clear(replaced)
        target.replace(replaced)
    temporary.replace(target)
    sync(target.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Delete ``folder``; a crash midway cannot leave a part of it under its name."""
    rubbish = folder.with_name(f".{folder.name}{_RUBBISH}")
    _clear(rubbish)
    folder.replace(rubbish)
    shutil.rmtree(rubbish, ignore_errors=True)


def recover(parent: Path) -> None:
    """Clear what crashes left in ``parent``: unfinished and replaced folders, unfinished files."""
    for path in sorted(parent.glob(f".*{_REPLACED}")):
        original = path.with_name(path.name[1 : -len(_REPLACED)])
        if not original.exists():
            path.replace(original)
    for ending in (_TEMPORARY, _RUBBISH, _REPLACED):
        for path in parent.glob(f".*{ending}"):
            _clear(path)


def _clear(path: Path) -> None:
    """Remove what has this name; of a link the link alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def move_aside(path: Path, suffix: str = "") -> Path:
    """Rename ``path`` to a free name, see `free_name`, and return that."""
    moved = free_name(path, suffix)
    path.replace(moved)
    return moved


def free_name(path: Path, suffix: str = "") -> Path:
    """The first of ``path.1``, ``path.2`` and so on that nothing has, not even a link.

    With a suffix such as ``damaged`` the names are ``path.damaged``, ``path.damaged.2`` and so on.
    """
    number = 1
    while os.path.lexists(free := path.with_name(f"{path.name}.{_numbered(suffix, number)}")):
        number += 1
    return free


def _numbered(suffix: str, number: int) -> str:
    return suffix if suffix and number == 1 else f"{suffix}.{number}".removeprefix(".")
