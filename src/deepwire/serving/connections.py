"""Open connections by client, and which of them are closed where there are too many."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol, TypeVar

from deepwire.serving.limits import Limits

_NETWORK = 64  # bits of an IPv6 address that name a customer; the rest is free to choose
GRACE = 0.5
"""Seconds that a connection has for its request before it can be closed for another."""


class Closable(Protocol):
    """A connection."""

    def close(self) -> None:
        """End it."""


@lru_cache(maxsize=4096)
def client_of(address: str) -> str:
    """Who is behind an address: for IPv4 the address, for IPv6 its network of 64 bits."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found), _NETWORK), strict=False))


class Connections:
    """The connections of a server.

    Where a client has too many, or all together, the one that has waited longest for a request is closed: of
    the client, or of the client that has most. A connection that has work is never closed for another, nor
    one that may have sent a request which is not read yet. `now` is always in seconds.
    """

    def __init__(self, limits: Limits) -> None:
        self._most, self._most_of_client = limits.connections, limits.client_connections
        self._clients: dict[str, dict[Closable, None]] = {}
        self._waiting: dict[str, dict[Closable, float]] = {}  # since when, the longest first
        self._count = 0

    def admit(self, one: Closable, client: str, now: float) -> bool:
        """Take a new connection, if there is room or some can be made."""
        if len(self._clients.get(client, ())) >= self._most_of_client:
            made = self._close_one_of([client], now)
        elif self._count >= self._most:
            most_first = sorted(self._waiting, key=lambda name: len(self._clients[name]), reverse=True)
            made = self._close_one_of(most_first, now)
        else:
            made = True
        if made:
            self._clients.setdefault(client, {})[one] = None
            self._count += 1
        return made

    @property
    def busy(self) -> int:
        """How many have work."""
        return self._count - sum(map(len, self._waiting.values()))

    def waits(self, one: Closable, client: str, waits: bool, now: float) -> None:
        """Note whether a connection waits for a request, from now on; of one that was not taken, nothing."""
        if waits and one in self._clients.get(client, ()):
            self._waiting.setdefault(client, {}).setdefault(one, now)
        else:
            _remove(self._waiting, client, one)

    def forget(self, one: Closable, client: str) -> None:
        """It has ended."""
        _remove(self._waiting, client, one)
        if _remove(self._clients, client, one):
            self._count -= 1

    def _close_one_of(self, clients: Sequence[str], now: float) -> bool:
        """Close one of the first of the clients that has one to close."""
        for client in clients:
            for oldest, since in self._waiting.get(client, {}).items():
                if now - since < GRACE:
                    break
                self.forget(oldest, client)
                oldest.close()
                return True
        return False


_Value = TypeVar("_Value")


def _remove(owners: dict[str, dict[Closable, _Value]], client: str, one: Closable) -> bool:
    found = owners.get(client, {})
    if one not in found:
        return False
    del found[one]
    if not found:
        del owners[client]
    return True
