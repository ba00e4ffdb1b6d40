"""``deepwire translate``: text in, text out, line by line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    ShortlistFrom,
    Threads,
    UseShortlist,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deepwire.decoding.formats import TranslationFormat
    from deepwire.decoding.source import Warn
    from deepwire.decoding.translation import Request

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
    from deepwire.cli.line_by_line import Counted, drawing, given, use_threads, warn, write_answers
    from deepwire.cli.parts import PartsJob, translate_in_parts
    from deepwire.decoding.requests import column_requests, json_requests, text_requests
    from deepwire.decoding.translator import load
    from deepwire.errors import UsageError
    from deepwire.training.allocator import keep_memory
    from deepwire.training.processes import joined

    sampling = drawing(sample, top_k, top_p, temperature, seed)
    _check_inputs(input_, prefix, json_input, language_column, to)
    form = _format(as_json, n_best is not None, scores)
    settings = given(
        {
            "beam": beam,
            "length_penalty": length_penalty,
            "groups": groups,
            "n_best": n_best,
            "batch_tokens": batch_tokens,
            "sampling": sampling,
        }
    )
    use_threads(threads)
    keep_memory()

    def read(warn: Warn) -> Iterator[Request]:
        if language_column is not None:
            return column_requests(input_, language_column, warn)
        return json_requests(input_, warn) if json_input else text_requests(input_, prefix, warn)

    languages = (to or "", from_ or "", str(language_column or ""))
    with joined() as processes:
        if processes.count > 1:
            if stream:
                raise UsageError("--stream is for one process")
            inputs = [input_] if prefix is None else [input_, prefix]
            run_as = (device, precision, form, inputs, json_input, output, languages)
            job = PartsJob(models, settings, *run_as, shortlist_from or shortlist)
            translate_in_parts(job, read, processes, quiet=quiet)
            return
        chosen = shortlist_from or shortlist
        translator = load(models, device, precision, settings=settings, warn=warn, shortlist=chosen)
        requests = Counted(read(warn))
        answers = translator.translations(requests, window=1 if stream else None, to=to, from_=from_)
        write_answers(requests, answers, form, output, flush=stream, quiet=quiet)


def _check_inputs(
    input_: Path, prefix: Path | None, json_input: bool, language_column: int | None, to: str | None
) -> None:
    """See that the options say in one way only what is read.

    Raises:
        UsageError: two of them exclude each other.
    """
    from deepwire.errors import UsageError

    if prefix is not None and json_input:
        raise UsageError("--prefix and --json-input exclude each other", 'write "prefix" into the JSON lines')
    if language_column is not None and (prefix is not None or json_input or to):
        raise UsageError(
            "--language-column excludes --prefix, --json-input and --to",
            'write JSON lines with "to" and "prefix"',
        )
    if prefix == input_ == STDIO:
        raise UsageError("only one text can come from stdin (-)", "put the other one into a file")


def _format(as_json: bool, n_best: bool, scores: bool) -> TranslationFormat:
    """How answers are written.

    Raises:
        UsageError: two formats exclude each other.
    """
    from deepwire.decoding import formats
    from deepwire.errors import UsageError

    if scores and (as_json or n_best):
        raise UsageError("--scores is for plain text", "JSON and n-best lists hold scores anyway")
    if as_json:
        return formats.as_json
    if n_best:
        return formats.n_best
    return formats.scored if scores else formats.plain
