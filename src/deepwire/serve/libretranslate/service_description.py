"""What the interface offers, in the form of OpenAPI 2 (Swagger), and a page for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import deepwire


class _Parameter(NamedTuple):
    name: str
    about: str
    required: bool = False
    kind: str = "string"


class _Operation(NamedTuple):
    method: str
    path: str
    about: str
    parameters: Sequence[_Parameter]
    answer: Mapping[str, Any]
    errors: Sequence[int] = ()


_KEY = _Parameter("api_key", "API key, where the server needs one")
_SOURCE = _Parameter("source", "code of the language of the text, or auto", True)
_TARGET = _Parameter("target", "code of the language to translate into", True)
_TEXT = {"type": "string"}
_LANGUAGE = {"type": "object", "properties": {"code": _TEXT, "name": _TEXT}}
_DETECTION = {"type": "object", "properties": {"confidence": {"type": "number"}, "language": _TEXT}}


def _record(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties}


def _list(of: object) -> dict[str, object]:
    return {"type": "array", "items": of}


_OPERATIONS = (
    _Operation(
        "post",
        "/translate",
        "Translate a text, or a list of texts, from one language into another.",
        (
            _Parameter("q", "the text; in JSON also a list of texts", True),
            _SOURCE,
            _TARGET,
            _Parameter("format", "text or html"),
            _Parameter("alternatives", "how many further translations", kind="integer"),
            _KEY,
        ),
        _record(translatedText=_TEXT, detectedLanguage=_DETECTION, alternatives=_list(_TEXT)),
        (400, 403, 429, 500),
    ),
    _Operation(
        "post",
        "/detect",
        "The likely languages of a text, best first.",
        (_Parameter("q", "the text", True), _KEY),
        _list(_DETECTION),
        (400, 403, 429, 500),
    ),
    _Operation(
        "get",
        "/languages",
        "The languages, and into which each is translated.",
        (),
        _list(_record(code=_TEXT, name=_TEXT, targets=_list(_TEXT))),
    ),
    _Operation(
        "post",
        "/translate_file",
        "Translate a document; the answer says where to fetch the translation.",
        (_Parameter("file", "the document", True, "file"), _SOURCE, _TARGET, _KEY),
        _record(translatedFileUrl=_TEXT),
        (400, 403, 429, 500),
    ),
    _Operation(
        "get",
        "/frontend/settings",
        "Limits, and what is switched on.",
        (),
        _record(
            charLimit={"type": "integer"},
            frontendTimeout={"type": "integer"},
            apiKeys={"type": "boolean"},
            keyRequired={"type": "boolean"},
            suggestions={"type": "boolean"},
            filesTranslation={"type": "boolean"},
            supportedFilesFormat=_list(_TEXT),
            language=_record(source=_LANGUAGE, target=_LANGUAGE),
        ),
    ),
    _Operation("get", "/health", "Whether the server can translate.", (), _record(status=_TEXT), (503,)),
)


def specification(prefix: str = "") -> dict[str, Any]:
    """The description in OpenAPI 2; `prefix` stands before all paths."""
    paths: dict[str, Any] = {}
    for operation in _OPERATIONS:
        responses: dict[str, Any] = {"200": {"description": "done", "schema": operation.answer}}
        for status in operation.errors:
            responses[str(status)] = {"description": "refused", "schema": _record(error=_TEXT)}
        paths.setdefault(operation.path, {})[operation.method] = {
            "summary": operation.about,
            "consumes": ["application/json", "application/x-www-form-urlencoded", "multipart/form-data"],
            "produces": ["application/json"],
            "parameters": [
                {
                    "name": parameter.name,
                    "in": "formData",
                    "description": parameter.about,
                    "required": parameter.required,
                    "type": parameter.kind,
                }
                for parameter in operation.parameters
            ],
            "responses": responses,
        }
        if operation.method == "get":
            del paths[operation.path]["get"]["consumes"]
    return {
        "swagger": "2.0",
        "info": {"title": "deepwire, interface of LibreTranslate", "version": deepwire.__version__},
        "basePath": prefix or "/",
        "paths": paths,
    }


def description_page() -> str:
    """The description as a page."""
    from jinja2 import Environment, PackageLoader

    templates = Environment(loader=PackageLoader("deepwire.serve", "page"), autoescape=True)
    return templates.get_template("interface.html").render(operations=_OPERATIONS)
