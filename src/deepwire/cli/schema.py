"""``deepwire schema``: the JSON Schema of the run file, for editors and other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def schema(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Output file. Default: stdout.")
    ] = None,
) -> None:
    """Print the JSON Schema of the run file: every key with its description, type and default.

    Editors that know JSON Schema then complete and check run files. With --plugin PACKAGE, the parts
    of that package are included.

    Example: deepwire schema --output run.schema.json
    """
    from deepwire.config.json_schema import schema_of
    from deepwire.io.output import STDOUT, write_output
    from deepwire.runfile import RunFile

    text = json.dumps(schema_of(RunFile, "deepwire run file"), indent=2, ensure_ascii=False) + "\n"
    write_output(output or STDOUT, text)
