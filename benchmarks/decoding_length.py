"""What a step of decoding costs as the translation grows longer, with each mixer in the decoder.

    python benchmarks/decoding_length.py [--length 1000] [--mixers self_attention mhplstm ...] [--format fp32]

The decoders have the layers of the base Transformer and random weights; only the mixer changes. A search runs
to the full length, and the CPU time of every step is taken: sentences of n subwords cost what the first n
steps cost. Mixers take turns in each round, and of the rounds the shortest time of each step counts, as other
work on the machine can only add to it. Writes a Markdown table and the raw figures under benchmarks/results/.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence

import harness
import torch
from decoding_speed import RANDOM, end_late, formats, random_model
from torch import Tensor

from deepwire.data.vocabulary import EOS
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.model_loading import PRECISIONS
from deepwire.decoding.search import Batch, generate
from deepwire.errors import DeepwireError
from deepwire.model.decoder_state import DecoderState
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.packed_linear import pack_linears
from deepwire.ops.precision import set_fp32_matmul

MIXERS = ("self_attention", "mhplstm", "average_attention")


class Timed:
    """A model that notes the CPU time at the beginning of every step."""

    def __init__(self, model: TranslationModel) -> None:
        self.model, self.times = model, list[float]()

    def start(
        self, source: Tensor, *, languages: Tensor | None = None, prompt: Tensor | None = None
    ) -> DecoderState:
        self.times.clear()
        return self.model.start(source, languages=languages, prompt=prompt)

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        self.times.append(time.process_time())
        return self.model.step(tokens, state)

    def steps(self) -> list[float]:
        """Seconds of each step but the last, the search around it included."""
        return [after - before for before, after in zip(self.times, self.times[1:], strict=False)]


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    set_fp32_matmul("auto")
    try:
        models = {name: model_of(name, options) for name in options.mixers}
    except DeepwireError as error:
        sys.exit(f"error: {error}")
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(
        EOS + 2, options.vocabulary_size, (options.batch, options.source), generator=generator
    )
    words[:, -1] = EOS
    best: dict[str, list[float]] = {}
    for _, name in harness.in_turns(models, options.rounds):
        timed = Timed(models[name])
        config = DecodingConfig(beam=options.beam, length_penalty=0)
        generate(timed, Batch(words, [options.length] * options.batch), config)
        steps = timed.steps()
        best[name] = [min(pair) for pair in zip(best.get(name, steps), steps, strict=True)]
        print(name, f"{sum(steps):.2f} s", flush=True)
    print(write_results(best, options))


def arguments() -> argparse.Namespace:
    parser = harness.parser(__doc__)
    parser.set_defaults(rounds=2)
    parser.add_argument("--mixers", nargs="+", default=list(MIXERS), help="of the decoder")
    parser.add_argument("--length", type=int, default=1000, help="subwords of the translation")
    parser.add_argument("--source", type=int, default=16, help="subwords of the source")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--batch", type=int, default=1, help="sentences")
    parser.add_argument(
        "--format", choices=sorted(PRECISIONS), help="default: what deepwire translate takes on this CPU"
    )
    parser.add_argument("--recipe", default=RANDOM[0])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes to that recipe")
    parser.add_argument("--vocabulary-size", type=int, default=RANDOM[1])
    options = parser.parse_args()
    if options.format is None:
        options.format = "bf16" if "bf16" in formats() else "fp32"
    return options


def model_of(mixer: str, options: argparse.Namespace) -> TranslationModel:
    """Random weights that never end a translation before its limit."""
    settings = [*options.set, f"model.decoder.mixer={mixer}"]
    kind, packing = PRECISIONS[options.format]
    model = random_model(options.recipe, settings, options.vocabulary_size).to(kind)
    end_late(model)
    pack_linears(model, packing)
    return model


def write_results(best: Mapping[str, Sequence[float]], options: argparse.Namespace) -> str:
    count = options.length
    rows = []
    for place in sorted({place for place in (10, 30, 100, 300, 1000, 3000, count) if place <= count}):
        row = [str(place)]
        for steps in best.values():
            # The mean of a tenth of the positions before it: single steps also find room for more.
            around = steps[max(0, place - max(1, place // 10)) : place]
            row.append(f"{1000 * sum(around) / len(around):.2f}")
            row.append(f"{options.batch / sum(steps[:place]):.3f}")
        rows.append(row)
    about = (
        f"{' '.join((options.recipe, *options.set))}; {options.vocabulary_size} subwords, batch "
        f"{options.batch}, beam {options.beam}, {options.threads} threads, {options.format}: milliseconds of "
        "CPU time of a step here, and sentences of this length by second."
    )
    heads = ["subwords", *(head for name in best for head in (f"{name}: a step", "sentences/s"))]
    kept = {key: value for key, value in vars(options).items() if key != "results"}
    return harness.write(
        options,
        ["decoding_length", f"{options.batch}x{options.beam}"],
        "Decoding by length",
        [about, "", *harness.table(heads, rows)],
        {"options": kept, "seconds_of_steps": best},
    )


if __name__ == "__main__":
    main()
