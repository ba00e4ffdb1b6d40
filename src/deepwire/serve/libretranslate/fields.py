"""The fields of a request, JSON or a form, and what they ask for, checked in the order that clients know."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl

from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from deepwire.errors import UsageError
from deepwire.serve.access import Token
from deepwire.serve.document_translation import Upload
from deepwire.serve.libretranslate.language_codes import LanguageCodes
from deepwire.serve.request import AUTO, Limits, RequestError, printable
from deepwire.serve.routes import content_type, read_body

_FORMATS = ("text", "html")
_MAX_FIELDS = 100
_SHOWN = 40


def invalid(text: str) -> RequestError:
    """The error for a request that clients have to mend."""
    return RequestError("invalid", f"Invalid request: {text}")


@dataclass
class Fields:
    """The fields of a request.

    Attributes:
        values: By name; those of the address count too, if the body does not have them.
        is_form: Whether it came as a form.
        file: The field `file`, if it is one.
    """

    values: dict[str, object] = field(default_factory=dict)
    is_form: bool = False
    file: Upload | None = None

    def text(self, name: str, default: str | None = None) -> str:
        """A field that is text; an empty one is missing where there is no default.

        Raises:
            RequestError: It is missing, or is something else.
        """
        value = self.values.get(name)
        if value is None or (value == "" and default is None):
            if default is None:
                raise invalid(f"missing {name} parameter")
            return default
        if not isinstance(value, str):
            raise invalid(f"{name} parameter is not a string")
        return value


async def read_fields(request: Request, limits: Limits, most_bytes: int) -> Fields:
    """The fields of a request.

    Raises:
        RequestError: It is neither JSON nor a form, too large, or comes too slowly.
    """
    kind = content_type(request)
    body = await read_body(request, most_bytes, limits.body_seconds)
    fields = Fields(dict(request.query_params))
    if kind == "application/json":
        fields.values |= _json_object(body)
        return fields
    fields.is_form = True
    if kind == "multipart/form-data":
        await _read_multipart(request, body, fields)
    else:
        try:
            fields.values |= dict(
                parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
            )
        except ValueError:
            raise invalid("not a form") from None
    return fields


def _json_object(body: bytes) -> dict[str, object]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError("invalid", "Invalid JSON format") from None
    if not isinstance(parsed, dict):
        raise RequestError("invalid", "Invalid JSON format")
    return parsed


async def _read_multipart(request: Request, body: bytes, fields: Fields) -> None:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    _, options = parse_options_header(request.headers["content-type"])
    if options.get(b"charset", b"utf-8").lower() not in (b"utf-8", b"utf8"):
        raise invalid("not a form in UTF-8")
    try:
        parser = MultiPartParser(
            request.headers, stream(), max_files=1, max_fields=_MAX_FIELDS, max_part_size=len(body) + 1
        )
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError):  # no boundary, or no form within it
        raise invalid("not a form") from None
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            if name == "file":
                fields.file = Upload(value.filename or "", await value.read())
            await value.close()
        else:
            fields.values[name] = value


class ApiKeys:
    """The keys that clients send as `api_key`, or as `Authorization: Bearer KEY`.

    Args:
        keys: All of them.
        contact: Where to get one.
        token: The token of the server, which is a key too. Without it and without keys none is needed.
    """

    def __init__(self, keys: Collection[str] = (), contact: str = "", token: Token | None = None) -> None:
        self.required = bool(keys) or token is not None
        """Whether a key is needed."""
        self._keys = Token(*keys) if token is None else token.or_any(keys)
        self._contact = contact

    def check(self, fields: Fields, header: str | None = None) -> None:
        """Checks that a request has a key, if one is needed.

        Args:
            fields: What was sent.
            header: The value of its `Authorization` header.

        Raises:
            RequestError: It has none, or a wrong one.
        """
        key = fields.values.get("api_key")
        if not self.required or (header and self._keys.admits(header.encode("latin-1"))):
            return
        if not key and not header:
            where = f"Visit {self._contact}" if self._contact else "Please contact the server operator"
            raise RequestError("invalid", f"{where} to get an API key")
        if not key or not self._keys.admits_secret(printable(str(key)).encode()):
            raise RequestError("forbidden", "Invalid API key")


_SHORTEST_KEY = 16


def read_keys(path: Path) -> list[str]:
    """The keys in a file, one a line; what stands behind a space, and lines that begin with #, are notes.

    Raises:
        UsageError: There is none, or one that is easily guessed.
    """
    keys = []
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except IsADirectoryError:
        raise UsageError(f"{path}: is a directory, not a file with keys") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a list of keys: they must be ASCII") from None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        key = line.split()[0]
        if len(key) < _SHORTEST_KEY:
            raise UsageError(f"{path}:{number}: a key has {_SHORTEST_KEY} or more letters, digits and signs")
        keys.append(key)
    if not keys:
        raise UsageError(f"{path}: there is no key in it", "make one with: openssl rand -hex 24")
    return keys


@dataclass(frozen=True)
class AskedTranslation:
    """A request that was checked.

    Attributes:
        texts: What to translate.
        is_list: Whether a list was sent, and is to be answered.
        source, target: Labels of the models; the source may be `auto`.
        is_html: Whether the texts are HTML.
        alternatives: How many further translations.
    """

    texts: tuple[str, ...]
    is_list: bool
    source: str
    target: str
    is_html: bool
    alternatives: int


def read_translation(
    fields: Fields, limits: Limits, most_alternatives: int, codes: LanguageCodes
) -> AskedTranslation:
    """Reads and checks what is asked for.

    Raises:
        RequestError: Something is missing, unknown or too much.
    """
    texts = fields.values.get("q")
    if texts is None:
        raise invalid("missing q parameter")
    source, target = fields.text("source"), fields.text("target")
    alternatives = _alternatives(fields.values.get("alternatives"), most_alternatives)
    is_list = isinstance(texts, list)
    checked = _texts(texts if isinstance(texts, list) else [texts], fields, limits)
    from_ = AUTO if source.lower() == AUTO else known_language(source, codes)
    to = known_language(target, codes)
    kind = fields.text("format", "text") or "text"
    if kind not in _FORMATS:
        raise RequestError("invalid", f"{kind[:_SHOWN]} format is not supported")
    return AskedTranslation(checked, is_list, from_, to, kind == "html", alternatives)


def known_language(code: str, codes: LanguageCodes) -> str:
    """The label that the models have for a language.

    Raises:
        RequestError: They do not know it.
    """
    label = codes.label(code)
    if label is None:
        raise RequestError("invalid", f"{printable(code[:_SHOWN])} is not supported")
    return label


def _alternatives(value: object, most: int) -> int:
    if value in (None, ""):
        return 0
    try:
        count = int(value) if isinstance(value, int | str) and not isinstance(value, bool) else -1
    except ValueError:
        count = -1
    if count < 0:
        raise invalid("alternatives parameter is not a number")
    if count > most:
        raise invalid(f"alternatives parameter must be <= {most}")
    return count


def _texts(texts: list[object], fields: Fields, limits: Limits) -> tuple[str, ...]:
    if len(texts) > limits.texts:
        raise invalid(f"request ({len(texts)}) exceeds text limit ({limits.texts})")
    checked = []
    for text in texts:
        if not isinstance(text, str):
            raise invalid("q parameter is not a string or a list of strings")
        text = printable(text)
        checked.append(text.replace("\r\n", "\n").replace("\r", "\n") if fields.is_form else text)
    for text in checked:
        if len(text) > limits.characters:
            raise invalid(f"request ({len(text)}) exceeds text limit ({limits.characters})")
    return tuple(checked)
