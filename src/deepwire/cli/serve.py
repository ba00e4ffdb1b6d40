"""``deepwire serve``: a model behind HTTP, with a web page."""

from __future__ import annotations

import logging
import os
import signal
import sys
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from deepwire.cli import options as opt
from deepwire.cli.line_by_line import HarmlessFormatter, warn
from deepwire.cli.settings import with_settings
from deepwire.config.settings_reader import read_overrides
from deepwire.errors import UsageError
from deepwire.serve.access import Hosts, bind, is_loopback, read_token, require_safe, url

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from deepwire.serve.server import RequestMiddleware
    from deepwire.serve.service import Service

Host = Annotated[str, typer.Option(help="Address to listen on; one that others can reach needs a token.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 = any free one.")]
TokenFile = Annotated[
    Path | None, typer.Option(help="File with the clients' tokens (Bearer or api_key), one a line.")
]
HostName = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Host name to accept, besides localhost; repeatable.")
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Serve other machines without a token.")]
Limit = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=NUMBER",
        help="A limit, such as texts=32, characters=2000, request_seconds=20; repeatable.",
    ),
]
Api = Annotated[
    Literal["deepwire", "libretranslate"],
    typer.Option("--api", help="Interface; with libretranslate, deepwire's is under /deepwire."),
]
NoFiles = Annotated[bool, typer.Option("--no-files", help="Refuse documents.")]
Cors = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ORIGIN", help="Admit web pages of this origin (https://example.org; * = all); repeatable."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Log only failed requests on stderr.")]

_NEEDED = ("starlette", "uvicorn", "prometheus_client", "python_multipart", "sentencex")


@with_settings("beam", "length_penalty", "term_search", "guards", "placeholders")
def serve(
    models: opt.Models,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    token_file: TokenFile = None,
    host_name: HostName = None,
    insecure: Insecure = False,
    limit: Limit = None,
    api: Api = "deepwire",
    no_files: NoFiles = False,
    cors: Cors = None,
    *,
    settings: opt.Settings,
    terms: opt.Terms = None,
    precision: opt.Precision = "auto",
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    quiet: Quiet = False,
) -> None:
    """Serve a model over HTTP: a web page at /, JSON at /translate.

    Models of different directions are served together. SIGTERM shuts the server down when all requests are
    answered.

    deepwire serve runs/demo

    curl -H 'Content-Type: application/json' -d '{"text": "Ein Hund."}' localhost:8080/translate

    deepwire serve runs/demo --host 0.0.0.0 --token-file token --precision int8
    """
    if missing := [name.replace("_", "-") for name in _NEEDED if find_spec(name) is None]:
        raise UsageError(f"{', '.join(missing)} is not installed", "pip install 'deepwire[serve]'")

    from deepwire.ops.allocator import share_memory
    from deepwire.ops.process import configure_process
    from deepwire.serve.libretranslate import libretranslate_site
    from deepwire.serve.model_pool import load_pool
    from deepwire.serve.request import Limits
    from deepwire.serve.routes import own_site
    from deepwire.serve.server import RequestMiddleware
    from deepwire.serve.service import Service

    changes = read_overrides(Limits, limit or [], place="--limit", example="texts=32")
    limits = Limits.model_validate(changes)
    token = None if token_file is None else read_token(token_file)
    with bind(host, port) as bound, _log_to_stderr(quiet):
        require_safe(bound, token=token is not None, insecure=insecure)
        share_memory()
        configure_process(threads=threads, flush_denormals=False)
        pool = load_pool(models, device, precision, settings=settings, warn=warn, terms=terms)
        service = Service(pool, limits)
        if api == "libretranslate":
            site = libretranslate_site(service, token, files=not no_files)
        else:
            site = own_site(service, files=not no_files)
        site = site.for_pages_of(cors) if cors else site
        # A stranger's page may have a name that leads here, and only the address would keep it out.
        checked = bool(host_name) or (token is None and is_loopback(bound))
        hosts = Hosts([*(host_name or []), host]) if checked else None
        guard = RequestMiddleware(service, token, hosts, site)
        _run(guard, service, bound, f"serving {pool.name} at {url(bound)}")


def _run(guard: RequestMiddleware, service: Service, bound: socket.socket, line: str) -> None:
    """Serve until a signal comes, and end the process as it wants it."""
    from deepwire.cli.main import INTERRUPTED
    from deepwire.serve.server import Server

    server = Server(guard, service)
    server.serve_on(bound, begun=lambda: print(line, file=sys.stderr, flush=True))
    interrupted = server.stopped_by is signal.SIGINT
    if service.batcher.alive:  # what it still translates is for nobody, and no reason to stay
        sys.stderr.flush()
        os._exit(INTERRUPTED if interrupted else 0)
    if interrupted:
        raise KeyboardInterrupt


@contextmanager
def _log_to_stderr(quiet: bool) -> Iterator[None]:
    """Log on stderr, for as long as it serves; afterwards that may be another file, or closed."""
    handler = logging.StreamHandler()
    handler.setFormatter(HarmlessFormatter("%(asctime)s %(levelname)s %(message)s"))
    levels = {
        "deepwire": logging.WARNING if quiet else logging.INFO,
        "uvicorn": logging.ERROR,
        "asyncio": logging.ERROR,
    }
    with ExitStack() as stack:
        for name, level in levels.items():
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
            stack.callback(logger.removeHandler, handler)
            logger.addHandler(handler)
            logger.setLevel(level)
        yield
