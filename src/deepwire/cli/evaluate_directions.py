"""``deepwire evaluate-directions``: the table of a model of many languages, alone or against a baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deepwire.cli import options as opt
from deepwire.cli.line_by_line import tell, warn
from deepwire.cli.settings import with_settings
from deepwire.errors import UsageError
from deepwire.io.json_lines import json_line

Systems = Annotated[
    list[str],
    typer.Argument(
        metavar="SYSTEM [BASELINE] [KEY=VALUE]...",
        help="To evaluate, and to compare with: a model; a folder of DIRECTION.hyp; or a pattern "
        "with {direction} of models or files. KEY=VALUE: decoding settings.",
    ),
]
Test = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="Test sets: a prefix (PREFIX.en, PREFIX.de; {pair} in it stands for de-en), or the folder of "
        "OPUS-100. Default: data.test of the run.",
    ),
]
Directions = Annotated[str | None, typer.Option(metavar="en-de,de-en", help="Default: all of SYSTEM.")]
ZeroShot = Annotated[
    bool, typer.Option("--zero-shot", help="Also all directions that it was not trained on.")
]
Centre = Annotated[str, typer.Option(help="The language from and to which directions are averaged apart.")]
Groups = Annotated[list[str] | None, typer.Option("--group", metavar="NAME=de,fr", help="Averaged, too.")]
Paired = Annotated[str, typer.Option(help="Test against the baseline: bootstrap, randomization or none.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Folder for the translations of SYSTEM.")]


@with_settings("beam", "length_penalty")
def evaluate_directions(
    systems: Systems,
    test: Test = None,
    directions: Directions = None,
    zero_shot: ZeroShot = False,
    metric: opt.Metrics = None,
    tokenize: opt.Tokenize = None,
    lowercase: opt.Lowercase = False,
    centre: Centre = "en",
    group: Groups = None,
    paired: Paired = "bootstrap",
    samples: opt.TestSamples = None,
    seed: opt.TestSeed = None,
    output: Output = None,
    *,
    settings: opt.Settings,
    device: opt.Device = "auto",
    precision: opt.Precision = "auto",
    seen: opt.Seen = False,
    as_json: opt.Json = False,
) -> None:
    """Score all directions of a model of many languages: each, on average, by group, against a baseline.

    deepwire evaluate-directions runs/six --test multi30k/test_2016_flickr

    deepwire evaluate-directions runs/six 'runs/{direction}' --group high=de,fr

    deepwire evaluate-directions hyps/ours hyps/theirs --test opus-100-corpus --tokenize 13a
    """
    from deepwire.evaluation import directions as work
    from deepwire.evaluation.comparison import PairedTest
    from deepwire.evaluation.directed_texts import parse_direction
    from deepwire.evaluation.metric_choice import LanguageMetrics, metric_name, parse_tokenizers
    from deepwire.evaluation.texts import SearchSettings

    if len(systems) > 2:
        raise UsageError(f"SYSTEM and BASELINE are two, not {len(systems)}", "compare two at a time")
    tests = None if paired == "none" else PairedTest(paired, 0, samples, seed)
    if tests is not None:
        tests.check(2)
    names = list(dict.fromkeys(map(metric_name, metric or ("bleu", "chrf"))))
    scoring = LanguageMetrics(names, parse_tokenizers(tokenize or ""), lowercase)
    request = work.DirectionsRequest(
        system=systems[0],
        baseline=systems[1] if len(systems) > 1 else None,
        test=test,
        directions=[parse_direction(name.strip()) for name in directions.split(",")] if directions else [],
        zero_shot=zero_shot,
        metrics=scoring,
        centre=centre,
        groups=dict(map(_group, group or ())),
        paired=tests,
        output=output,
        search=SearchSettings(settings, device, precision, "seen" if seen else False),
    )
    report = work.evaluate_directions(request, warn, tell)
    print(json_line(report.to_json()) if as_json else report.as_text())


def _group(text: str) -> tuple[str, frozenset[str]]:
    """Reads `NAME=de,fr` or `de,fr`, which is its own name."""
    name, _, members = text.rpartition("=")
    return name.strip() or members, frozenset(part.strip() for part in members.split(","))
