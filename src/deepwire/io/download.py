"""Downloading a file: continued when interrupted, checked by its digest before its name exists."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from deepwire.errors import DataError, DeepwireError, LogFn, ResourceError, UsageError
from deepwire.io.atomic import is_disk_full
from deepwire.io.regular_files import open_regular

TIMEOUT_SECONDS = 30.0
_CHUNK = 1 << 18
_BROKEN = (TimeoutError, ConnectionError, ssl.SSLError)
_UNPROTECTED = "without https and without a digest anyone on the way can change the file"
_PROTECT = "use an https address, or give its digest"
_RESUME = "run the same command again to continue"


@dataclass(frozen=True)
class Download:
    """A file that lies on disk now; `fetched` is False when it was there already."""

    path: Path
    sha256: str
    fetched: bool


OnProgress = Callable[[int, int | None], None]
"""Called with the bytes there are and the bytes there will be (None: not known)."""


def download(
    url: str,
    folder: Path,
    *,
    sha256: str | None = None,
    on_progress: OnProgress | None = None,
    warn: LogFn | None = None,
    most_bytes: int | None = None,
) -> Download:
    """Fetches an http or https `url` into `folder` under the last part of its path.

    Bytes go to a hidden `.NAME.part` beside it. With a digest an interrupted download continues there;
    without one it starts over, because nothing could tell that the file on the server changed in between.

    Args:
        url: The address.
        folder: Created when missing.
        sha256: The digest the file must have, in hex.
        on_progress: Hears how far it is.
        warn: Hears, before it begins, that a plain http address without a digest can bring anything.
        most_bytes: No more is written to the disk, however much the server sends; None: as much as it sends.

    Raises:
        UsageError: the address or the digest is malformed.
        DataError: the digest differs, or there are more bytes than may be; nothing is left of the file.
        ResourceError: the disk is full.
        DeepwireError: the server cannot be reached or refuses, or leads from https to an address that is not
            encrypted, without a digest.
    """
    name = file_name(url)
    if sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise UsageError(f"{sha256!r} is not a SHA-256 digest", "it has 64 hexadecimal digits")
    expected = sha256.lower() if sha256 else None
    path, part = folder / name, folder / f".{name}.part"
    if path.exists():
        actual = file_digest(path)
        if expected not in (None, actual):
            raise DataError(
                f"{path}: exists with SHA-256 {actual}, not {expected}", "move it away to download it"
            )
        return Download(path, actual, fetched=False)
    if os.environ.get("DEEPWIRE_OFFLINE", "0") not in ("", "0"):
        raise DeepwireError(f"{url}: not downloaded: DEEPWIRE_OFFLINE is set")
    if expected is None and not _encrypted(url) and warn is not None:
        warn(f"{url}: {_UNPROTECTED}; {_PROTECT}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if expected is None:
            part.unlink(missing_ok=True)
        _fetch(url, part, on_progress, needs_https=expected is None, most_bytes=most_bytes)
        actual = file_digest(part)
        if expected not in (None, actual):
            raise DataError(
                f"{url}: SHA-256 is {actual}, not {expected}",
                "the file changed or was damaged; nothing was kept",
            )
        part.replace(path)
    except DataError:
        part.unlink()
        raise
    except OSError as fault:
        if is_disk_full(fault):
            raise ResourceError(f"{folder}: the disk is full", f"free some space; {_RESUME}") from None
        raise UsageError(f"{folder}: cannot write: {fault.strerror or fault}") from None
    return Download(path, actual, fetched=True)


def file_name(url: str) -> str:
    """The name a download gets, the last part of the path of `url`; a UsageError where it has none."""
    try:
        parts = urlsplit(url)
    except ValueError as fault:
        raise UsageError(f"{url}: not an address: {fault}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url}: not an http or https address")
    name = unquote(parts.path.rsplit("/", 1)[-1])
    if not name or name.startswith(".") or re.search(r"[/\\\x00-\x1f]", name):
        raise UsageError(f"{url}: does not end in a file name")
    return name


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _encrypted(url: str) -> bool:
    return urlsplit(url).scheme == "https"


def _fetch(
    url: str, part: Path, on_progress: OnProgress | None, *, needs_https: bool, most_bytes: int | None
) -> None:
    """Bring `part` to its full length, from where it ends now."""
    start = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "deepwire"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            if needs_https and _encrypted(url) and not _encrypted(response.url):
                raise DeepwireError(f"{url}: leads to {response.url}: {_UNPROTECTED}", _PROTECT)
            if start:  # the server may send the whole file all the same
                rest = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
                start = int(rest[1]) if rest and response.status == http.HTTPStatus.PARTIAL_CONTENT else 0
            length = response.headers.get("Content-Length")
            total = start + int(length) if length and length.isdigit() else None
            done = _write(response, part, start, total, on_progress, most_bytes)
    except urllib.error.HTTPError as fault:
        fault.close()
        if fault.code == 416 and start:
            return  # the part is complete already: its digest decides
        raise DeepwireError(f"{url}: the server answers {fault.code} {fault.reason}") from None
    except (urllib.error.URLError, http.client.HTTPException, *_BROKEN) as fault:
        reason = fault.reason if isinstance(fault, urllib.error.URLError) else fault
        raise DeepwireError(
            f"{url}: cannot download: {str(reason) or type(reason).__name__}",
            f"is there a network connection? {_RESUME}",
        ) from None
    if most_bytes is not None and done > most_bytes:
        raise DataError(f"{url}: has more than {most_bytes:,} bytes", "nothing of it was kept")
    if total is not None and done < total:
        raise DeepwireError(f"{url}: the connection ended after {done:,} of {total:,} bytes", _RESUME)


def _write(
    response: http.client.HTTPResponse,
    part: Path,
    start: int,
    total: int | None,
    on_progress: OnProgress | None,
    most_bytes: int | None,
) -> int:
    """How many bytes came, with those that were there before; it ends with the first that are too many."""
    done = start
    with part.open("r+b" if start else "wb") as file:
        file.seek(start)
        try:
            while chunk := response.read(_CHUNK):
                done += len(chunk)
                if most_bytes is not None and done > most_bytes:
                    break
                file.write(chunk)
                if on_progress is not None:
                    on_progress(done, total)
        finally:
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
    return done
