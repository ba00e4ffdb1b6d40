"""The reference of the run file: every key with its type, default and meaning, from the checked settings."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any, get_origin

from deepwire.config.choice import Choice
from deepwire.config.json_schema import schema_of
from deepwire.config.section import Section, sections, tags
from deepwire.runfile import RunFile

FOLDER = "reference/run-file"
# Page of the choices of each kind; all other sections stand on the page of their top-level key.
KINDS = {
    "mixer": ("mixers", "Mixers"),
    "connection": ("connections", "Connections"),
    "aggregation": ("aggregations", "Aggregations"),
    "fusion": ("fusions", "Fusions"),
    "initialization": ("initializations", "Initialisations"),
    "optimizer": ("optimizers", "Optimizers"),
    "schedule": ("schedules", "Schedules"),
}
# Where the choices of kinds stand that are not in both stacks.
PLACES = {
    "initialization": "model.initialization",
    "optimizer": "training.optimizer",
    "schedule": "training.schedule",
}
TOP = ("data", "model", "training", "decoding", "recipe")


def pages() -> dict[str, str]:
    """Markdown by address."""
    schema = schema_of(RunFile, "run file")
    made = {f"{FOLDER}/index.md": _first_page(schema)}
    found: dict[str, type[Choice]] = {}
    for name in TOP:
        section = sections(RunFile.model_fields[name].annotation)[0]
        body = "\n".join(_section(name, section, schema, found))
        made[f"{FOLDER}/{name}.md"] = f"# `{name}`\n\n{body}\n"
    for kind, (page, title) in KINDS.items():
        made[f"{FOLDER}/{page}.md"] = _choices(title, kind, found[kind], schema, found)
    return made


def _first_page(schema: dict[str, Any]) -> str:
    lines = [
        "# The run file: every key",
        "",
        "A run file is YAML. These are its keys; each section has a page of its own.",
        "How run files are read, extended and overridden is on the page [errors and run files](../errors.md).",
        "`deepwire schema` prints all of this as JSON Schema, for [editors](../../howto/editors.md).",
        "",
        *_table(RunFile, schema, "", link=True),
        "",
        "Choices: " + ", ".join(f"[{title.lower()}]({page}.md)" for page, title in KINDS.values()) + ".",
        "",
    ]
    return "\n".join(lines)


def _section(
    path: str, section: type[Section], schema: dict[str, Any], found: dict[str, type[Choice]], level: int = 2
) -> Iterator[str]:
    """The table of a section, then those below it."""
    yield from (_text(section), "", *_table(section, schema, path), "")
    for name, field in section.model_fields.items():
        below = f"{path}.{name}"
        if (kind := _kind(field.annotation)) is not None:
            found.setdefault(kind[0], kind[1])
            continue
        inner = sections(field.annotation)
        for member in inner:
            tag = tags(member)
            heading = f"`{below}`: `{'`, `'.join(tag)}`" if len(inner) > 1 and tag else f"`{below}`"
            same = name == "decoder" and path == "model"
            yield f"\n{'#' * level} {heading}\n"
            if same:
                yield "The keys of `model.encoder`, for the decoder.\n"
            else:
                yield from _section(below, member, schema, found, min(level + 1, 5))


def _choices(
    title: str, kind: str, base: type[Choice], schema: dict[str, Any], found: dict[str, type[Choice]]
) -> str:
    place = PLACES.get(kind, f"model.encoder.{kind}")
    also = "" if kind in PLACES else f" and `model.decoder.{kind}`"
    lines = [
        f"# {title}",
        "",
        f"The choices for `{place}`{also}. Write the name alone, or a mapping with `type` and the keys below.",
        "",
    ]
    for member in base.members():
        lines += [f"## `{'`, `'.join(tags(member))}`", ""]
        lines += _section(place, member, schema, found, 3)
    return "\n".join(lines) + "\n"


def _table(section: type[Section], schema: dict[str, Any], path: str, *, link: bool = False) -> list[str]:
    builder = schema if section is RunFile else _definition(schema, section)
    properties = {name: node for name, node in builder["properties"].items() if name not in ("type",)}
    if not properties:
        return ["No further keys."]
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for name, node in properties.items():
        shown = f"[`{name}`]({name}.md)" if link and name in TOP else f"`{name}`"
        rows.append(
            f"| {shown} | {_type(node, schema)} | {_default(node)} | {_cell(node.get('description', ''))} |"
        )
    return rows


def _definition(schema: dict[str, Any], section: type[Section]) -> dict[str, Any]:
    node: dict[str, Any] = schema["$defs"][section.__name__]
    return node if "properties" in node else next(form for form in node["anyOf"] if "properties" in form)


def _kind(annotation: object) -> tuple[str, type[Choice]] | None:
    plain = annotation if isinstance(annotation, type) else None
    if plain is not None and get_origin(annotation) is None and issubclass(plain, Choice):
        return plain.kind, plain
    return None


def _type(node: dict[str, Any], schema: dict[str, Any]) -> str:
    return " or ".join(dict.fromkeys(filter(None, (_form(form, schema) for form in _forms(node))))) or "any"


def _forms(node: dict[str, Any]) -> list[dict[str, Any]]:
    forms = node.get("anyOf", [node])
    counted = any(form.get("type") == "integer" for form in forms)
    kept = [form for form in forms if not (counted and "pattern" in form)]
    return kept or forms


def _form(form: dict[str, Any], schema: dict[str, Any]) -> str:
    if "$ref" in form:
        name = form["$ref"].rpartition("/")[2]
        kind = next((page for kind, (page, _) in KINDS.items() if name == f"{kind.title()}Section"), None)
        return f"[one of these]({kind}.md)" if kind else "section"
    if "enum" in form or "const" in form:
        return ", ".join(
            f"`{json.dumps(value).strip(chr(34))}`" for value in form.get("enum", [form.get("const")])
        )
    match form.get("type"):
        case "integer":
            return f"whole number{_limits(form)}"
        case "number":
            return f"number{_limits(form)}"
        case "boolean":
            return "`true`, `false`"
        case "array" if "items" in form:
            return f"list of: {_type(form['items'], schema)}"
        case "array":
            inner = dict.fromkeys(_type(item, schema) for item in form.get("prefixItems", []))
            return f"list of: {', '.join(inner)}"
        case "object":
            return "mapping"
        case "null":
            return ""
        case "string":
            return "path" if form.get("format") == "path" else "text"
    return ""


def _limits(form: dict[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    told = [f"{sign} {form[key]:g}" for key, sign in signs.items() if key in form and abs(form[key]) < 2**24]
    return f" {', '.join(told)}" if told else ""


def _default(node: dict[str, Any]) -> str:
    if "default" not in node:
        return ""
    value = node["default"]
    return (
        "none" if value is None else f"`{json.dumps(value, ensure_ascii=False).strip(chr(34)) or '(empty)'}`"
    )


def _text(section: type[Section]) -> str:
    text = inspect.cleandoc(section.__doc__ or "").replace("``", "`")
    return re.sub(r"(?<=\S)\n(?=\S)", " ", text)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;")
