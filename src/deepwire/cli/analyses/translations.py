"""``deepwire analyze compare``, ``agreement``, ``length``, ``alignment``: what models make of text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from deepwire.cli import options as opt
from deepwire.cli.analyses import options as common
from deepwire.cli.analyses.options import numbers
from deepwire.cli.line_by_line import tell
from deepwire.errors import UsageError

Paired = Annotated[str, typer.Option(help="Test against the first: bootstrap or randomization.")]
Examples = Annotated[int, typer.Option(min=0, help="Number of most different sentences to show.")]
NoTranslation = Annotated[bool, typer.Option("--no-translation", help="Only settings, curves and sizes.")]


@common.analysis
def compare(
    runs: common.Runs,
    source: common.Source = None,
    reference: common.Reference = None,
    sentences: common.Sentences = None,
    direction: opt.DirectionName = None,
    paired: Paired = "bootstrap",
    samples: opt.TestSamples = None,
    seed: opt.TestSeed = None,
    examples: Examples = 10,
    no_translation: NoTranslation = False,
    device: opt.Device = "auto",
    precision: opt.Precision = "auto",
) -> common.Findings:
    """Compare runs: settings, learning curves, size, speed, BLEU and chrF with tests, examples.

    Language models are compared by perplexity and bits per byte, on --reference or data.test.

    deepwire analyze compare runs/a runs/b runs/c@avg5 --html compare.html
    """
    from deepwire.evaluation.comparison import PairedTest
    from deepwire.lab.compare import ComparisonRequest, compare_runs

    text = {"--source": source, "--reference": reference, "--sentences": sentences}
    if no_translation and (given := [option for option, value in text.items() if value is not None]):
        raise UsageError(f"{given[0]} is for translating, and --no-translation does not", "leave one out")
    request = ComparisonRequest(
        models=runs,
        source=source,
        reference=reference,
        sentences=sentences,
        direction=direction,
        paired=PairedTest(paired, 0, samples, seed),
        examples=examples,
        translate=not no_translation,
        device=device,
        precision=precision,
    )
    return [compare_runs(request, tell)]


Contrastive = Annotated[
    Path, typer.Option("--contrastive", "-c", help="Wrong translations: LingEval97's JSON, or a text file.")
]
PlainSource = Annotated[Path | None, typer.Option("--source", "-s", help="Source, with a text file.")]
PlainReference = Annotated[
    Path | None, typer.Option("--reference", "-r", help="Right translation, with a text file.")
]
Sample = Annotated[int | None, typer.Option(min=1, help="Number of contrasts, drawn at random.")]


@common.analysis
def agreement(
    models: common.Runs,
    contrastive: Contrastive,
    source: PlainSource = None,
    reference: PlainReference = None,
    direction: opt.DirectionName = None,
    sample: Sample = None,
    device: opt.Device = "auto",
    precision: opt.Precision = "auto",
) -> common.Findings:
    """How often a model prefers the right translation to one with an error: by error, by distance.

    deepwire analyze agreement runs/a runs/b --contrastive lingeval97.json --html agreement.html
    """
    from deepwire.lab.contrastive_scoring import analyse_agreement, drawn, read_lingeval, read_plain

    if (source is None) != (reference is None):
        raise UsageError("--source and --reference go together", "leave both out for LingEval97's JSON")
    if source is not None and reference is not None:
        contrasts = read_plain(source, reference, contrastive)
    else:
        contrasts = read_lingeval(contrastive)
    name = str(contrastive)
    if sample is not None and sample < len(contrasts):
        name = f"{name} ({sample:,} of {len(contrasts):,})"
        contrasts = drawn(contrasts, sample)
    place = {"device": device, "precision": precision}
    return [analyse_agreement(models, contrasts, name, direction=direction, **place)]


Bounds = Annotated[
    Any,
    typer.Option(
        metavar="15,30,45",
        parser=numbers,
        help="Upper bounds of the source length, in words (in a script without spaces, characters). "
        "Default: buckets of equal size.",
    ),
]
Parts = Annotated[int, typer.Option(min=1, help="Number of buckets, without --bounds.")]
Rounds = Annotated[int, typer.Option(min=1, help="Repetitions; the fastest counts.")]


@common.analysis
def length(
    models: common.Runs,
    bounds: Bounds = None,
    parts: Parts = 4,
    rounds: Rounds = 2,
    source: common.Source = None,
    reference: common.Reference = None,
    sentences: common.Sentences = None,
    direction: opt.DirectionName = None,
    beam: common.Beam = None,
    device: opt.Device = "auto",
    precision: opt.Precision = "auto",
    threads: opt.Threads = None,
) -> common.Findings:
    """BLEU and decoding speed of models by source length.

    deepwire analyze length runs/transformer runs/mhplstm --bounds 15,30,45 --plots plots
    """
    from deepwire.lab.source_length import cut, equal_bounds, source_length_finding, text_lengths, unit_of
    from deepwire.lab.subject import read_pairs

    opt.use_threads(threads)
    pairs = read_pairs(models[0], source, reference, sentences, direction)
    lengths = text_lengths(pairs.source.lines, unit_of(pairs.source.lines))
    chosen = equal_bounds(lengths, parts) if bounds is None else bounds
    buckets = cut(lengths, chosen)
    scorers = common.open_scorers(models, pairs, beam, device, precision, direction)
    return [source_length_finding(scorers, buckets, rounds, tell)]


Gold = Annotated[Path, typer.Option("--gold", "-g", help="Gold alignments: i-j sure, i?j or ipj possible.")]
FirstWord = Annotated[int, typer.Option("--first-word", min=0, max=1, help="Index of the first word.")]


@common.analysis
def alignment(
    model: opt.Model,
    gold: Gold,
    source: common.Source = None,
    reference: common.Reference = None,
    sentences: common.Sentences = None,
    direction: opt.DirectionName = None,
    first_word: FirstWord = 0,
    device: opt.Device = "auto",
) -> common.Findings:
    """Alignment error rate of each cross-attention head, and the settings that choose the best one.

    deepwire analyze alignment runs/a --gold gold.align --source gold.de --reference gold.en
    """
    from deepwire.evaluation.texts import selected_target
    from deepwire.lab.attention_alignments import analyse_alignment
    from deepwire.lab.subject import read_pairs

    pairs = read_pairs(
        model, source, reference, direction=direction
    )  # the whole text, as the gold alignments
    to = selected_target(model, direction) or ""
    return [
        analyse_alignment(model, pairs, gold, first=first_word, sentences=sentences, to=to, device=device)
    ]
