"""``deepwire analyze compare``, ``agreement`` and ``length``: what models make of text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.cli.analyses.options import (
    FindingOutputs,
    Html,
    Json,
    Output,
    Plots,
    Reference,
    Runs,
    Sentences,
    Source,
    numbers,
    open_scorers,
    read_direction,
)
from deepwire.cli.decoding_options import (
    BatchTokens,
    Beam,
    Device,
    DirectionName,
    Precision,
    Threads,
    use_threads,
)
from deepwire.cli.line_by_line import tell
from deepwire.errors import UsageError

if TYPE_CHECKING:
    from deepwire.lab.contrastive_scoring import Contrast

Paired = Annotated[
    str, typer.Option(help="Test of the differences to the first: bootstrap or randomization.")
]
Samples = Annotated[
    int | None, typer.Option(min=1, help="Resamples (default 1000) or shuffles (default 10000).")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the test.")]
Examples = Annotated[int, typer.Option(min=0, help="How many of the sentences that differ most to show.")]
NoTranslation = Annotated[
    bool, typer.Option("--no-translation", help="Settings, curves and sizes only: nothing is translated.")
]


def compare(
    runs: Runs,
    source: Source = None,
    reference: Reference = None,
    sentences: Sentences = None,
    direction: DirectionName = None,
    paired: Paired = "bootstrap",
    samples: Samples = None,
    seed: Seed = 12345,
    examples: Examples = 10,
    no_translation: NoTranslation = False,
    device: Device = "auto",
    precision: Precision = "auto",
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """Runs side by side: settings, learning curves, size, speed, BLEU and chrF with tests, examples.

    Language models have perplexities and bits per byte instead, of --reference or their data.test.

    deepwire analyze compare runs/a runs/b runs/c@avg5 --html compare.html
    """
    from deepwire.evaluation.comparison import PairedTest
    from deepwire.lab.compare.run_comparison import ComparisonRequest, compare_runs

    outputs = FindingOutputs(as_json, html, plots, output, read=(source, reference), models=runs)
    text = {"--source": source, "--reference": reference, "--sentences": sentences}
    if no_translation and (given := [option for option, value in text.items() if value is not None]):
        raise UsageError(f"{given[0]} is for translating, and --no-translation does not", "leave one out")
    request = ComparisonRequest(
        models=runs,
        source=source,
        reference=reference,
        sentences=sentences,
        direction=read_direction(direction),
        paired=PairedTest(paired, 0, samples, seed),
        examples=examples,
        translate=not no_translation,
        device=device,
        precision=precision,
    )
    outputs.write([compare_runs(request, tell)])


Contrastive = Annotated[
    Path,
    typer.Option(
        "--contrastive",
        "-c",
        help="LingEval97's JSON; or, with --source and --reference, a text with the errors.",
    ),
]
PlainSource = Annotated[
    Path | None, typer.Option("--source", "-s", help="Plain files: the source, line by line.")
]
PlainReference = Annotated[
    Path | None, typer.Option("--reference", "-r", help="Plain files: the right translations.")
]
Distances = Annotated[
    Path | None, typer.Option(help="Plain files: the distance of each line, a whole number.")
]
Normalize = Annotated[
    bool, typer.Option("--normalize", help="Compare log-probabilities per subword, not of whole sentences.")
]
Longest = Annotated[int, typer.Option(min=1, help="Distances above this are counted together.")]
Sample = Annotated[int | None, typer.Option(min=1, help="Only so many contrasts, drawn at random.")]
SampleSeed = Annotated[int | None, typer.Option(min=0, help="Seed of the sample. Default: 1.")]


def agreement(
    models: Runs,
    contrastive: Contrastive,
    source: PlainSource = None,
    reference: PlainReference = None,
    distances: Distances = None,
    direction: DirectionName = None,
    normalize: Normalize = False,
    longest: Longest = 15,
    sample: Sample = None,
    seed: SampleSeed = None,
    device: Device = "auto",
    precision: Precision = "auto",
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """How often a model prefers a translation to the same one with an error: overall, by error, by distance.

    deepwire analyze agreement runs/a runs/b --contrastive lingeval97.json --html agreement.html
    """
    from deepwire.lab.contrastive_scoring import analyse_agreement

    outputs = FindingOutputs(
        as_json, html, plots, output, read=(contrastive, source, reference, distances), models=models
    )
    if seed is not None and sample is None:
        raise UsageError("--seed is that of --sample, and all contrasts are scored", "leave it out")
    contrasts = _read_contrasts(contrastive, source, reference, distances)
    drawn, name = _sample(contrasts, str(contrastive), sample, seed)
    finding = analyse_agreement(
        models,
        drawn,
        name,
        normalize=normalize,
        longest=longest,
        direction=read_direction(direction),
        device=device,
        precision=precision,
    )
    outputs.write([finding])


def _read_contrasts(
    contrastive: Path, source: Path | None, reference: Path | None, distances: Path | None
) -> list[Contrast]:
    from deepwire.lab.contrastive_scoring import read_lingeval, read_plain

    if (source is None) != (reference is None):
        raise UsageError("--source and --reference go together", "leave both out for LingEval97's JSON")
    if source is not None and reference is not None:
        return read_plain(source, reference, contrastive, distances)
    if distances is not None:
        raise UsageError(
            "--distances is for plain files", "the JSON of LingEval97 holds the distances itself"
        )
    return read_lingeval(contrastive)


def _sample(
    contrasts: list[Contrast], name: str, size: int | None, seed: int | None
) -> tuple[list[Contrast], str]:
    """The contrasts to score, and what the finding calls them."""
    from deepwire.lab.contrastive_scoring import drawn

    if size is None or size >= len(contrasts):
        return contrasts, name
    seed = 1 if seed is None else seed
    return drawn(contrasts, size, seed), f"{name} ({size:,} of {len(contrasts):,}, drawn with seed {seed})"


Bounds = Annotated[
    str | None,
    typer.Option(
        metavar="15,30,45",
        help="Longest source of each part but the last, in words (in a script without spaces, characters). "
        "Default: parts of equal size.",
    ),
]
Parts = Annotated[int, typer.Option(min=1, help="Number of parts, where --bounds is not given.")]
Rounds = Annotated[int, typer.Option(min=1, help="Times that each part is translated; the fastest counts.")]


def length(
    models: Runs,
    bounds: Bounds = None,
    parts: Parts = 4,
    rounds: Rounds = 2,
    source: Source = None,
    reference: Reference = None,
    sentences: Sentences = None,
    direction: DirectionName = None,
    beam: Beam = None,
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """BLEU and decoding speed by length of the source, models beside each other.

    deepwire analyze length runs/transformer runs/mhplstm --bounds 15,30,45 --plots plots
    """
    from deepwire.lab.source_length import (
        cut,
        equal_bounds,
        source_length_finding,
        text_lengths,
        unit_of,
    )
    from deepwire.lab.subject.model_and_text import read_pairs

    outputs = FindingOutputs(as_json, html, plots, output, read=(source, reference), models=models)
    use_threads(threads)
    parsed = read_direction(direction)
    pairs = read_pairs(models[0], source, reference, sentences, parsed)
    lengths = text_lengths(pairs.source.lines, unit_of(pairs.source.lines))
    chosen = equal_bounds(lengths, parts) if bounds is None else numbers(bounds, "--bounds")
    buckets = cut(lengths, chosen)
    changes: dict[str, object] = {"beam": beam, "batch_tokens": batch_tokens}
    scorers = open_scorers(models, pairs, changes, device, precision, parsed)
    outputs.write([source_length_finding(scorers, buckets, rounds, tell)])
