"""A server under load: many clients at once, slow ones, and a stop.

    python benchmarks/serving_load.py MODEL [--clients 1000] [--requests 10] [--half-open 500]
        [--text FILE] [--most-characters 40] [-- OPTIONS OF deepwire serve]

Starts `deepwire serve MODEL`, compares every answer with what `deepwire.load(MODEL)` gives for the text,
and prints what came back and how long it took (seconds), and the memory of the server (MB). The exit code is
1 if an answer was wrong or lost, a client got a 5xx, or the server did not end as it should.
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
from pathlib import Path
from typing import Any

import deepwire

TEXT = Path(__file__).resolve().parents[1] / "examples" / "multi30k" / "train.de.gz"
LINES = 500
BAD = ("wrong answers", "lost", "5xx", "exit code after SIGTERM")
"""Figures that must be 0."""
PATIENCE = 120
HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@dataclass
class Seen:
    """The answers that the clients of a test have seen."""

    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    wrong: int = 0


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
    own, _, for_serve = "\0".join(sys.argv[1:]).partition("\0--\0")
    options = parser.parse_args(own.split("\0"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, options.clients + 1000)), hard))
    lines = read(options.text, options.most_characters)
    serving = for_serve.split("\0") if for_serve else []
    settings = {"beam": int(serving[serving.index("--beam") + 1])} if "--beam" in serving else {}
    # In other precisions, a translation depends on the texts of its batch.
    model = deepwire.load(options.model, precision="fp32", settings=settings)
    expected = dict(zip(lines, model.translate(lines), strict=True))
    serving += ["--precision", "fp32", "--limit", f"connections={options.clients + options.half_open + 100}"]
    with Server(options.model, serving) as server:
        figures = asyncio.run(measured(server, expected, options))
        figures["exit code after SIGTERM"] = server.process.wait(60)
    for name, value in figures.items():
        print(f"{name}: {value}")
    return 1 if any(figures[name] for name in BAD) else 0


def read(path: Path, most: int) -> list[str]:
    """The first lines of a text that have at most so many characters, each once."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return list(dict.fromkeys(line for line in raw.decode().split("\n") if len(line) <= most))[:LINES]


class Server:
    """`deepwire serve` in a process of its own."""

    def __init__(self, model: str, options: list[str]) -> None:
        command = [sys.executable, "-m", "deepwire", "serve", model, "--port", "0", "--quiet", *options]
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

    def megabytes(self) -> float:
        """Memory of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1000


class Connection:
    """A client that keeps its connection."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, text: str) -> tuple[str, Any]:
        """The status of an answer, or how there came none, and its translation or when to ask again."""
        body = json.dumps({"text": text}).encode()
        said = "no server"
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection(*self._address)
            reader, writer = self._streams
            said = "lost"
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
            found = json.loads(await reader.readexactly(length))
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return said, None
        if "connection: close" in head:
            self.close()
        if "translations" in found:
            return head.split()[1], found["translations"][0]["text"]
        return head.split()[1], float(head.partition("retry-after: ")[2].partition("\r\n")[0] or 1)

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
    begun = time.monotonic()
    seen = await crowd(server, expected, options.clients, options.requests)
    seconds = time.monotonic() - begun
    times = statistics.quantiles(seen.seconds, n=100)
    after = server.megabytes()
    slow = await half_open(server, expected, options.half_open)
    begun = time.monotonic()
    late = await stopped(server, expected)
    return {
        "answers": dict(seen.statuses),
        "wrong answers": seen.wrong + late.wrong,
        "lost": seen.statuses["lost"] + late.statuses["lost"],
        "5xx": sum(count for status, count in seen.statuses.items() if status.startswith("5")),
        "translations per second": round(len(seen.seconds) / seconds, 1),
        "seconds, median and 99th percentile": [round(times[49], 2), round(times[98], 2)],
        "MB before and after": [round(before), round(after)],
        "seconds until half-open connections are closed, and of a client beside them": slow,
        "stopped under load": {"seconds": round(time.monotonic() - begun, 1), "answers": dict(late.statuses)},
    }


async def crowd(server: Server, expected: dict[str, str], clients: int, requests: int) -> Seen:
    """Clients that ask at the same time and check what they get; asked to wait, they wait."""
    seen, lines = Seen(), list(expected)

    async def client(number: int) -> None:
        connection = Connection(server.address)
        for turn in range(requests):
            text = lines[(number + turn * 7) % len(lines)]
            begun = time.monotonic()
            status, found = await connection.ask(text)
            while status == "429":
                seen.statuses[status] += 1
                connection.close()
                await asyncio.sleep(found)
                status, found = await connection.ask(text)
            seen.statuses[status] += 1
            if status == "200":
                seen.seconds.append(time.monotonic() - begun)
                seen.wrong += found != expected[text]
        connection.close()

    await asyncio.wait_for(
        asyncio.gather(*(client(number) for number in range(clients))), PATIENCE + clients * requests
    )
    return seen


async def half_open(server: Server, expected: dict[str, str], count: int) -> list[float]:
    """Clients that send half of their headers, and one that wants a translation."""
    begun = time.monotonic()
    streams = [await asyncio.open_connection(*server.address) for _ in range(count)]
    for _, writer in streams:
        writer.write(HEAD + b"X-Slow: ")
    asked = time.monotonic()
    await Connection(server.address).ask(next(iter(expected)))
    answered = time.monotonic() - asked
    await asyncio.gather(*(reader.read() for reader, _ in streams))
    closed = time.monotonic() - begun
    for _, writer in streams:
        writer.close()
    return [round(closed, 2), round(answered, 2)]


async def stopped(server: Server, expected: dict[str, str]) -> Seen:
    """SIGTERM while clients ask: what is in work is answered, what comes later gets a 503."""
    load = asyncio.create_task(crowd(server, expected, 50, 40))
    await asyncio.sleep(1)
    server.process.send_signal(signal.SIGTERM)
    return await load


if __name__ == "__main__":
    sys.exit(main())
