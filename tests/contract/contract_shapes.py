"""Names and shapes of the parameters of a model in a few letters: stored models load only where they stay."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

import deepwire

Outline = list[object]
VOCABULARY = 40


def outline(model: nn.Module) -> Outline:
    """Number of tensors, number of parameters, digest of the names and shapes."""
    parts = sorted((name, tuple(value.shape)) for name, value in model.named_parameters())
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()
    return [len(parts), sum(value.numel() for value in model.parameters()), digest]


def outline_of_recipe(name: str) -> Outline:
    """The model of a recipe, with a vocabulary of 1,000 entries, without memory for its values."""
    with torch.device("meta"):
        return outline(deepwire.build(name, 1000))


def outline_of_settings(text: str) -> Outline:
    """The model of the settings of the two stacks and of what they share, as JSON."""
    sizes = {"d_model": 16, "heads": 4, "feed_forward": 24}
    languages = 3 if "languages" in json.loads(text) else 0
    with torch.device("meta"):
        return outline(deepwire.build(sizes | json.loads(text), VOCABULARY, languages=languages))


def types_of(schema: Any, socket: str) -> Iterator[str]:
    """The types that a socket can have, by the JSON Schema of the run file."""
    definitions = schema["$defs"]

    def types(node: Any) -> Iterator[str]:
        if isinstance(node, list):
            for one in node:
                yield from types(one)
        elif isinstance(node, dict):
            if "$ref" in node:
                node = definitions[node["$ref"].rpartition("/")[2]]
            kind = node.get("properties", {}).get("type", {})
            if "const" in kind:
                yield kind["const"]
            elif "properties" not in node:
                yield from types([value for key, value in node.items() if key in ("anyOf", "oneOf", "allOf")])

    for definition in definitions.values():
        if socket in definition.get("properties", {}):
            yield from types(definition["properties"][socket])
