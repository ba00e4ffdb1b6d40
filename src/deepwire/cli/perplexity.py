"""``deepwire perplexity``: what a language model thinks of text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    Threads,
    specified,
    use_threads,
)
from deepwire.cli.option_names import options_named
from deepwire.io.json_lines import json_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deepwire.decoding.language_model import TextScore

Input = Annotated[Path, typer.Option("--input", "-i", help="Text to score; - is stdin; also .gz/.zst/.xz.")]
Context = Annotated[
    int | None,
    typer.Option(min=1, help="Most tokens that the model reads at once. Default: its block in training."),
]
Stride = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Longer documents are read in windows that advance by so many tokens. Default: context / 2.",
    ),
]
Joined = Annotated[
    bool, typer.Option("--joined", help="Documents see those before them, as in training; not each its own.")
]
PerDocument = Annotated[
    bool, typer.Option("--per-document", help="Write the log-probability of each document, one a line.")
]

_OPTIONS = {r"^(set )?(context|stride)\b": r"\1--\2"}


def perplexity(
    models: Models,
    input_: Input = STDIO,
    output: Output = STDIO,
    context: Context = None,
    stride: Stride = None,
    joined: Joined = False,
    per_document: PerDocument = False,
    as_json: Json = False,
    groups: Groups = None,
    batch_tokens: BatchTokens = None,
    precision: Precision = "auto",
    device: Device = "auto",
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Print the perplexity of a text with a language model: per token, per word and per byte.

    Tokens are subwords, line breaks and ends of documents; bytes are those of the text, with one for each
    line end. Each document is scored on its own.

    deepwire perplexity runs/language-model < test.en
    """
    from deepwire.api.model import load
    from deepwire.cli.line_by_line import CountedLines, warn, write_answers
    from deepwire.data.text.files import display
    from deepwire.decoding.translation_io import read_text
    from deepwire.errors import UsageError
    from deepwire.io.output import check_output, write_output

    if joined and per_document:
        raise UsageError(
            "--joined makes one text of all documents, and --per-document scores each", "leave out one"
        )
    check_output(output, (input_,))
    use_threads(threads)
    model = load(
        models, device, precision, settings=specified(groups=groups, batch_tokens=batch_tokens), warn=warn
    )
    lines = read_text(input_, warn)
    with options_named(_OPTIONS, UsageError):
        if per_document:
            scores = CountedLines(model.document_scores(lines, context=context, stride=stride))
            write_answers(
                scores, scores, _document_json if as_json else _document, output, flush=False, quiet=quiet
            )
            return
        some = _some(lines, display(input_))
        score = model.perplexity(some, context=context, stride=stride, joined=joined)
    write_output(output, (json_line(score.to_dict()) if as_json else _summary(score)) + "\n")


def _some(lines: Iterator[str], name: str) -> Iterator[str]:
    """The lines from the first that is not empty; looked for once the model has agreed to read them."""
    from deepwire.errors import DataError

    first = next(filter(None, lines), None)
    if first is None:
        raise DataError(f"{name}: has no line that is not empty")
    yield first
    yield from lines


def _document(score: TextScore) -> str:
    return f"{score.log_probability:.6f}"


def _document_json(score: TextScore) -> str:
    return json_line(score.to_dict())


def _summary(score: TextScore) -> str:
    from deepwire.config.counts import counted

    return (
        f"perplexity {score.perplexity:.2f} per token, {score.word_perplexity:.2f} per word, "
        f"{score.byte_perplexity:.4f} per byte ({score.bits_per_byte:.4f} bits per byte)\n"
        f"{counted(score.documents, 'document')}, {counted(score.tokens, 'token')}, "
        f"{counted(score.words, 'word')}, {counted(score.bytes, 'byte')}"
    )
