"""``deepwire serve``: a model behind HTTP, with a web page."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Self

import typer

from deepwire.cli.decoding_options import (
    BatchTokens,
    Beam,
    Casing,
    Device,
    Groups,
    Guards,
    LengthPenalty,
    Models,
    OtherSettings,
    Placeholders,
    Precision,
    Rounds,
    Terms,
    TermSearch,
    Threads,
    search_settings,
    specified,
    term_settings,
    with_others,
)
from deepwire.errors import UsageError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Sequence

    from deepwire.serve.access import Hosts, Token
    from deepwire.serve.model_pool import ModelPool
    from deepwire.serve.request import Limits
    from deepwire.serve.routes import Site
    from deepwire.serve.server import Server
    from deepwire.serve.service import Service

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
Api = Annotated[
    Literal["deepwire", "libretranslate"],
    typer.Option(
        "--api",
        help="Interface: deepwire's own, or that of LibreTranslate (ours is then under /deepwire).",
    ),
]
ApiKeysFile = Annotated[
    Path | None,
    typer.Option("--api-keys", help="LibreTranslate: file with a key a line, which clients send as api_key."),
]
ApiKeyUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="LibreTranslate: where clients are told to get a key.")
]
NoFiles = Annotated[bool, typer.Option("--no-files", help="Translate no documents.")]
NoCosmetics = Annotated[
    bool,
    typer.Option(
        "--no-cosmetics",
        help="LibreTranslate: leave case and final punctuation as the model writes them.",
    ),
]
UrlPrefix = Annotated[str, typer.Option(metavar="PATH", help="Answer under this path too, for example /mt.")]
Cors = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ORIGIN",
        help="Let pages of https://example.org use the server from browsers; * = of all; repeatable.",
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Of several models, keep so much in memory (stored weights, such as 4G), load others on demand.",
    ),
]
Pivot = Annotated[
    str | None,
    typer.Option(
        metavar="LANGUAGE",
        help="Only common language through which directions without a model are translated; default: any, "
        "preferably en.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No line for each request on stderr.")]

_NEEDED = ("starlette", "uvicorn", "prometheus_client", "python_multipart", "sentencex")


def serve(
    models: Models,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    token_file: TokenFile = None,
    host_name: HostName = None,
    insecure: Insecure = False,
    limit: Limit = None,
    api: Api = "deepwire",
    api_keys: ApiKeysFile = None,
    api_key_url: ApiKeyUrl = None,
    no_files: NoFiles = False,
    no_cosmetics: NoCosmetics = False,
    url_prefix: UrlPrefix = "",
    cors: Cors = None,
    memory: Memory = None,
    pivot: Pivot = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    groups: Groups = None,
    rounds: Rounds = None,
    batch_tokens: BatchTokens = None,
    set_: OtherSettings = None,
    terms: Terms = None,
    term_search: TermSearch = None,
    placeholders: Placeholders = False,
    guards: Guards = False,
    casing: Casing = False,
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
    libretranslate = _Libretranslate(api_keys, api_key_url, no_cosmetics).checked(api)
    _require_packages(_NEEDED)
    limits, prefix, room = _limits(limit or []), _prefix(url_prefix), _bytes(memory)
    settings = search_settings(beam, length_penalty, groups, rounds, batch_tokens)
    settings |= specified(placeholders=placeholders, guards=guards, casing=casing)
    settings |= term_settings(terms, term_search)
    settings = with_others(settings, set_, n_best=True, terms=terms is not None, alignment=True, window=False)

    from deepwire.cli.line_by_line import warn
    from deepwire.serve.access import bind, check_origins, read_hosts, read_token, require_safe
    from deepwire.serve.model_pool import load_pool

    check_origins(cors or [])
    token = None if token_file is None else read_token(token_file, warn)
    keys = libretranslate.keys()
    access = AccessOptions(
        token, keys, read_hosts(host_name or [], host), bool(host_name), cors or [], prefix
    )
    with bind(host, port) as bound, _log_to_stderr(quiet):
        require_safe(bound, token=token is not None or bool(keys), insecure=insecure)
        _prepare_process(threads)
        pool = load_pool(
            models, device, precision, settings=settings, warn=warn, memory=room, pivot=pivot, terms=terms
        )
        site = partial(libretranslate.site, access=access) if api == "libretranslate" else _own_site
        _serve(pool, limits, partial(site, files=not no_files), access, bound)


def _prepare_process(threads: int | None) -> None:
    """Set memory and threads of the server's process."""
    from deepwire.ops.allocator import share_memory
    from deepwire.ops.process import configure_process

    share_memory()
    configure_process(threads=threads, flush_denormals=False)


def _serve(
    pool: ModelPool,
    limits: Limits,
    site: Callable[[Service], Site],
    access: AccessOptions,
    bound: socket.socket,
) -> None:
    """Serve until a signal comes, and end the process as it wants it."""
    import os
    import signal

    from deepwire.cli.main import INTERRUPTED
    from deepwire.serve.access import url
    from deepwire.serve.prometheus_metrics import Metrics
    from deepwire.serve.service import Service

    service = Service(pool, limits, Metrics())
    server = _server(service, site(service), access, bound)
    line = f"serving {pool.name} at {url(bound)}{access.prefix}"
    server.serve_on(bound, begun=lambda: print(line, file=sys.stderr, flush=True))
    interrupted = server.stopped_by is signal.SIGINT
    if service.batcher.alive:  # what it still translates is for nobody, and no reason to stay
        sys.stderr.flush()
        os._exit(INTERRUPTED if interrupted else 0)
    if interrupted:
        raise KeyboardInterrupt


class _Libretranslate(NamedTuple):
    """The options of the interface of LibreTranslate."""

    api_keys: Path | None
    api_key_url: str | None
    no_cosmetics: bool

    def checked(self, api: str) -> Self:
        """These options, if they have an effect.

        Raises:
            UsageError: They have not.
        """
        names = ("--api-keys", "--api-key-url", "--no-cosmetics")
        given = next((name for name, value in zip(names, self, strict=True) if value), "")
        if given and api != "libretranslate":
            raise UsageError(f"{given} has an effect only with --api libretranslate")
        if self.api_key_url and self.api_keys is None:
            raise UsageError("--api-key-url says where to get a key, and there are none", "add --api-keys")
        return self

    def keys(self) -> list[str]:
        """The keys of clients."""
        from deepwire.serve.libretranslate.fields import read_keys

        return [] if self.api_keys is None else read_keys(self.api_keys)

    def site(self, service: Service, access: AccessOptions, *, files: bool) -> Site:
        """The addresses."""
        from deepwire.serve.libretranslate.fields import ApiKeys
        from deepwire.serve.libretranslate.interface import Choices, libretranslate_site

        needed = ApiKeys(access.keys, self.api_key_url or "", access.token)
        choices = Choices(needed, not self.no_cosmetics, files, access.prefix)
        return libretranslate_site(service, choices)


class AccessOptions(NamedTuple):
    """Who may come in.

    Attributes:
        token: What clients must send; to LibreTranslate's interface it is a key too.
        keys: Of LibreTranslate's interface; each is also a token.
        hosts: Names of the server.
        named: Whether any was given.
        origins: Whose pages may use it.
        prefix: A beginning of paths.
    """

    token: Token | None
    keys: Sequence[str]
    hosts: Hosts
    named: bool
    origins: Sequence[str]
    prefix: str


def _own_site(service: Service, *, files: bool) -> Site:
    """The addresses of deepwire's own interface."""
    from deepwire.serve.routes import own_site

    return own_site(service, files=files)


def _server(service: Service, site: Site, access: AccessOptions, bound: socket.socket) -> Server:
    """The server; it looks at the name that a request is sent to where names were given, or where nothing but
    the address keeps strangers out: a page of theirs may have a name that leads here."""
    from deepwire.serve.access import is_loopback
    from deepwire.serve.server import RequestMiddleware, Server

    site = site.for_pages_of(access.origins) if access.origins else site
    token = access.token
    if access.keys:
        from deepwire.serve.access import Token

        token = Token(*access.keys) if token is None else token.or_any(access.keys)
    checked = access.named or (token is None and is_loopback(bound))
    guard = RequestMiddleware(service, token, access.hosts if checked else None, site, access.prefix)
    return Server(guard, service)


def _require_packages(needed: Sequence[str]) -> None:
    """Check that the packages of the extra `serve` are installed.

    Raises:
        UsageError: One is not.
    """
    missing = [name.replace("_", "-") for name in needed if find_spec(name) is None]
    if missing:
        raise UsageError(f"{', '.join(missing)} is not installed", "pip install 'deepwire[serve]'")


def _prefix(path: str) -> str:
    """A beginning of paths, `/mt` of `mt/`.

    Raises:
        UsageError: It cannot be one.
    """
    plain = path.strip("/")
    resolved = {".", ".."} & set(plain.split("/"))  # by clients, before they ask
    if resolved or not re.fullmatch(r"([A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*)?", plain):
        raise UsageError(f"--url-prefix {path}: must be a path such as /mt, without . or ..")
    return f"/{plain}" if plain else ""


def _bytes(size: str | None) -> int | None:
    """The number of bytes of `500M` or `4G`.

    Raises:
        UsageError: It is no size.
    """
    from deepwire.config.counts import parse_bytes

    if size is None:
        return None
    try:
        return parse_bytes(size)
    except ValueError as error:
        raise UsageError(f"--memory {size}: {error}") from None


def _limits(changes: Sequence[str]) -> Limits:
    """The limits with these changes.

    Raises:
        UsageError: There is no such limit, its value is impossible, or it is given twice.
    """
    from deepwire.config.settings_reader import from_mapping
    from deepwire.serve.request import Limits

    values: dict[str, object] = {}
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals:
            raise UsageError(f"--limit {change}: must be NAME=NUMBER", "for example --limit texts=32")
        if (name := name.strip()) in values:
            raise UsageError(f"--limit {change}: {name} is given twice", "leave out one of them")
        try:
            values[name] = float(value) if "." in value else int(value)
        except ValueError:
            raise UsageError(f"--limit {change}: {value!r} is no number") from None
    return from_mapping(Limits, values, "--limit")


@contextmanager
def _log_to_stderr(quiet: bool) -> Iterator[None]:
    """A log for as long as it serves; afterwards standard error may be another file, or closed."""
    import logging

    from deepwire.cli.line_by_line import HarmlessFormatter

    handler = logging.StreamHandler()
    handler.setFormatter(HarmlessFormatter("%(asctime)s %(levelname)s %(message)s"))
    levels = {
        "deepwire": logging.WARNING if quiet else logging.INFO,
        "uvicorn": logging.ERROR,
        "asyncio": logging.ERROR,
    }
    loggers = {logging.getLogger(name): level for name, level in levels.items()}
    before = {logger: logger.level for logger in loggers}
    for logger, level in loggers.items():
        logger.addHandler(handler)
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, level in before.items():
            logger.removeHandler(handler)
            logger.setLevel(level)
