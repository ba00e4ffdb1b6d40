"""Who may use a server: its token, and from where it can be reached."""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from deepwire.errors import UsageError

_SHORTEST = 16
_PORT = re.compile(r":[0-9]*$")


class Token:
    """The secrets that clients send as `Authorization: Bearer SECRET`; only their digests are kept."""

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


def read_token(path: Path) -> Token:
    """The token in a file, or several, one a line; what stands behind a space is a note, and so is `# ...`.

    Raises:
        UsageError: The file holds none, or one that is easily guessed or cannot be sent.
    """
    try:
        lines = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a token: only ASCII can be sent in a header") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}") from None
    secrets = [words[0] for words in lines if words and not words[0].startswith("#")]
    if not secrets or min(map(len, secrets)) < _SHORTEST:
        raise UsageError(
            f"{path}: not a token: {_SHORTEST} or more letters, digits and signs",
            "make one with: head -c 24 /dev/urandom | base64",
        )
    return Token(*secrets)


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


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


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
        raise UsageError(
            f"{host}:{port}: {error.strerror or error}", "choose another --host or --port, or 0 for any port"
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
