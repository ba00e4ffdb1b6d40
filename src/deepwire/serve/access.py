"""Who may use a server: its token, and from where it can be reached."""

from __future__ import annotations

import errno
import hmac
import ipaddress
import os
import re
import socket
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from deepwire.errors import UsageError

_SHORTEST = 16


class Token:
    """The secret, or one of several, that clients send as `Authorization: Bearer SECRET`.

    Only their digests are kept.
    """

    def __init__(self, *secrets: str) -> None:
        self._digests = [sha256(secret.encode()).digest() for secret in secrets]

    def admits(self, header: bytes | None) -> bool:
        """Whether the value of an `Authorization` header holds a secret; always as fast."""
        scheme, _, given = (header or b"").partition(b" ")
        return self.admits_secret(given.strip()) and scheme.lower() == b"bearer"

    def admits_secret(self, given: bytes) -> bool:
        """Whether this is a secret; all are looked at, so that the time says nothing."""
        digest = sha256(given).digest()
        return sum(hmac.compare_digest(digest, secret_digest) for secret_digest in self._digests) > 0

    def or_any(self, secrets: Collection[str]) -> Token:
        """A token that also admits other secrets."""
        both = Token(*secrets)
        both._digests += self._digests
        return both


def read_token(path: Path, warn: Callable[[str], object]) -> Token:
    """The token in a file, which holds nothing else; warns where every user of the machine can read it.

    Raises:
        UsageError: The file holds none, or one that is easily guessed or cannot be sent.
    """
    try:
        with path.open(encoding="ascii") as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read().strip()
    except IsADirectoryError:
        raise UsageError(f"{path}: is a directory, not a file with a token") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a token: only ASCII can be sent in a header") from None
    if len(secret) < _SHORTEST or any(not "!" <= letter <= "~" for letter in secret):
        raise UsageError(
            f"{path}: not a token: {_SHORTEST} or more letters, digits and signs on one line",
            "make one with: head -c 24 /dev/urandom | base64",
        )
    if mode & stat.S_IROTH:
        warn(f"{path}: every user of this machine can read the token: chmod 600 {path}")
    return Token(secret)


class Hosts:
    """The names that a server answers to.

    A page of a stranger can have its own name lead to 127.0.0.1, and then it is of the same origin as the
    server for the browser (DNS rebinding). What it cannot do is to send another `Host` than its name.

    Args:
        names: Names or addresses besides those of the loopback interface, without a port.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = frozenset(_plain_name(name) for name in names)

    def admit(self, header: bytes | None) -> bool:
        """Whether the value of a `Host` header is one of the names; no browser leaves it out."""
        if header is None:
            return True
        name = _plain_name(_PORT.sub("", header.decode("latin-1").strip()))
        return name in self._names or name == "localhost" or name.endswith(".localhost") or _is_loopback(name)


_PORT = re.compile(r":[0-9]*$")
_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9_-]*[a-z0-9])?)*")


def read_hosts(names: Sequence[str], listening: str) -> Hosts:
    """The names that users have given to a server, the one that it listens at among them.

    Raises:
        UsageError: One is no name, such as one with a port or the address of a page.
    """
    for name in names:
        if not _NAME.fullmatch(_plain_name(name)) and _address(_plain_name(name)) is None:
            raise UsageError(
                f"--host-name {name}: must be a name such as mt.example.org, without http:// or port"
            )
    return Hosts([*names, listening])


_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:]+\])(:[0-9]+)?|null|\*")
# Browsers leave these out.
_USUAL_PORT = re.compile(r"http:.*:80|https:.*:443")


def check_origins(origins: Sequence[str]) -> None:
    """Checks that each is what a browser sends as `Origin`, or `*`: another one would never be admitted.

    Raises:
        UsageError: One is not, such as a name without `https://` or with a path, or others stand beside `*`.
    """
    for origin in origins:
        if origin == "*" and len(origins) > 1:
            raise UsageError("--cors * admits all pages", "leave out the others, or *")
        if not _ORIGIN.fullmatch(origin) or _USUAL_PORT.fullmatch(origin):
            raise UsageError(
                f"--cors {origin}: must be as browsers say it, such as https://example.org or "
                "http://localhost:3000: small letters, no path, and no port where it is the usual one"
            )


def is_of_stranger(headers: Mapping[bytes, bytes], origins: Collection[str]) -> bool:
    """Whether a page of another server sends a request, other than one of `origins` (`*` = of all).

    Browsers say where a request comes from, and pages cannot change it; other programs say nothing. To an
    address without encryption browsers send `Origin` alone.
    """
    origin, site = headers.get(b"origin", b""), headers.get(b"sec-fetch-site")
    if "*" in origins or origin.decode("latin-1") in origins:
        return False
    if site is not None:
        return site not in (b"same-origin", b"none")
    return bool(origin) and origin.partition(b"://")[2] != headers.get(b"host")


def _plain_name(name: str) -> str:
    return name.lower().removesuffix(".").removeprefix("[").removesuffix("]")


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _is_loopback(name: str) -> bool:
    address = _address(name)
    return address is not None and address.is_loopback


def bind(host: str, port: int) -> socket.socket:
    """A socket at the address, which nobody can reach yet: that begins with `listen`.

    Raises:
        UsageError: There is no such address here, or another program has the port.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{host}: no such address: {error}", "use --host 127.0.0.1") from None
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise UsageError(
                f"--host {host}: is no address of this machine",
                "use 127.0.0.1, or 0.0.0.0 for all of them",
            ) from None
        raise UsageError(
            f"{host}:{port}: {error.strerror or error}", "choose another --port, or 0 for any that is free"
        ) from None
    return bound


def is_loopback(bound: socket.socket) -> bool:
    """Whether only programs of this machine can connect."""
    return _is_loopback(str(bound.getsockname()[0]).partition("%")[0])


def require_safe(bound: socket.socket, *, token: bool, insecure: bool) -> None:
    """Checks that strangers cannot use the server without a token, unless that is wanted.

    Raises:
        UsageError: They could, or both are wanted.
    """
    if token and insecure:
        raise UsageError("--insecure serves without a token, and there is one", "leave out one of them")
    if token or insecure or is_loopback(bound):
        return
    raise UsageError(
        f"{bound.getsockname()[0]} can be reached from other machines, and there is no token",
        "add --token-file FILE; or --insecure, where something else keeps strangers out",
    )


def url(bound: socket.socket) -> str:
    """Where the server is."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
