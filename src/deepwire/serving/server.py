"""A server from its first connection to its last answer."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType

import uvicorn

from deepwire.serving.middleware import RequestMiddleware
from deepwire.serving.protocol import ServerConfig
from deepwire.serving.service import Service

# Files of a process that are no connections: libraries, the model, standard streams.
_OTHER_FILES = 256

log = logging.getLogger("deepwire.serving")


class Server(uvicorn.Server):
    """Answers requests until it is told to stop; then it answers what it has taken and refuses the rest.

    Attributes:
        stopped_by: The signal that ended it; None while there was none.
    """

    def __init__(self, guard: RequestMiddleware, service: Service) -> None:
        super().__init__(ServerConfig(guard, service.limits))
        self.stopped_by: signal.Signals | None = None
        self._service = service
        self._latest = 0.0
        self._begun: Callable[[], object] = lambda: None
        service.metrics.watch(lambda: service.batcher.texts, lambda: len(self.server_state.connections))

    def serve_on(self, bound: socket.socket, begun: Callable[[], object] = lambda: None) -> None:
        """Serve on a socket until a signal comes (SIGTERM or SIGINT; the second one ends it at once).

        `begun` is called when it answers requests and signals.
        """
        self._begun = begun
        _allow_files(self._service.limits.connections + _OTHER_FILES)
        self._service.start()
        try:
            asyncio.run(self.serve(sockets=[bound]))
        finally:
            self._service.close(max(0.0, self._latest - time.monotonic()))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen; signals are heard by now."""
        await super().startup(sockets=sockets)
        self._begun()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as uvicorn's
        """A signal has come."""
        self.stop(signal.Signals(sig))

    def stop(self, by: signal.Signals) -> None:
        """Take no more requests, and end when those in work are answered or the time for it is over."""
        if self.stopped_by is not None:
            self._latest = 0.0
            self.should_exit = self.force_exit = True
            return
        self.stopped_by = by
        self._latest = time.monotonic() + self._service.limits.drain_seconds
        self._service.work.stopping = True
        log.info("stopping: %d requests in work", self._service.work.requests)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether to end."""
        if await super().on_tick(counter):
            return True
        done = not self._service.work.requests or time.monotonic() >= self._latest
        return self.stopped_by is not None and done


def _allow_files(count: int) -> None:
    """Let this process have so many open files, as far as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
