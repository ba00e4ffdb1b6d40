"""Counters of a server in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The counters of one server; nothing in them depends on what a text says."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        at = self._registry
        self.requests = Counter(
            "deepwire_requests", "Answered requests by path and HTTP status.", ["path", "status"], registry=at
        )
        self.seconds = Histogram(
            "deepwire_request_seconds", "From headers to answer.", ["path"], buckets=_SECONDS, registry=at
        )
        self.texts = Counter("deepwire_texts", "Texts translated; empty ones not counted.", registry=at)
        self.tokens = Counter("deepwire_tokens", "Subwords read and written.", ["side"], registry=at)
        self.batch_texts = Histogram(
            "deepwire_batch_texts", "Texts given to the model together.", buckets=_TEXTS, registry=at
        )
        self.batch_seconds = Histogram(
            "deepwire_batch_seconds", "Time that the model took for them.", buckets=_SECONDS, registry=at
        )
        self.cancelled = Counter(
            "deepwire_cancelled",
            "Requests dropped because the client went away or the time was over.",
            registry=at,
        )
        self.failed = Counter("deepwire_failed_texts", "Texts that the model failed on.", registry=at)
        self._queue = Gauge("deepwire_queue_texts", "Texts that wait or are in work.", registry=at)
        self._connections = Gauge("deepwire_connections", "Open connections.", registry=at)
        ProcessCollector(registry=self._registry)

    def watch(self, queue: Callable[[], int], connections: Callable[[], int]) -> None:
        """Ask these for their numbers whenever somebody looks."""
        self._queue.set_function(queue)
        self._connections.set_function(connections)

    def page(self) -> bytes:
        """All of them as text."""
        return generate_latest(self._registry)
