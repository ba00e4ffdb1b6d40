"""Chromium that a test types and clicks in, over the pipe that it offers for that."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

_SECONDS = 120


class Browser:
    """A page in a browser without a window; ends with the `with` block.

    Attributes:
        said: What the browser has written to its console, warnings about refused content included.
    """

    def __init__(self, command: Sequence[str]) -> None:
        (theirs, self._to), (self._from, answers) = os.pipe(), os.pipe()
        # Chromium reads file 3 and writes file 4; these must not be among the numbers that are moved there.
        high = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 20) for file in (theirs, answers)]
        moves: list[tuple[Any, ...]] = [
            (os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)
        ]
        moves += [(os.POSIX_SPAWN_DUP2, file, number) for file, number in zip(high, (3, 4), strict=True)]
        arguments = [*command, "--remote-debugging-pipe", "about:blank"]
        self._process = os.posix_spawn(command[0], arguments, os.environ, file_actions=moves, setpgroup=0)
        for file in (theirs, answers, *high):
            os.close(file)
        self._buffer, self._number, self._session = b"", 0, ""
        self.said: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._to)
        os.close(self._from)

    def open(self, address: str) -> None:
        """Go to a page and wait until it is loaded."""
        self._ask("Page.navigate", url=address)
        self.wait(f"location.href === {json.dumps(address)} && document.readyState === 'complete'")

    def value(self, script: str) -> object:
        """What JavaScript gives in the page."""
        found = self._ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script: str, seconds: float = 60) -> None:
        """Wait until it is true in the page."""
        latest = time.monotonic() + seconds
        while not self.value(script):
            assert time.monotonic() < latest, (script, self.said, self.value("document.body.innerText"))
            time.sleep(0.02)

    def type(self, text: str) -> None:
        """Put in text where the cursor is."""
        self._ask("Input.insertText", text=text)

    def key(self, name: str, code: int, modifiers: int = 0) -> None:
        """Press a key: its name and number; 2 = with Ctrl."""
        text = {"text": "\r"} if name == "Enter" else {}
        about = {"key": name, "code": name, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self._ask("Input.dispatchKeyEvent", type="keyDown", **about, **text)
        self._ask("Input.dispatchKeyEvent", type="keyUp", **about)

    def look(self, *, dark: bool, width: int, height: int) -> None:
        """Show pages in this size and colour scheme."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._ask("Emulation.setEmulatedMedia", features=scheme)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **size)

    def _ask(self, method: str, **parameters: object) -> Mapping:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]
            if found.get("method") in (
                "Runtime.consoleAPICalled",
                "Runtime.exceptionThrown",
                "Log.entryAdded",
            ):
                self.said.append(json.dumps(found["params"]))

    def _next(self) -> Mapping:
        while b"\0" not in self._buffer:
            assert select.select([self._from], [], [], _SECONDS)[0], "the browser does not answer"
            part = os.read(self._from, 1 << 16)
            assert part, "the browser has ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)
