"""``deepwire serve``: a model behind HTTP, with a web page."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.cli.decoding_options import (
    BatchTokens,
    Beam,
    Device,
    Groups,
    LengthPenalty,
    Models,
    Precision,
    Threads,
    specified,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from deepwire.serving.access import Hosts, Token
    from deepwire.serving.request import Limits
    from deepwire.serving.server import Server
    from deepwire.serving.service import Service

Host = Annotated[str, typer.Option(help="Address to listen at; others than this machine's own need a token.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 = any that is free.")]
TokenFile = Annotated[
    Path | None, typer.Option(help="File with the token that clients send as Authorization: Bearer TOKEN.")
]
HostName = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Name by which clients reach the server, besides localhost: without a token at 127.0.0.1 it "
        "answers to no other; repeatable.",
    ),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Serve other machines without a token: everybody can translate.")
]
Limit = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=NUMBER",
        help="Change a limit: texts=32, characters=2000, queue=512, request_seconds=20 ...; repeatable.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No line for each request on stderr.")]

_NEEDED = ("starlette", "uvicorn", "prometheus_client")


def serve(
    models: Models,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    token_file: TokenFile = None,
    host_name: HostName = None,
    insecure: Insecure = False,
    limit: Limit = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    groups: Groups = None,
    batch_tokens: BatchTokens = None,
    precision: Precision = "auto",
    device: Device = "auto",
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Translate for many clients over HTTP: a page at /, JSON at /translate; SIGTERM ends it in good order.

    deepwire serve runs/demo

    curl -H 'Content-Type: application/json' -d '{"text": "Ein Hund."}' localhost:8080/translate

    deepwire serve runs/demo --host 0.0.0.0 --token-file token --precision int8
    """
    _require_packages()
    limits = _limits(limit or [])
    settings = specified(beam=beam, length_penalty=length_penalty, groups=groups, batch_tokens=batch_tokens)

    import sys

    from deepwire.cli.line_by_line import warn
    from deepwire.ops.allocator import share_memory
    from deepwire.ops.process import configure_process
    from deepwire.serving.access import bind, read_hosts, read_token, require_safe, url
    from deepwire.serving.prometheus_metrics import Metrics
    from deepwire.serving.served_model import load_served_model
    from deepwire.serving.service import Service

    token = None if token_file is None else read_token(token_file, warn)
    hosts = read_hosts(host_name or [], host)
    with bind(host, port) as bound:
        require_safe(bound, token=token is not None, insecure=insecure)
        share_memory()
        configure_process(threads=threads, flush_denormals=False)
        served_model = load_served_model(models, device, precision, settings=settings, warn=warn)
        _log_to_stderr(quiet)
        service = Service(served_model, limits, Metrics())
        server = _server(service, token, hosts, bound, named=bool(host_name))
        line = f"serving {served_model.name} at {url(bound)}"
        server.serve_on(bound, begun=lambda: print(line, file=sys.stderr, flush=True))
    _leave(server, service)


def _leave(server: Server, service: Service) -> None:
    """End as the signal that stopped the server asks for."""
    import os
    import signal
    import sys

    from deepwire.cli.main import INTERRUPTED

    interrupted = server.stopped_by is signal.SIGINT
    if service.batcher.alive:  # what it still translates is for nobody, and no reason to stay
        sys.stderr.flush()
        os._exit(INTERRUPTED if interrupted else 0)
    if interrupted:
        raise KeyboardInterrupt


def _server(
    service: Service, token: Token | None, hosts: Hosts, bound: socket.socket, *, named: bool
) -> Server:
    """The server; it looks at the name that a request is sent to where names were given, or where nothing but
    the address keeps strangers out: a page of theirs may have a name that leads here."""
    from deepwire.serving.access import is_loopback
    from deepwire.serving.server import RequestMiddleware, Server

    checked = named or (token is None and is_loopback(bound))
    return Server(RequestMiddleware(service, token, hosts if checked else None), service)


def _require_packages() -> None:
    """See that the packages of the extra `serve` are installed.

    Raises:
        UsageError: One is not.
    """
    from deepwire.errors import UsageError

    missing = [name.replace("_", "-") for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise UsageError(f"{', '.join(missing)} is not installed", "pip install 'deepwire[serve]'")


def _limits(changes: Sequence[str]) -> Limits:
    """The limits with these changes.

    Raises:
        UsageError: There is no such limit, or its value is impossible.
    """
    from deepwire.config.settings_reader import from_mapping
    from deepwire.errors import UsageError
    from deepwire.serving.request import Limits

    values: dict[str, object] = {}
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals:
            raise UsageError(f"--limit {change}: must be NAME=NUMBER", "for example --limit texts=32")
        try:
            values[name.strip()] = float(value) if "." in value else int(value)
        except ValueError:
            raise UsageError(f"--limit {change}: {value!r} is no number") from None
    return from_mapping(Limits, values, "--limit")


def _log_to_stderr(quiet: bool) -> None:
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for name, level in (
        ("deepwire", logging.WARNING if quiet else logging.INFO),
        ("uvicorn", logging.ERROR),
        ("asyncio", logging.ERROR),
    ):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(level)
