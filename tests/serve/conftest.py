"""Tiny models on disk, and servers in threads of this process."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from deepwire.checkpoint.store import save_model
from deepwire.data.context import NO_CONTEXT, ContextConfig
from deepwire.data.languages import Direction, Languages
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import BpeConfig
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.serve.access import Hosts, Token, bind
from deepwire.serve.model_pool import ModelPool, ServedModel, load_pool
from deepwire.serve.request import Limits
from deepwire.serve.routes import Site
from deepwire.serve.server import RequestMiddleware, Server
from deepwire.serve.service import Service

WORDS = "ein zwei drei hund katze haus mann frau ball rot blau grün läuft schläft spielt auf dem der die das"
PATIENCE = 60
"""Seconds after which a test gives up waiting; nothing takes so long, however busy the machine is."""
LANGUAGES = Languages(tuple(Direction.parse(name) for name in ("en-de", "en-fr", "de-en", "fr-en")))


def texts(count: int, start: int = 0) -> list[str]:
    """Different short texts."""
    words = WORDS.split()
    numbers = range(start, start + count)
    return [" ".join(words[(n * 7 + n // 20 * k + k * 3) % 20] for k in range(1 + n % 5)) for n in numbers]


def save(
    folder: Path,
    languages: Languages | None = None,
    context: ContextConfig = NO_CONTEXT,
    **architecture: object,
) -> Path:
    """Store a model with random weights; with the languages, or from `de` to `en`."""
    torch.manual_seed(3)
    pairs = [Pair(line, text, text.upper(), 0) for line, text in enumerate(texts(60))]
    vocabularies = Vocabularies.learn_from_blocks(BpeConfig(size=80, byte_fallback=False), [pairs])
    sizes = {"d_model": 16, "heads": 2, "feed_forward": 32, "decoder": {"layers": 1}}
    sizes |= architecture or {"encoder": {"layers": 1}}
    more = context.separators + (0 if languages is None else languages.tags)
    model = build_model(
        ModelConfig.model_validate(sizes), vocabularies.source.size + more, vocabularies.target.size + more
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    about = {"source": "de", "target": "en"} if languages is None else languages.to_metadata()
    limits = {"max_length_ratio": 1, "max_length_extra": 3, "beam": 2}
    about = {**about, **context.to_metadata()}
    save_model(folder, model, vocabularies, {**about, "decoding": limits})
    return folder


class Answer(NamedTuple):
    """What a server has answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def texts(self) -> list[str]:
        return [one["text"] for one in self.json["translations"]]

    @property
    def code(self) -> str:
        return self.json["error"]["code"]


class Running:
    """A server in a thread of this process."""

    def __init__(
        self,
        served_model: ServedModel | ModelPool,
        limits: Limits,
        token: str | None,
        hosts: Hosts | None,
        site: Callable[[Service], Site] | None,
    ) -> None:
        models = served_model if isinstance(served_model, ModelPool) else ModelPool([served_model])
        self.service = Service(models, limits)
        guard = RequestMiddleware(
            self.service,
            None if token is None else Token(token),
            hosts,
            None if site is None else site(self.service),
        )
        self.server = Server(guard, self.service)
        self.bound = bind("127.0.0.1", 0)
        self.port = self.bound.getsockname()[1]
        self._thread = threading.Thread(target=self.server.serve_on, args=(self.bound,), daemon=True)
        self._thread.start()
        wait_until(lambda: self.server.started)

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, headers=headers)

    def post(self, body: object, **headers: str) -> Answer:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", "/translate", raw, {"Content-Type": "application/json", **headers})

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def metric(self, name: str) -> float:
        lines = self.get("/metrics").body.decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    def stop(self) -> None:
        self.server.stop(signal.SIGTERM)

    def join(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def let_pass(self, seconds: float) -> None:
        """Put the clock of the server forward: what is due by then happens now."""
        loop = self.server.servers[0].get_loop()
        clock = loop.time
        loop.call_soon_threadsafe(setattr, loop, "time", lambda: clock() + seconds)


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for it, and not for ever."""
    latest = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < latest, "it did not come true"
        time.sleep(0.005)


@contextmanager
def running(
    served_model: ServedModel | ModelPool,
    token: str | None = None,
    hosts: Hosts | None = None,
    *,
    site: Callable[[Service], Site] | None = None,
    **limits: float,
) -> Iterator[Running]:
    """A server that ends with the block; patient with clients that a busy machine delays."""
    seconds = dict.fromkeys(("header_seconds", "body_seconds", "request_seconds", "drain_seconds"), 600.0)
    server = Running(served_model, Limits.model_validate({**seconds, **limits}), token, hosts, site)
    try:
        yield server
    finally:
        server.stop()
        server.stop()
        server.join()
        wait_until(lambda: not server.service.batcher.alive)


class Held(ServedModel):
    """A model that waits until it may translate, and fails on some texts."""

    def __init__(self, served_model: ServedModel) -> None:
        super().__init__(served_model._translator, served_model.name)
        self.free = threading.Event()
        self.batches: list[list[str]] = []

    def translate(self, requests, lengths, search):
        self.batches.append([request.text for request in requests])
        assert self.free.wait(PATIENCE)
        if any("poison" in request.text for request in requests):
            raise RuntimeError("a secret text")
        return super().translate(requests, lengths, search)


def serve(folder: Path) -> ServedModel:
    """A stored model as a server has it."""
    (model,) = load_pool([str(folder)], "cpu", "fp32", settings={}, warn=print)._models
    return model


@pytest.fixture(scope="session")
def one_direction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("served") / "<img src=x onerror=alert(1)>")


@pytest.fixture(scope="session")
def served_model(one_direction: Path) -> ServedModel:
    return serve(one_direction)


@pytest.fixture(scope="session")
def polyglot(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    return serve(save(tmp_path_factory.mktemp("served") / "many", LANGUAGES))


@pytest.fixture(scope="module")
def server(served_model: ServedModel) -> Iterator[Running]:
    with running(served_model) as found:
        yield found


class Serving:
    """What the tests of this folder share."""

    PATIENCE = PATIENCE
    texts = staticmethod(texts)
    save = staticmethod(save)
    serve = staticmethod(serve)
    running = staticmethod(running)
    wait_until = staticmethod(wait_until)
    Held = Held


@pytest.fixture(scope="session")
def serving() -> type[Serving]:
    return Serving
