"""Documents that are sent to the server, and fetched from it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from deepwire.serve.libretranslate import KeptFiles, libretranslate_site


@pytest.fixture(scope="module")
def server(polyglot, serving):
    with serving.running(polyglot, site=libretranslate_site, file_bytes=300_000) as found:
        yield found


def send(server, name, content, **fields):
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in {"source": "de", "target": "en", **fields}.items()
        if value is not None
    ]
    if name is not None:
        head = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        parts.append(head.encode() + content + b"\r\n")
    body = b"".join([*parts, b"--x--\r\n"])
    return server.request(
        "POST", "/translate_file", body, {"Content-Type": "multipart/form-data; boundary=x"}
    )


def fetched(server, answer):
    assert answer.status == 200, answer.body
    parts = urlsplit(answer.json["translatedFileUrl"])
    assert (parts.scheme, parts.port) == ("http", server.port)
    return server.get(parts.path)


def test_a_document_is_translated_and_can_be_fetched(server, polyglot):
    answer = fetched(server, send(server, "Mein Text.txt", b"ein hund\n\nzwei\n"))
    expected = polyglot._translator.translate(["ein hund", "zwei"], to="en")
    assert answer.body.decode() == f"{expected[0]}\n\n{expected[1]}\n"
    assert answer.headers["content-disposition"] == 'attachment; filename="Mein_Text_en.txt"'
    assert answer.headers["content-type"] == "application/octet-stream"


def test_the_language_of_a_document_is_detected(server, polyglot):
    page = b"<p>Der Hund sitzt auf der Wiese</p>"
    answer = fetched(server, send(server, "a.html", page, source="auto", target="fr"))
    between = polyglot._translator.translate(["Der Hund sitzt auf der Wiese"], to="en")
    assert answer.body.decode() == f"<p>{polyglot._translator.translate(between, to='fr')[0]}</p>"


@pytest.mark.parametrize(
    ("name", "content", "fields", "status", "said"),
    [
        (None, b"", {}, 400, "Invalid request: missing file parameter"),
        ("", b"a", {}, 400, "Invalid request: empty file"),
        ("a.exe", b"a", {}, 400, "Invalid request: file format not supported"),
        ("a.txt", b"a", {"target": "zz"}, 400, "zz is not supported"),
        ("a.txt", b"\xff", {}, 400, "Invalid request: line 1: not UTF-8"),
        ("a.html", b"<p>" * 200_000, {}, 413, "the file has more than 300000 bytes"),
    ],
)  # fmt: skip
def test_a_wrong_file_gets_one_clear_answer(server, name, content, fields, status, said):
    answer = send(server, name, content, **fields)
    assert answer.status == status
    assert set(answer.json) == {"error"}
    assert said in answer.json["error"]
    assert server.get("/health").status == 200


def test_names_lead_nowhere_else(server):
    for name in ("/download_file/nothing.txt", "/download_file/..%2f..%2fetc%2fpasswd", "/download_file/"):
        assert server.get(name).status == 404
    answer = fetched(server, send(server, "../../etc/x.txt", b"ein"))
    assert answer.headers["content-disposition"] == 'attachment; filename="x_en.txt"'


def test_documents_can_be_switched_off(polyglot, serving):
    def site(service):
        return libretranslate_site(service, files=False)

    with serving.running(polyglot, site=site) as server:
        answer = send(server, "a.txt", b"a")
        assert (answer.status, answer.json["error"]) == (
            403,
            "Files translation are disabled on this server.",
        )
        settings = json.loads(server.get("/frontend/settings").body)
        assert (settings["filesTranslation"], settings["supportedFilesFormat"]) == (False, [])


def test_documents_are_kept_for_a_while_and_not_too_many(monkeypatch):
    monkeypatch.setattr("deepwire.serve.libretranslate._MOST_KEPT", 2)
    clock = [0.0]
    monkeypatch.setattr("deepwire.serve.libretranslate.time", SimpleNamespace(monotonic=lambda: clock[0]))
    kept = KeptFiles()
    first, second = kept.keep("a.txt", b"1"), kept.keep("a.txt", b"2")
    assert kept.find(first).read_bytes() == b"1"
    third = kept.keep("a.txt", b"3")
    assert kept.find(first) is None
    path = kept.find(second)
    clock[0] = 10_000.0
    assert kept.find(third) is None
    assert not path.exists()
    kept.close()


def test_documents_go_with_the_server_even_where_it_is_ended_by_force(
    polyglot, serving, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = serving.Held(polyglot)
    with serving.running(model, site=libretranslate_site) as server, ThreadPoolExecutor(1) as clients:
        model.free.set()
        answer = send(server, "a.txt", b"ein hund")
        name = PurePath(urlsplit(answer.json["translatedFileUrl"]).path).name
        assert [path.name for path in tmp_path.glob("*/*")] == [name]
        model.free.clear()
        clients.submit(send, server, "b.txt", b"zwei")
        serving.wait_until(lambda: len(model.batches) == 2)
        server.stop()
        server.stop()
        server.join()
        assert server.service.batcher.alive, "the process would end without tidying up"
        assert list(tmp_path.iterdir()) == []
        model.free.set()
