"""``deepwire generate``: text that a language model makes of prompts."""

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
    Seed,
    Temperature,
    Threads,
    TopK,
    TopP,
    sampling_settings,
    specified,
    use_threads,
)
from deepwire.io.json_lines import json_line

if TYPE_CHECKING:
    from deepwire.decoding.language_model import GeneratedText

Input = Annotated[
    Path, typer.Option("--input", "-i", help="Prompts, one a line; - is stdin; also .gz/.zst/.xz.")
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=100_000,
        help="Most subwords behind a prompt. Default: the model's decoding.max_length_extra, 50.",
    ),
]
Beam = Annotated[int | None, typer.Option(min=1, help="Hypotheses per prompt. Default: 1, greedy search.")]
Sample = Annotated[bool, typer.Option("--sample", help="Draw text at random instead of searching.")]
NoRepeat = Annotated[
    int | None, typer.Option("--no-repeat-ngram", min=1, help="No n-gram of this size occurs twice.")
]


def generate(
    models: Models,
    input_: Input = STDIO,
    output: Output = STDIO,
    max_length: MaxLength = None,
    sample: Sample = False,
    top_k: TopK = None,
    top_p: TopP = None,
    temperature: Temperature = None,
    seed: Seed = None,
    beam: Beam = None,
    no_repeat_ngram: NoRepeat = None,
    as_json: Json = False,
    groups: Groups = None,
    batch_tokens: BatchTokens = None,
    precision: Precision = "auto",
    device: Device = "auto",
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Continue prompts with a language model: each line in begins a text, which comes out.

    An empty line lets the model begin. Texts of several lines are followed by an empty line.

    echo 'To open a file' | deepwire generate runs/language-model --sample --top-p 0.9
    """
    from deepwire.api.model import load
    from deepwire.cli.line_by_line import CountedLines, warn, write_answers
    from deepwire.decoding.translation_io import read_text
    from deepwire.io.output import check_output

    sampling = sampling_settings(models, sample, top_k, top_p, temperature, seed, beam)
    check_output(output, (input_,))
    use_threads(threads)
    settings = specified(groups=groups, batch_tokens=batch_tokens, no_repeat_ngram=no_repeat_ngram)
    settings |= specified(sampling=sampling)
    model = load(models, device, precision, settings=settings, warn=warn)
    prompts = CountedLines(read_text(input_, warn))
    texts = model.generated(prompts, max_length=max_length, beam=beam)
    several = model.text is not None and model.text.unit == "documents"
    form = _as_json if as_json else _as_document if several else _as_line
    write_answers(prompts, texts, form, output, flush=False, quiet=quiet)


def _as_line(text: GeneratedText) -> str:
    return text.text


def _as_document(text: GeneratedText) -> str:
    return f"{text.text}\n"


def _as_json(text: GeneratedText) -> str:
    record = {
        "prompt": text.prompt,
        "text": text.text,
        "log_probability": text.log_probability,
        "ended": text.ended,
    }
    return json_line(record)
