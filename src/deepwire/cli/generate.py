"""``deepwire generate``: text that a language model makes of prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import deepwire
from deepwire.cli import options as opt
from deepwire.cli.line_by_line import CountedLines, warn, write_answers
from deepwire.cli.settings import SAMPLING, with_settings
from deepwire.io.json_lines import json_line
from deepwire.io.output import check_output
from deepwire.ops.process import quick_start

if TYPE_CHECKING:
    from deepwire.decoding.language_model import GeneratedText

MaxLength = Annotated[
    int | None,
    typer.Option(min=1, max=100_000, help="Maximum number of new subwords. Default: the model's, or 50."),
]
Beam = Annotated[int | None, typer.Option(min=1, help="Hypotheses per prompt. Default: 1, greedy search.")]


@with_settings("no_repeat_ngram", **SAMPLING)
def generate(
    models: opt.Models,
    input_: opt.Input = opt.STDIO,
    output: opt.Output = opt.STDIO,
    max_length: MaxLength = None,
    beam: Beam = None,
    *,
    settings: opt.Settings,
    as_json: opt.Json = False,
    precision: opt.Precision = "auto",
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
) -> None:
    """Continue prompts with a language model: one prompt a line.

    An empty line is an empty prompt. A text of several lines is followed by an empty line.

    echo 'To open a file' | deepwire generate runs/language-model --sample --top-p 0.9
    """
    from deepwire.decoding.translation_io import read_text

    check_output(output, (input_,))
    with quick_start():
        opt.use_threads(threads)
        model = deepwire.load(models, device, precision, settings=settings, warn=warn)
    prompts = CountedLines(read_text(input_, warn))
    texts = model.generated(prompts, max_length=max_length, beam=beam)
    end = "\n" if model.text is not None and model.text.unit == "documents" else ""

    def written(text: GeneratedText) -> str:
        if not as_json:
            return text.text + end
        return json_line(
            {
                "prompt": text.prompt,
                "text": text.text,
                "log_probability": text.log_probability,
                "ended": text.ended,
            }
        )

    write_answers(prompts, texts, written, output, flush=False, quiet=quiet)
