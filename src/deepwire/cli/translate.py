"""``deepwire translate``: text in, text out."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

import deepwire
from deepwire.cli import options as opt
from deepwire.cli.line_by_line import CountedLines, warn, write_answers
from deepwire.cli.settings import with_settings
from deepwire.errors import UsageError
from deepwire.io.output import check_output

Prefix = Annotated[Path | None, typer.Option(help="Forced prefixes of the translations, line by line.")]
JsonInput = Annotated[bool, typer.Option("--json-input", help='Read {"text": ..., "prefix": ..., "to": ...}')]
LanguageColumn = Annotated[
    int | None,
    typer.Option(
        min=1, max=2, help="Target language of each line: LANGUAGE<tab>TEXT (1) or TEXT<tab>LANGUAGE (2)."
    ),
]
Alignment = Annotated[bool, typer.Option("--alignment", help="Add alignments: `A dog. ||| 0-0 1-1 2-2`.")]
Scores = Annotated[bool, typer.Option("--scores", help="Write SCORE<tab>TRANSLATION.")]
Stream = Annotated[bool, typer.Option("--stream", help="Translate each line as it comes, without batches.")]


@with_settings(
    "beam",
    "length_penalty",
    "n_best",
    "term_search",
    "guards",
    "placeholders",
    sample="sampling",
    seed="sampling.seed",
)
def translate(
    models: opt.Models,
    input_: opt.Input = opt.STDIO,
    output: opt.Output = opt.STDIO,
    test_set: opt.TestSet = None,
    to: opt.To = None,
    from_: opt.From = None,
    prefix: Prefix = None,
    json_input: JsonInput = False,
    language_column: LanguageColumn = None,
    as_json: opt.Json = False,
    scores: Scores = False,
    stream: Stream = False,
    *,
    settings: opt.Settings,
    terms: opt.Terms = None,
    alignment: Alignment = False,
    shortlist: opt.Shortlist = False,
    shortlist_from: opt.ShortlistFrom = None,
    seen: opt.Seen = False,
    precision: opt.Precision = "auto",
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
) -> None:
    """Translate raw text: one line out for each line in, in the same order; an empty line stays empty.

    deepwire translate runs/demo < test.de > test.en

    deepwire translate runs/a runs/b@avg5 --input test.de.gz --beam 8 --n-best 4

    deepwire translate runs/demo --input test.de sampling.top_k=10 sampling.seed=3

    To translate a large text in several processes, use `deepwire distill`.
    """
    from deepwire.data.languages import Direction
    from deepwire.decoding.translation_io import FORMATS, column_requests, json_requests, text_requests
    from deepwire.ops.process import configure_process, quick_start

    in_json = 'JSON lines can have "to" and "prefix"'
    opt.require_one(
        {"--prefix": prefix, "--json-input": json_input, "--language-column": language_column}, in_json
    )
    opt.require_one({"--to": to, "--language-column": language_column})
    n_best = "n_best" in settings
    opt.require_one({"--scores": scores, "--json": as_json, "--n-best": n_best and not as_json})
    if prefix == input_ == opt.STDIO:
        raise UsageError("only one text can come from stdin (-)", "put the other one into a file")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("translate is one process", "use torchrun -m deepwire distill for a large text")
    if test_set is not None:
        from deepwire.evaluation.test_sets import known_direction, test_set_files  # sacrebleu

        opt.require_one({"--test-set": test_set, "--input": None if input_ == opt.STDIO else input_})
        direction = Direction(from_, to) if from_ and to else known_direction(models)
        input_, _ = test_set_files(test_set, direction)
    typed = input_ == opt.STDIO and sys.stdin.isatty()
    if typed and not quiet:
        print("type a sentence a line; Ctrl-D ends", file=sys.stderr)
    check_output(output, [path for path in (input_, prefix, terms) if path is not None])
    words = opt.chosen_shortlist(shortlist, shortlist_from, seen)
    with quick_start():
        configure_process(threads=threads, flush_denormals=False)
        model = deepwire.load(
            models, device, precision, settings=settings, warn=warn, shortlist=words, terms=terms
        )
    translator = model.aligning() if alignment else model
    if language_column is not None:
        texts = column_requests(input_, language_column, warn)
    else:
        texts = json_requests(input_, warn) if json_input else text_requests(input_, prefix, warn)
    requests = CountedLines(texts)
    window = 1 if stream or typed else None
    translations = translator.translations(requests, window=window, to=to or "", from_=from_ or "")
    form = FORMATS["as_json" if as_json else "n_best" if n_best else "scored" if scores else "plain"]
    write_answers(requests, translations, form, output, flush=stream or typed, quiet=quiet)
