from __future__ import annotations

import hashlib
import http.server
import random
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deepwire.errors import DataError, DeepwireError, ResourceError, UsageError
from deepwire.io import download as downloads
from deepwire.io.download import download, file_name

CONTENT = random.Random(1).randbytes(700_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT under every name; can break off, and can ignore the request for a part."""

    stop_after: int | None = None
    ranges = True
    announces = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/corpus.tsv.gz?x=1"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        if self.path.startswith("/none"):
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.ranges else 0
        if start >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        if self.server.announces:
            self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        self.wfile.write(CONTENT[start : self.server.stop_after])

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "DEEPWIRE_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.mark.parametrize("digest", [DIGEST, DIGEST.upper(), None])
def test_a_file_arrives_whole(server: Server, tmp_path: Path, digest: str | None) -> None:
    seen: list[tuple[int, int | None]] = []
    found = download(server.url, tmp_path / "new", sha256=digest, on_progress=lambda *now: seen.append(now))
    assert found.path == tmp_path / "new" / "corpus.tsv.gz"
    assert (found.path.read_bytes(), found.sha256, found.fetched) == (CONTENT, DIGEST, True)
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["corpus.tsv.gz"]


def test_plain_http_without_a_digest_is_warned_of(server: Server, tmp_path: Path) -> None:
    warnings: list[str] = []
    download(server.url, tmp_path / "checked", sha256=DIGEST, warn=warnings.append)
    assert warnings == []
    download(server.url, tmp_path / "unchecked", warn=warnings.append)
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{server.url}: without https and without a digest")


def test_a_redirection_to_plain_http_needs_a_digest(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = downloads.urllib.request.urlopen

    def redirected(request: urllib.request.Request, **settings: Any) -> object:
        """As a server under https that answers with the plain address."""
        plain = urllib.request.Request(
            request.full_url.replace("https:", "http:"), headers=dict(request.headers)
        )
        return original(plain, **settings)

    monkeypatch.setattr(downloads.urllib.request, "urlopen", redirected)
    secure = server.url.replace("http:", "https:")
    with pytest.raises(DeepwireError, match=r"leads to http://127.*anyone on the way"):
        download(secure, tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert download(secure, tmp_path, sha256=DIGEST).path.read_bytes() == CONTENT


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_download_has_no_name_and_goes_on(server: Server, tmp_path: Path, ranges: bool) -> None:
    server.stop_after, server.ranges = 300_000, ranges
    with pytest.raises(DeepwireError, match=r"ended after 300,000 of 700,000 bytes.*again") as error:
        download(server.url, tmp_path, sha256=DIGEST)
    assert error.value.exit_code == 1
    assert not (tmp_path / "corpus.tsv.gz").exists()
    server.stop_after = None
    assert download(server.url, tmp_path, sha256=DIGEST).path.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=300000-"]


def test_without_a_digest_it_starts_over(server: Server, tmp_path: Path) -> None:
    (tmp_path / ".corpus.tsv.gz.part").write_bytes(b"old bytes of another file")
    assert download(server.url, tmp_path).path.read_bytes() == CONTENT
    assert server.asked == [None]


@pytest.mark.parametrize("part", [b"", b"x" * 1000, b"x" * (len(CONTENT) + 5)])
def test_a_wrong_digest_leaves_nothing(server: Server, tmp_path: Path, part: bytes) -> None:
    (tmp_path / ".corpus.tsv.gz.part").write_bytes(part)
    wrong = "0" * 64
    with pytest.raises(DataError, match=f"SHA-256 is [0-9a-f]{{64}}, not {wrong}"):
        download(server.url, tmp_path, sha256=wrong)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("digest", [None, DIGEST])
@pytest.mark.parametrize("announced", [True, False])
def test_no_more_is_written_than_may_be(
    server: Server, tmp_path: Path, digest: str | None, announced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    original = downloads._write

    def write(response: Any, part: Path, *rest: Any) -> int:
        try:
            return original(response, part, *rest)
        finally:
            written.append(part.stat().st_size)

    monkeypatch.setattr(downloads, "_write", write)
    server.announces = announced
    with pytest.raises(DataError, match="has more than 300,000 bytes"):
        download(server.url, tmp_path, sha256=digest, most_bytes=300_000)
    assert written[0] <= 300_000
    assert not list(tmp_path.iterdir())
    assert download(server.url, tmp_path, sha256=digest, most_bytes=len(CONTENT)).fetched


def test_a_file_that_is_there_is_checked_not_fetched(server: Server, tmp_path: Path) -> None:
    (tmp_path / "corpus.tsv.gz").write_bytes(CONTENT)
    assert not download(server.url, tmp_path, sha256=DIGEST).fetched
    with pytest.raises(DataError, match="exists with SHA-256"):
        download(server.url, tmp_path, sha256="0" * 64)
    assert server.asked == []
    assert (tmp_path / "corpus.tsv.gz").read_bytes() == CONTENT


def test_a_full_disk_is_a_resource_error(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(downloads, "_write", full)
    with pytest.raises(ResourceError, match="the disk is full"):
        download(server.url, tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "corpus.gz",
        "http://host/",
        "http://host/..",
        "http://host/a%00b",
        "http://[host/a",
    ],
)
def test_addresses_without_a_safe_name_are_refused(url: str) -> None:
    with pytest.raises(UsageError):
        file_name(url)
