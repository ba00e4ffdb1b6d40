"""``deepwire score``: log-probabilities of given translations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deepwire.cli.decoding_options import (
    STDIO,
    BatchTokens,
    Device,
    Groups,
    Json,
    Models,
    Output,
    Precision,
    Quiet,
    Rounds,
    Threads,
    specified,
    use_threads,
)

Source = Annotated[Path, typer.Option("--source", "-s", help="Source text; - is stdin.")]
Target = Annotated[Path, typer.Option("--target", "-t", help="Its translation, line by line; - is stdin.")]
PerToken = Annotated[
    bool, typer.Option("--per-token", help="Also write the log-probability of each subword and of EOS.")
]
Normalize = Annotated[
    bool, typer.Option("--normalize", help="Divide by the number of subwords, EOS counted.")
]

To = Annotated[
    str | None,
    typer.Option(metavar="LANGUAGE", help="Language of the translations, for models of several."),
]


def score(
    models: Models,
    source: Source,
    target: Target,
    to: To = None,
    output: Output = STDIO,
    as_json: Json = False,
    per_token: PerToken = False,
    normalize: Normalize = False,
    groups: Groups = None,
    rounds: Rounds = None,
    batch_tokens: BatchTokens = None,
    precision: Precision = "auto",
    device: Device = "auto",
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Print, for each pair of lines, the natural log-probability that the model gives to the target.

    The sum over the subwords and EOS; 0 for a pair with an empty side, with a warning (a flag in JSON).

    deepwire score runs/demo --source test.de --target test.en
    """
    from functools import partial

    from deepwire.api.model import load
    from deepwire.cli.line_by_line import CountedLines, warn, write_answers
    from deepwire.decoding.scoring import format_pair_score, format_pair_score_json
    from deepwire.decoding.translation_io import sentence_pairs
    from deepwire.errors import UsageError
    from deepwire.io.output import check_output

    if source == target == STDIO:
        raise UsageError("only one text can come from stdin (-)", "put the other one into a file")
    check_output(output, (source, target))
    use_threads(threads)
    settings = specified(groups=groups, rounds=rounds, batch_tokens=batch_tokens)
    translator = load(models, device, precision, settings=settings, warn=warn)
    write = format_pair_score_json if as_json else format_pair_score
    form = partial(write, normalize=normalize, per_token=per_token)
    lines = CountedLines(sentence_pairs(source, target, warn))
    write_answers(lines, translator.score(lines, to=to), form, output, flush=False, quiet=quiet)
