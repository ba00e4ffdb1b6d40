from __future__ import annotations

import gzip
import json
import logging
import socket
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest

import deepwire
from deepwire.serve.access import Hosts
from deepwire.serve.routes import network_of

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def translator(one_direction):
    return deepwire.load(one_direction, "cpu", "fp32")


def test_translations_come_in_order_and_empty_texts_stay_empty(server, translator, serving):
    lines = [*serving.texts(5), "", "  \t ", "</s> <pad>"]
    answer = server.post({"texts": lines})
    assert answer.status == 200
    assert answer.texts == translator.translate(lines)
    assert answer.texts[5:7] == ["", ""]
    assert any(answer.texts)
    assert server.post({"text": lines[0]}).texts == answer.texts[:1]
    assert server.post({"texts": []}).texts == []


def test_every_line_of_a_text_is_translated_and_line_breaks_stay(server, translator, one_direction, serving):
    one, two, three = serving.texts(3)
    into = dict(zip((one, two, three), translator.translate([one, two, three]), strict=True))
    text = f"{one}\n\n{two}\r\n \n{three}\n"
    answer = server.post({"texts": [two, text]})
    assert answer.texts == [into[two], f"{into[one]}\n\n{into[two]}\r\n\n{into[three]}\n"]
    assert server.post({"text": "\n"}).texts == ["\n"]
    (found,) = server.post({"text": f"{one}\n\n{two}", "beam": 3, "n_best": 2}).json["translations"]
    best = deepwire.load(one_direction, "cpu", "fp32", settings={"beam": 3, "n_best": 2})
    alone = [[one.text for one in line.candidates] for line in best.translations([one, two])]
    assert [[one["text"] for one in line["candidates"]] for line in found["lines"]] == [
        alone[0],
        [""],
        alone[1],
    ]
    assert found["text"] == f"{alone[0][0]}\n\n{alone[1][0]}"
    assert set(found) == {"text", "lines"}
    too_long = server.post({"texts": ["", f"{one}\n" + "ein " * 1200]}).json["error"]
    assert too_long["message"].startswith("text 1, line 2: ")
    assert too_long["index"] == 1


def test_scores_where_they_are_asked_for(server, one_direction, serving):
    (text,) = serving.texts(1)
    (found,) = server.post({"text": text, "beam": 3, "n_best": 3}).json["translations"]
    best = deepwire.load(one_direction, "cpu", "fp32", settings={"beam": 3, "n_best": 3})
    (expected,) = best.translations([text])
    assert [one["text"] for one in found["candidates"]] == [one.text for one in expected.candidates]
    scores = [one["score"] for one in found["candidates"]]
    assert scores == pytest.approx([one.score for one in expected.candidates], abs=1e-5)
    assert scores == sorted(scores, reverse=True)
    empty = server.post({"text": " ", "n_best": 1}).json["translations"][0]
    assert empty == {"text": "", "candidates": [{"text": "", "score": 0.0, "log_probability": 0.0}]}


@pytest.mark.parametrize(
    ("asked", "status", "said", "index"),
    [
        ({"text": "a", "beam": 9}, 422, "beam: at most 8, but is 9", None),
        ({"text": "a", "n_best": 3}, 422, "n_best: at most the beam (2), but is 3", None),
        ({"texts": ["", "ein " * 1200]}, 422, "subwords, at most 1024", 1),
        ({"text": "a", "target": "fr"}, 422, "one direction only, not 'fr'", None),
    ],
)
def test_wrong_requests_get_a_reason_and_harm_nobody(server, asked, status, said, index):
    answer = server.post(asked)
    assert answer.status == status
    error = answer.json["error"]
    assert said in error["message"]
    assert error.get("index") == index
    assert error["request"] == answer.headers["x-request-id"]
    assert server.get("/healthz").status == 200


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "code"),
    [
        ("POST", "/translate", {}, 415, "unsupported_media_type"),
        ("POST", "/translate", {**JSON, "Content-Encoding": "gzip"}, 415, "unsupported_media_type"),
        ("GET", "/translate", {}, 405, "method_not_allowed"),
        ("POST", "/unload_model", JSON, 404, "not_found"),
        ("GET", "/translate/", {}, 404, "not_found"),
        ("GET", "/static/../../etc/passwd", {}, 404, "not_found"),
    ],
)
def test_other_addresses_and_forms(server, method, path, headers, status, code):
    body = gzip.compress(bytes(10**6)) if method == "POST" else None
    answer = server.request(method, path, body, headers)
    assert (answer.status, answer.code) == (status, code)
    assert answer.headers["content-type"] == "application/json"
    assert "root:" not in answer.body.decode()


def test_browsers_are_protected_in_every_answer(server):
    for path in ("/", "/page.css", "/page.js", "/languages", "/healthz", "/nothing"):
        headers = server.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith(
            "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'"
        )
        assert headers["x-content-type-options"] == "nosniff"
        assert not {"server", "access-control-allow-origin"} & set(headers)


def test_languages_are_chosen_for_each_request(polyglot, serving):
    (text,) = serving.texts(1, start=4)
    with serving.running(polyglot) as server:
        known = server.get("/languages").json["languages"]
        assert (known["several"], known["targets"]) == (True, ["de", "en", "fr"])
        for to in ("de", "fr"):
            expected = polyglot._translator.translate([text], to=to)
            assert server.post({"text": text, "target": to}).texts == expected
        assert server.post({"text": text, "target": "de", "source": "en"}).status == 200
        for wrong, said in (
            ({}, "one of de, en, fr is needed"),
            ({"target": "it"}, "does not know the language 'it'"),
            ({"target": "de", "source": "<b>"}, "does not know the language '<b>'"),
        ):
            answer = server.post({"text": text, **wrong})
            assert answer.status == 422
            assert said in answer.json["error"]["message"]


CHUNK = b"1000\r\n" + b" " * 4096 + b"\r\n"


@pytest.mark.parametrize(
    ("framing", "linger"),
    [
        (b"Content-Length: 100000000\r\n\r\n", 0.1),
        (b"Content-Length: 100000000\r\n\r\n" + b" " * 5000, 0.1),
        (b"Transfer-Encoding: chunked\r\n\r\n" + 400 * CHUNK + b"0\r\n\r\n", 60),
    ],
    ids=["announced", "begun", "sent"],
)
def test_a_large_body_is_refused_before_it_is_read(server, framing, linger, monkeypatch):
    """The answer comes early, the client has a moment to stop sending, and the connection is closed."""
    monkeypatch.setattr("deepwire.serve.server.LINGER_SECONDS", linger)
    with server.connect() as client:
        client.sendall(b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" + framing)
        head = received(client)
    assert head.startswith(b"HTTP/1.1 413")
    assert b'"code":"too_large"' in head
    assert b"connection: close" in head.lower()


def received(client: socket.socket) -> bytes:
    """Everything until the server closes."""
    parts = []
    try:
        while part := client.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def test_slow_clients_are_cut_off_and_others_are_served(served_model, serving):
    with serving.running(served_model, header_seconds=600, body_seconds=300) as server:

        def connections():
            return len(server.server.server_state.connections)

        silent = [server.connect() for _ in range(50)]
        for client in silent[10:]:
            client.sendall(b"POST /translate HTTP/1.1\r\nHost: a\r\nX-Slow: ")
        again = server.connect()
        again.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        first = again.recv(65536)
        while not first.endswith(b'{"status":"alive"}'):
            first += again.recv(65536)
        again.sendall(b"GET /healthz HTTP/1.1\r\nHo")
        late = server.connect()
        late.sendall(b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n")
        late.sendall(b"Content-Length: 10\r\n\r\n{")
        for _ in range(3):  # all that was sent before is read by then
            assert server.post({"text": "ein"}).status == 200
        assert connections() >= 52
        server.let_pass(301)
        assert received(late).startswith(b"HTTP/1.1 408")
        serving.wait_until(lambda: connections() == 51)
        server.let_pass(300)
        assert [received(client) for client in silent] == [b""] * 50
        assert received(again) == b""
        serving.wait_until(lambda: connections() == 0)


HALF_A_BODY = (
    b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{"
)


def test_too_many_connections_are_refused(served_model, serving):
    with serving.running(served_model, connections=3) as server:
        clients = [server.connect() for _ in range(3)]
        for client in clients:
            client.sendall(HALF_A_BODY)
        serving.wait_until(lambda: len(server.server.server_state.connections) == 3)
        with server.connect() as refused:
            refused.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert received(refused).startswith(b"HTTP/1.1 503")
        for client in clients:
            client.close()
        serving.wait_until(lambda: not server.server.server_state.connections)
        assert server.get("/healthz").status == 200


def test_pages_of_strangers_cannot_pretend_to_be_ours(served_model, serving):
    """DNS rebinding: the name of a stranger that leads to this machine, in a browser that obeys all rules."""
    with serving.running(served_model, hosts=Hosts(["mt.example.org"])) as server:
        for host in ("localhost", "127.0.0.1:9", "[::1]:8080", "mt.example.org"):
            assert server.post({"text": "ein"}, Host=host, Origin=f"http://{host}").status == 200
        for host in ("evil.com", "localhost.evil.com", ""):
            answer = server.post({"text": "ein"}, Host=host, Origin=f"http://{host}")
            assert (answer.status, answer.code) == (421, "wrong_host")
            for path in ("/", "/page.js", "/languages", "/healthz"):
                assert server.get(path, Host=host).status == 421
        with server.connect() as client:  # no browser, and nothing to pretend with
            client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert received(client).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({}, 200),  # no browser
        ({"Origin": "http://127.0.0.1:PORT"}, 200),
        ({"Origin": "https://mt.example.org", "Sec-Fetch-Site": "same-origin"}, 200),  # behind a proxy
        ({"Origin": "https://a.example", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "https://a.example"}, 403),
        ({"Origin": "http://127.0.0.1:PORT.a.example"}, 403),
    ],
)
def test_pages_of_strangers_send_nothing(server, said, status):
    """Forms and documents need no preflight: what is sent is looked at."""
    headers = {name: value.replace("PORT", str(server.port)) for name, value in said.items()}
    document = server.request("POST", "/translate_file?name=a.txt", b"ein", headers)
    assert document.status == server.post({"text": "ein"}, **headers).status == status
    assert server.get("/", **headers).status == 200  # a link of another page leads here


def test_many_clients_at_once_get_their_own_translations(served_model, translator, serving):
    lines = serving.texts(120)
    expected = dict(zip(lines, translator.translate(lines), strict=True))
    model, wrong = serving.Held(served_model), []
    with serving.running(model) as server:

        def asked_for(number):
            return 1 + number % 3

        def client(number):
            for turn in range(3):
                asked = lines[number * 7 + turn :][: asked_for(number)]
                answer = server.post({"texts": asked})
                if answer.status != 200 or answer.texts != [expected[line] for line in asked]:
                    wrong.append((asked, answer))

        with ThreadPoolExecutor(16) as clients:
            done = clients.map(client, range(16))
            serving.wait_until(lambda: server.service.batcher.texts == sum(map(asked_for, range(16))))
            model.free.set()
            list(done)
        assert not wrong
        assert server.metric("deepwire_texts_total") == 3 * sum(map(asked_for, range(16)))
        # What waited while the first batch was in work is translated together.
        assert server.metric("deepwire_batch_texts_count") <= 1 + 1 + 32
        assert server.metric('deepwire_requests_total{path="/translate",status="200"}') == 48
        assert server.metric("deepwire_queue_texts") == 0


def test_a_client_that_goes_away_leaves_room(served_model, serving):
    model = serving.Held(served_model)
    with serving.running(model, queue=4) as server, ThreadPoolExecutor(1) as clients:
        first = clients.submit(server.post, {"text": "ein"})
        serving.wait_until(lambda: len(model.batches) == 1)
        gone = server.connect()
        body = json.dumps({"texts": ["zwei", "drei"]}).encode()
        gone.sendall(
            b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body
        )
        serving.wait_until(lambda: server.service.batcher.texts == 3)
        full = server.post({"text": "hund"})
        assert (full.status, full.code) == (429, "queue_full")
        assert int(full.headers["retry-after"]) >= 1
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.close()
        serving.wait_until(lambda: server.service.batcher.texts == 1)
        model.free.set()
        assert server.post({"text": "hund"}).status == 200
        assert first.result().status == 200
        assert model.batches == [["ein"], ["hund"]]


def test_a_client_that_goes_away_while_it_sends_is_no_fault(served_model, serving, caplog):
    with serving.running(served_model) as server:
        gone = server.connect()
        gone.sendall(HALF_A_BODY)
        serving.wait_until(lambda: len(server.server.server_state.tasks) == 1)
        gone.close()
        answers = 'deepwire_requests_total{path="/translate",status='
        serving.wait_until(lambda: server.metric(answers) == 1)
        assert server.metric(f'{answers}"499"}}') == 1
    assert "failed" not in caplog.text


def test_a_request_that_the_model_fails_on_fails_alone(served_model, serving, caplog):
    model = serving.Held(served_model)
    running = serving.running(model)
    with running as server, caplog.at_level(logging.INFO), ThreadPoolExecutor(4) as clients:

        def ask(text):
            return clients.submit(server.post, {"texts": ["", "ein", f"ja\n\n{text}"]})

        asked = {"first": ask("first")}
        serving.wait_until(lambda: model.batches != [])
        asked |= {text: ask(text) for text in ("zwei", "poison", "drei")}
        serving.wait_until(lambda: server.service.batcher.texts == 12)
        model.free.set()
        answers = {text: answer.result() for text, answer in asked.items()}
        assert server.metric("deepwire_failed_texts_total") == 1
    assert {text: answer.status for text, answer in answers.items()} == {
        "first": 200,
        "zwei": 200,
        "drei": 200,
        "poison": 500,
    }
    error = answers["poison"].json["error"]
    assert (error["code"], error["index"]) == ("internal", 2)
    assert f"request {error['request']} failed: RuntimeError at conftest.py:" in caplog.text
    assert not any(word in caplog.text for word in ("poison", "secret", "zwei", "ein ")), "text was logged"


def test_a_request_has_its_time(served_model, serving):
    model = serving.Held(served_model)
    with serving.running(model, request_seconds=0.2) as server:
        answer = server.post({"text": "ein"})
        assert (answer.status, answer.code) == (503, "out_of_time")
        model.free.set()
        serving.wait_until(lambda: server.service.batcher.texts == 0)


def test_without_the_token_there_is_no_translation(served_model, serving):
    secret = "0123456789abcdef"
    with serving.running(served_model, token=secret) as server:
        for wrong in (
            {},
            {"Authorization": "Bearer x"},
            {"Authorization": secret},
            {"Authorization": "Bearer"},
        ):
            answer = server.post({"text": "ein"}, **wrong)
            assert (answer.status, answer.code) == (401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["connection"] == "close"
        for path in ("/languages", "/metrics", "/nothing"):
            assert server.get(path).status == 401
        for path in ("/", "/page.js", "/healthz", "/readyz"):
            assert server.get(path).status == 200
        right = {"Authorization": f"Bearer {secret}"}
        assert server.post({"text": "ein"}, **right).status == 200
        assert server.get("/metrics", **right).status == 200


def test_stopping_finishes_what_is_in_work_and_refuses_the_rest(served_model, serving):
    model = serving.Held(served_model)
    with serving.running(model) as server, ThreadPoolExecutor(1) as clients:
        answer = clients.submit(server.post, {"text": "ein"})
        serving.wait_until(lambda: model.batches != [])
        assert server.get("/readyz").status == 200
        server.stop()
        assert server.get("/readyz").status == 503
        assert server.get("/healthz").status == 200
        refused = server.post({"text": "zwei"})
        assert (refused.status, refused.code) == (503, "stopping")
        assert refused.headers["connection"] == "close"
        model.free.set()
        assert answer.result().status == 200
        server.join()
        assert model.batches == [["ein"]]


def test_stopping_does_not_wait_for_ever(served_model, serving, caplog):
    model = serving.Held(served_model)
    with serving.running(model, drain_seconds=0.2) as server, ThreadPoolExecutor(1) as clients:
        asked = clients.submit(server.post, {"text": "ein"})
        serving.wait_until(lambda: model.batches != [])
        server.stop()
        answer = asked.result()
        assert (answer.status, answer.code) == (503, "stopping")
        server.join()
        model.free.set()
    assert "Traceback" not in caplog.text, "a translation that comes too late is no error"


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_who_is_behind_an_address(address, client):
    assert network_of(address) == client
