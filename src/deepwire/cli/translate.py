"""``deepwire translate``: text in, text out, line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deepwire.cli.decoding_options import (
    STDIO,
    BatchTokens,
    Beam,
    Device,
    Groups,
    Json,
    LengthPenalty,
    Models,
    Output,
    Precision,
    Quiet,
    Seen,
    ShortlistFrom,
    Threads,
    UseShortlist,
    chosen_shortlist,
)

Input = Annotated[
    Path, typer.Option("--input", "-i", help="Text to translate; - is stdin; also .gz/.zst/.xz.")
]
NBest = Annotated[
    int | None,
    typer.Option(min=1, help="Write this many candidates a line: `0 ||| text ||| Score= ||| score`."),
]
Sample = Annotated[bool, typer.Option("--sample", help="Draw translations at random instead of searching.")]
TopK = Annotated[int | None, typer.Option(min=1, help="Draw from the k most probable subwords only.")]
TopP = Annotated[
    float | None, typer.Option(help="Draw from the fewest subwords that together reach this probability.")
]
Temperature = Annotated[float | None, typer.Option(help="Below 1: more careful draws, above 1: more varied.")]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Seed of the draws; the same gives the same text. Default: 1.")
]
Prefix = Annotated[
    Path | None, typer.Option(help="Text that each translation must begin with, one line for each line.")
]
JsonInput = Annotated[
    bool,
    typer.Option(
        "--json-input",
        help='Read JSON lines: {"text": ..., "prefix": ..., "to": ...}; others are kept.',
    ),
]
To = Annotated[
    str | None,
    typer.Option(metavar="LANGUAGE", help="Language to translate into, for models of several: --to fr."),
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="LANGUAGE", help="Language of the text; says when it was not trained so."),
]
LanguageColumn = Annotated[
    int | None,
    typer.Option(min=1, max=2, help="Lines are LANGUAGE<tab>TEXT (1) or TEXT<tab>LANGUAGE (2)."),
]
Scores = Annotated[bool, typer.Option("--scores", help="Write score, tab, translation.")]
Stream = Annotated[bool, typer.Option("--stream", help="Answer each line as it comes.")]


def translate(
    models: Models,
    input_: Input = STDIO,
    output: Output = STDIO,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    groups: Groups = None,
    n_best: NBest = None,
    sample: Sample = False,
    top_k: TopK = None,
    top_p: TopP = None,
    temperature: Temperature = None,
    seed: Seed = None,
    prefix: Prefix = None,
    as_json: Json = False,
    json_input: JsonInput = False,
    to: To = None,
    from_: From = None,
    language_column: LanguageColumn = None,
    scores: Scores = False,
    stream: Stream = False,
    batch_tokens: BatchTokens = None,
    shortlist: UseShortlist = False,
    shortlist_from: ShortlistFrom = None,
    seen: Seen = False,
    precision: Precision = "auto",
    device: Device = "auto",
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Translate raw text: one line out for each line in, in the same order; an empty line stays empty.

    deepwire translate runs/demo < test.de > test.en

    deepwire translate runs/a runs/b@avg5 --input test.de.gz --beam 8 --n-best 4

    deepwire translate runs/demo --sample --top-p 0.9 --seed 7 --input test.de

    deepwire translate runs/six-directions --to fr < test.en

    torchrun --nproc-per-node 4 -m deepwire translate runs/demo --input big.de --output big.en
    """
    from deepwire.cli.line_by_line import given, sampling_settings
    from deepwire.cli.translation_job import InputText, TranslationJob, run

    changes = given(beam=beam, length_penalty=length_penalty, groups=groups, n_best=n_best)
    sampling = sampling_settings(sample, top_k, top_p, temperature, seed, beam)
    job = TranslationJob(
        models=models,
        text=InputText(input_, prefix, json_input, language_column),
        output=output,
        format=_format(as_json, n_best is not None, scores),
        languages=(to or "", from_ or ""),
        settings={**changes, **given(batch_tokens=batch_tokens, sampling=sampling)},
        device=device,
        precision=precision,
        shortlist=chosen_shortlist(shortlist, shortlist_from, seen),
        stream=stream,
    )
    run(job, threads=threads, quiet=quiet)


def _format(as_json: bool, n_best: bool, scores: bool) -> str:
    """The name of the format in which translations are written.

    Raises:
        UsageError: Two formats exclude each other.
    """
    from deepwire.errors import UsageError

    if scores and (as_json or n_best):
        raise UsageError("--scores is for plain text", "JSON and n-best lists hold scores anyway")
    if as_json:
        return "as_json"
    if n_best:
        return "n_best"
    return "scored" if scores else "plain"
