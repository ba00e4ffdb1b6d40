"""A server under load: many clients at once, slow ones, one that sends too much, a stop, a restart.

    python benchmarks/serving_load.py MODEL [--clients 1000] [--requests 10] [--half-open 500]
        [--text FILE] [--most-characters 40] [--json FILE] [-- OPTIONS OF deepwire serve]

Starts `deepwire serve MODEL`, compares every answer with what `deepwire.load(MODEL)` gives for the text,
and prints what came back and how long it took (seconds), and the memory of the server (MB). With
`-- --api libretranslate` the clients use the `/translate` of LibreTranslate's interface. The exit code is 1
if an answer was wrong or lost, a client got a 5xx, or a server did not end as it should.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import deepwire
from deepwire.api.model import Model
from deepwire.data.text.sentences import SentenceSplitter
from deepwire.serve.documents.document import Run
from deepwire.serve.documents.translation_plan import TranslationPlan
from deepwire.serve.libretranslate.translating import corrected

TEXT = Path(__file__).resolve().parents[1] / "examples" / "multi30k" / "train.de.gz"
LINES = 500
SWITCHES = ("guards", "placeholders", "casing")
"""Options of the server that change translations, and so the right answers."""
BAD = frozenset(
    f"{name}{when}"
    for name in ("wrong answers", "missing answers", "lost", "5xx", "exit code after SIGTERM")
    for when in ("", " under load")
)
"""Figures that must be 0."""
PATIENCE = 120
REST = 15  # seconds, more than after which a server gives memory back


@dataclass
class Seen:
    """What the clients of a test have seen."""

    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    wrong: int = 0

    @property
    def answers(self) -> int:
        """Texts that were translated."""
        return len(self.seconds)


@dataclass(frozen=True)
class Interface:
    """How clients ask for a translation.

    Attributes:
        languages: Of the model, where they have to say them: LibreTranslate's interface.
    """

    languages: tuple[str, str] | None = None

    def body(self, text: str) -> dict[str, object]:
        """The request for a text."""
        if self.languages is None:
            return {"text": text}
        return {"q": text, "source": self.languages[0], "target": self.languages[1]}

    def translation(self, answer: dict[str, Any]) -> object:
        """What came back for it."""
        return answer["translations"][0]["text"] if self.languages is None else answer["translatedText"]

    def expected(self, model: Model, lines: list[str]) -> dict[str, str]:
        """The right answer for each line; LibreTranslate's clients get it sentence by sentence, corrected."""
        if self.languages is None:
            return dict(zip(lines, model.translate(lines), strict=True))
        plan = TranslationPlan([[Run(line)] for line in lines], SentenceSplitter(self.languages[0]))
        units = plan.translated_units(model.translate(plan.texts))
        texts = ("".join(piece.text for piece in unit) for unit in units)
        return {line: corrected(line, text) for line, text in zip(lines, texts, strict=True)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=10, help="of each client, one after the other")
    parser.add_argument("--half-open", type=int, default=500, help="clients that never finish their headers")
    parser.add_argument("--text", type=Path, default=TEXT, help="lines to translate, .gz or plain")
    parser.add_argument("--most-characters", type=int, default=1000, help="longer lines are left out")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    own, _, for_serve = "\0".join(sys.argv[1:]).partition("\0--\0")
    options = parser.parse_args(own.split("\0"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, options.clients + 1000)), hard))
    lines = read(options.text, options.most_characters)
    serving = for_serve.split("\0") if for_serve else []
    settings: dict[str, bool | str | int] = {name: True for name in SWITCHES if f"--{name}" in serving}
    if "--term-search" in serving:
        settings["term_search"] = serving[serving.index("--term-search") + 1]
    if "--beam" in serving:
        settings["beam"] = int(serving[serving.index("--beam") + 1])
    terms = serving[serving.index("--terms") + 1] if "--terms" in serving else None
    if "--precision" not in serving:
        serving += ["--precision", "fp32"]  # in others, a translation depends on the texts of its batch
    precision = serving[serving.index("--precision") + 1]
    model = deepwire.load(options.model, precision=precision, settings=settings, terms=terms)
    interface = Interface(model.direction if "libretranslate" in serving else None)
    expected = interface.expected(model, lines)
    with Server(options.model, serving, interface) as server:
        figures = asyncio.run(measured(server, expected, options))
        figures["exit code after SIGTERM under load"] = server.process.wait(60)
    with Server(options.model, serving, interface) as server:
        figures["after a restart"] = asyncio.run(restarted(server, expected))
    for name, value in figures.items():
        print(f"{name}: {value}")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 1 if any(is_bad(name, value) for name, value in figures.items()) else 0


def is_bad(name: str, value: object) -> bool:
    """Whether a figure, or one in it, says that something went wrong."""
    if isinstance(value, dict):
        return any(is_bad(*item) for item in value.items())
    return name in BAD and bool(value)


def read(path: Path, most: int) -> list[str]:
    """The first lines of a text that have at most so many characters, each once."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return list(dict.fromkeys(line for line in raw.decode().split("\n") if len(line) <= most))[:LINES]


class Server:
    """`deepwire serve` in a process of its own."""

    def __init__(self, model: str, options: list[str], interface: Interface) -> None:
        self.interface = interface
        one_client = ["--limit", "client_connections=100000"]  # all have the same address
        command = [sys.executable, "-m", "deepwire", "serve", model, "--port", "0", "--quiet"]
        command += [*one_client, *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        said = self.process.stderr.readline()
        if not said.startswith("serving "):
            sys.exit(f"the server has not started: {said}{self.process.stderr.read()}")
        host, _, port = said.split()[-1].removeprefix("http://").rpartition(":")
        self.address = host.strip("[]"), int(port)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *fault: object) -> None:
        self.process.kill()

    async def request(self, text: str, connection: Connection) -> Answer:
        """Ask for a translation."""
        body = json.dumps(self.interface.body(text)).encode()
        return await connection.ask(
            b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body
        )

    def megabytes(self) -> float:
        """Memory of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1000


class Answer(NamedTuple):
    """What a client gets.

    Attributes:
        status: Of HTTP.
        found: The JSON.
        wait: Seconds after which to ask again.
    """

    status: int
    found: dict[str, Any]
    wait: float


class Connection:
    """A client that keeps its connection."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect if need be.

        Raises:
            OSError: There is no server.
        """
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address)
        return self._streams

    async def ask(self, request: bytes) -> Answer:
        """The answer to a request.

        Raises:
            OSError, IncompleteReadError: The connection was lost.
        """
        reader, writer = await self.connect()
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        found = json.loads(await reader.readexactly(length))
        if "connection: close" in head:
            self.close()
        wait = head.partition("retry-after: ")[2].partition("\r\n")[0]
        return Answer(int(head.split()[1]), found, float(wait or 1))

    def close(self) -> None:
        """End the connection."""
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


async def measured(
    server: Server, expected: dict[str, str], options: argparse.Namespace
) -> dict[str, object]:
    """All the tests, one after the other."""
    await crowd(server, expected, 20, 5)  # what is allocated once is there before memory is compared
    before = server.megabytes()
    memory: list[float] = []
    watching = asyncio.create_task(watch(server, memory))
    begun = time.monotonic()
    seen = await crowd(server, expected, options.clients, options.requests)
    seconds = time.monotonic() - begun
    watching.cancel()
    times = statistics.quantiles(seen.seconds, n=100)
    figures: dict[str, object] = {
        "clients": options.clients,
        "answers": dict(seen.statuses),
        "lost": seen.statuses["lost"],
        "5xx": sum(count for status, count in seen.statuses.items() if status.startswith("5")),
        "translations": seen.answers,
        "wrong answers": seen.wrong,
        "translations per second": round(seen.answers / seconds, 1),
        "seconds, median and 99th percentile": [round(times[49], 2), round(times[98], 2)],
        "MB before and after": [round(before), round(server.megabytes())],
        "most MB in each tenth of the time": [round(max(part)) for part in tenths(memory)],
    }
    await asyncio.sleep(REST)
    figures["MB after a rest"] = round(server.megabytes())
    figures["half-open connections, closed after"] = await half_open(server, expected, options.half_open)
    figures["MB more while 100 MB are sent"] = await too_much(server)
    figures["stopped under load"] = await stopped(server, expected)
    return figures


async def watch(server: Server, memory: list[float]) -> None:
    """Look at the memory of a server every half second."""
    while True:
        memory.append(server.megabytes())
        await asyncio.sleep(0.5)


def tenths(values: list[float]) -> list[list[float]]:
    """Ten equal parts, or as many as there are values."""
    size = max(1, len(values) / 10)
    bounds = [round(size * place) for place in range(min(10, len(values)))] + [len(values)]
    return [values[begin:end] for begin, end in pairwise(bounds)]


async def restarted(server: Server, expected: dict[str, str]) -> dict[str, object]:
    """A second server on the same model: every line once."""
    begun = time.monotonic()
    seen = await crowd(server, expected, len(expected), 1)
    server.process.send_signal(signal.SIGTERM)
    return {
        "translations": seen.answers,
        "wrong answers": seen.wrong,
        "missing answers": len(expected) - seen.answers,
        "seconds": round(time.monotonic() - begun, 1),
        "exit code after SIGTERM": server.process.wait(60),
    }


async def crowd(server: Server, expected: dict[str, str], clients: int, requests: int) -> Seen:
    """Clients that ask at the same time and check what they get; asked to wait, they wait."""
    seen, lines = Seen(), list(expected)

    async def client(number: int) -> None:
        connection = Connection(server.address)
        for turn in range(requests):
            text = lines[(number + turn * 7) % len(lines)]
            begun = time.monotonic()
            while (answer := await asked(server, text, connection, seen)).status == 429:
                connection.close()
                await asyncio.sleep(answer.wait)
            if answer.status == 200:
                seen.seconds.append(time.monotonic() - begun)
                seen.wrong += server.interface.translation(answer.found) != expected[text]
        connection.close()

    await asyncio.wait_for(
        asyncio.gather(*(client(number) for number in range(clients))), PATIENCE + clients * requests
    )
    return seen


async def asked(server: Server, text: str, connection: Connection, seen: Seen) -> Answer:
    """The answer to one request; its status is 0 if there is none."""
    said = "no server"
    try:
        await connection.connect()
        said = "lost"
        answer = await server.request(text, connection)
    except (OSError, asyncio.IncompleteReadError):
        connection.close()
        seen.statuses[said] += 1
        return Answer(0, {}, 0)
    seen.statuses[str(answer.status)] += 1
    return answer


async def half_open(server: Server, expected: dict[str, str], count: int) -> dict[str, object]:
    """Clients that send half of their headers, and one that wants a translation."""
    begun = time.monotonic()
    streams = [await asyncio.open_connection(*server.address) for _ in range(count)]
    for _, writer in streams:
        writer.write(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    asked = time.monotonic()
    await server.request(next(iter(expected)), Connection(server.address))
    answered = time.monotonic() - asked
    await asyncio.gather(*(reader.read() for reader, _ in streams))
    closed = time.monotonic() - begun
    for _, writer in streams:
        writer.close()
    return {"count": count, "all closed after": round(closed, 2), "normal client": round(answered, 2)}


async def too_much(server: Server) -> dict[str, object]:
    """A chunked body of 100 MB: when is it refused, and what does it cost?"""
    before = most = server.megabytes()
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
    writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
    sent = 0
    try:
        answer = asyncio.ensure_future(reader.readline())
        while sent < 100_000_000 and not answer.done():
            writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0)
            sent += 65536
            most = max(most, server.megabytes())
        status = (await answer).decode().split()[1]
    except (OSError, IndexError):
        status = "connection closed"
    writer.close()
    return {"status": status, "MB sent": round(sent / 1e6, 1), "MB more": round(most - before, 1)}


async def stopped(server: Server, expected: dict[str, str]) -> dict[str, object]:
    """SIGTERM while clients ask: what is in work is answered, what comes later gets a 503."""
    load = asyncio.create_task(crowd(server, expected, 50, 40))
    await asyncio.sleep(1)
    begun = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    while server.process.poll() is None and time.monotonic() - begun < PATIENCE:
        await asyncio.sleep(0.05)
    seconds = time.monotonic() - begun
    seen = await load
    return {
        "seconds": round(seconds, 1),
        "answers": dict(seen.statuses),
        "lost": seen.statuses["lost"],
        "wrong answers": seen.wrong,
    }


if __name__ == "__main__":
    sys.exit(main())
