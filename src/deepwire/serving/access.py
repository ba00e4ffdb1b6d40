"""Who may use a server: its token, and from where it can be reached."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from hashlib import sha256
from pathlib import Path

from deepwire.errors import UsageError

_SHORTEST = 16


class Token:
    """The secret that clients send as `Authorization: Bearer SECRET`; only its digest is kept."""

    def __init__(self, secret: str) -> None:
        self._digest = sha256(secret.encode()).digest()

    def admits(self, header: bytes | None) -> bool:
        """Whether the value of an `Authorization` header holds the secret; always as fast."""
        scheme, _, given = (header or b"").partition(b" ")
        right = hmac.compare_digest(sha256(given.strip()).digest(), self._digest)
        return right and scheme.lower() == b"bearer"


def read_token(path: Path) -> Token:
    """The token in a file, which holds nothing else.

    Raises:
        UsageError: The file holds none, or one that is easily guessed or cannot be sent.
    """
    try:
        secret = path.read_text(encoding="ascii").strip()
    except IsADirectoryError:
        raise UsageError(f"{path}: is a directory, not a file with a token") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a token: only ASCII can be sent in a header") from None
    if len(secret) < _SHORTEST or any(not "!" <= letter <= "~" for letter in secret):
        raise UsageError(
            f"{path}: not a token: {_SHORTEST} or more letters, digits and signs on one line",
            "make one with: head -c 24 /dev/urandom | base64",
        )
    return Token(secret)


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
            f"{host}:{port}: {error.strerror or error}", "choose another --port, or 0 for any that is free"
        ) from None
    return bound


def require_safe(bound: socket.socket, *, token: bool, insecure: bool) -> None:
    """See that strangers cannot use the server without a token, unless that is wanted.

    Raises:
        UsageError: They could.
    """
    host = str(bound.getsockname()[0])
    if token or insecure or ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        return
    raise UsageError(
        f"{host} can be reached from other machines, and there is no token",
        "add --token-file FILE; or --insecure, where something else keeps strangers out",
    )


def url(bound: socket.socket) -> str:
    """Where the server is."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
