"""`deepwire data`: check parallel text before training, download files."""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.cli.line_by_line import warn
from deepwire.cli.options import Json, Overrides
from deepwire.config.counts import counted
from deepwire.errors import UsageError
from deepwire.io.json_lines import json_line
from deepwire.io.progress_line import ProgressLine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deepwire.data.data_config import DataConfig

app = typer.Typer(help="Check parallel text; download files and verify their digests.", no_args_is_help=True)


@app.command()
def check(
    run_file: Annotated[
        str | None,
        typer.Argument(metavar="[RUN.yaml]", help="Run file or recipe whose data section to check."),
    ] = None,
    overrides: Overrides = None,
    source: Annotated[Path | None, typer.Option(help="Source text; - is stdin.")] = None,
    target: Annotated[Path | None, typer.Option(help="Target text, line by line.")] = None,
    samples: Annotated[int, typer.Option(min=0, max=1000, help="Random pairs to show.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the random pairs.")] = 1,
    as_json: Json = False,
) -> None:
    """Read the text of a run file, or two parallel files, and report what training would use.

    Examples: deepwire data check run.yaml; deepwire data check --source train.de --target train.en
    """
    from deepwire.data.batches.epoch_order import share_lines
    from deepwire.data.selection import check_corpora, report_lines
    from deepwire.data.text.corpus import hinting_at_recipes
    from deepwire.runfile import load_run_file

    origins: Mapping[str, str] = {}
    if source is not None and target is not None and run_file is None:
        data = _data_of_files(source, target)
    elif source is not None or target is not None:
        raise UsageError("--source and --target belong together, without a run file", "give both alone")
    elif run_file is None:
        raise UsageError("nothing to check", "name a run file, or --source and --target")
    else:
        loaded = load_run_file(run_file, overrides or [])
        data, origins = loaded.config.data, loaded.origins
    with hinting_at_recipes(origins), ProgressLine(transient=False) as line:
        show = partial(line.count, unit="pairs")
        checked = check_corpora(data, seed=seed, samples=samples, on_progress=show)
    if as_json:
        record: dict[str, object] = {name: report.to_dict() for name, report in checked.reports.items()}
        if checked.mix:
            record["mix"] = [share._asdict() for share in checked.mix]
        print(json_line(record))
        return
    for role, report in checked.reports.items():
        print(*report_lines(role, report.to_dict()), sep="\n")
    if checked.mix:
        print(*share_lines(checked.mix, data.sampling_temperature), sep="\n")


@app.command()
def download(
    urls: Annotated[list[str], typer.Argument(metavar="URL...", help="Addresses of files, http or https.")],
    to: Annotated[Path, typer.Option(help="Folder for the files; created if missing.")] = Path(),
    sha256: Annotated[
        list[str] | None,
        typer.Option(metavar="HEX", help="SHA-256 of each file, in the order of the addresses."),
    ] = None,
) -> None:
    """Download files, and verify their digests; an interrupted download continues.

    Prints the digest and path of each file, as sha256sum does.
    """
    from deepwire.io import download as downloads

    digests = sha256 or []
    if digests and len(digests) != len(urls):
        raise UsageError(
            f"{counted(len(urls), 'address', 'addresses')} but {counted(len(digests), 'digest')}",
            "give --sha256 once for each address",
        )
    names = Counter(map(downloads.file_name, dict.fromkeys(urls)))
    if twice := [name for name, count in names.items() if count > 1]:
        raise UsageError(
            f"{twice[0]}: several addresses have this file name", "download them --to different folders"
        )
    for url, digest in zip_longest(urls, digests):
        with ProgressLine(transient=False) as line:
            show = partial(line.count, "downloaded", unit="bytes")
            file = downloads.download(url, to, sha256=digest, on_progress=show, warn=warn)
        if not file.fetched:
            print(f"{file.path} is here already", file=sys.stderr)
        print(f"{file.sha256}  {file.path}")


def _data_of_files(source: Path, target: Path) -> DataConfig:
    """The section of two files; `train.de.gz` is in `de`."""
    from deepwire.data.data_config import DataConfig
    from deepwire.io.output import COMPRESSED_SUFFIXES

    files = (source, target)
    names = [path.with_suffix("") if path.suffix in COMPRESSED_SUFFIXES else path for path in files]
    labels = [path.suffix.removeprefix(".") for path in names]
    if not all(labels) or labels[0] == labels[1]:
        labels = ["source", "target"]
    corpus = {"source_file": source, "target_file": target}
    return DataConfig.model_validate({"source": labels[0], "target": labels[1], "train": [corpus]})
