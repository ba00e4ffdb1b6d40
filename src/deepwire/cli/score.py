"""``deepwire score`` and ``deepwire perplexity``: what models think of given text."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import deepwire
from deepwire.cli import options as opt
from deepwire.cli.line_by_line import CountedLines, warn, write_answers
from deepwire.cli.settings import with_settings
from deepwire.config.counts import counted
from deepwire.errors import UsageError
from deepwire.io.json_lines import json_line
from deepwire.io.output import check_output, write_output
from deepwire.ops.process import quick_start

if TYPE_CHECKING:
    from deepwire.decoding.language_model import TextScore

Source = Annotated[Path, typer.Option("--source", "-s", help="Source text; - is stdin.")]
Target = Annotated[Path, typer.Option("--target", "-t", help="Target text, line by line; - is stdin.")]
PerToken = Annotated[bool, typer.Option("--per-token", help="Add that of each subword and EOS.")]
Normalize = Annotated[bool, typer.Option("--normalize", help="Divide by the number of subwords, with EOS.")]


@with_settings()
def score(
    models: opt.Models,
    source: Source,
    target: Target,
    to: opt.To = None,
    output: opt.Output = opt.STDIO,
    as_json: opt.Json = False,
    per_token: PerToken = False,
    normalize: Normalize = False,
    *,
    settings: opt.Settings,
    precision: opt.Precision = "auto",
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
) -> None:
    """Print the log-probability (in nats) of each target line, given its source line.

    It is the sum over the subwords and EOS. A pair with an empty side gets 0 and a warning (in JSON a flag).

    deepwire score runs/demo --source test.de --target test.en
    """
    from deepwire.decoding.scoring import format_pair_score, format_pair_score_json
    from deepwire.decoding.translation_io import sentence_pairs

    if source == target == opt.STDIO:
        raise UsageError("only one text can come from stdin (-)", "put the other one into a file")
    check_output(output, (source, target))
    with quick_start():
        opt.use_threads(threads)
        translator = deepwire.load(models, device, precision, settings=settings, warn=warn)
    write = format_pair_score_json if as_json else format_pair_score
    form = partial(write, normalize=normalize, per_token=per_token)
    lines = CountedLines(sentence_pairs(source, target, warn))
    write_answers(lines, translator.score(lines, to=to), form, output, flush=False, quiet=quiet)


Context = Annotated[int | None, typer.Option(min=1, help="Context length in tokens. Default: as trained.")]
Stride = Annotated[int | None, typer.Option(min=1, help="Stride of context windows (context / 2).")]


@with_settings()
def perplexity(
    models: opt.Models,
    input_: opt.Input = opt.STDIO,
    output: opt.Output = opt.STDIO,
    context: Context = None,
    stride: Stride = None,
    as_json: opt.Json = False,
    *,
    settings: opt.Settings,
    precision: opt.Precision = "auto",
    device: opt.Device = "auto",
    threads: opt.Threads = None,
) -> None:
    """Print the perplexity of a text under a language model: per token, per word and per byte.

    Tokens are subwords, line breaks and ends of documents; bytes are those of the text, with one for each
    line end. Each document is scored on its own.

    deepwire perplexity runs/language-model < test.en
    """
    from deepwire.decoding.translation_io import read_text

    check_output(output, (input_,))
    with quick_start():
        opt.use_threads(threads)
        model = deepwire.load(models, device, precision, settings=settings, warn=warn)
    found = model.perplexity(read_text(input_, warn), context=context, stride=stride)
    write_output(output, (json_line(found.to_dict()) if as_json else _summary(found)) + "\n")


def _summary(score: TextScore) -> str:
    return (
        f"perplexity {score.perplexity:.2f} per token, {score.word_perplexity:.2f} per word, "
        f"{score.byte_perplexity:.4f} per byte ({score.bits_per_byte:.4f} bits per byte)\n"
        f"{counted(score.documents, 'document')}, {counted(score.tokens, 'token')}, "
        f"{counted(score.words, 'word')}, {counted(score.bytes, 'byte')}"
    )
