"""Writes the stored numbers of the contract anew; see `conftest.py` for when that is allowed.

    python tests/contract/store_contract.py losses|parameters|texts --the-contract-changes

Without the flag it refuses. ``stored/0.2.0`` is what that version wrote and cannot be written anew.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from contract_runs import STORED, SYSTEMS, stored, train_system, write_text
from contract_shapes import outline_of_recipe, outline_of_settings
from contract_texts import texts


def losses() -> dict[str, object]:
    """The numbers of all systems."""
    with tempfile.TemporaryDirectory() as folder:
        write_text(Path(folder))
        return {system: train_system(system, Path(folder)) for system in SYSTEMS}


def parameters() -> dict[str, object]:
    """The outlines of the recipes and settings that are stored."""
    known = stored("parameters")
    return {
        "recipes": {name: outline_of_recipe(name) for name in known["recipes"]},
        "settings": {name: outline_of_settings(name) for name in known["settings"]},
    }


STORES: Mapping[str, Callable[[], dict[str, object]]] = {
    "losses": losses,
    "parameters": parameters,
    "texts": texts,
}


def main() -> None:
    """Write, if that is what was decided."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=STORES)
    parser.add_argument("--the-contract-changes", action="store_true", help="write; the changelog says why")
    options = parser.parse_args()
    if not options.the_contract_changes:
        parser.error("stored numbers are written anew only with --the-contract-changes; see conftest.py")
    torch.set_num_threads(1)
    lines = [f"{json.dumps(key)}: {one_a_line(value)}" for key, value in STORES[options.what]().items()]
    (STORED / f"{options.what}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def one_a_line(value: object) -> str:
    """JSON with a line for each entry of a mapping."""
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    lines = [f"{json.dumps(key)}: {json.dumps(one, ensure_ascii=False)}" for key, one in value.items()]
    return "{\n  " + ",\n  ".join(lines) + "\n}"


if __name__ == "__main__":
    main()
