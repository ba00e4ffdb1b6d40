"""Train a language model with one connection or mixer after the other, and print a table of perplexities.

    python examples/language-models/compare.py FOLDER --folder runs/language-models [--seeds 1 2 3]

FOLDER holds the text as run.yaml names it: deen-tech-full/train.en, deen-tech/valid.en and test.en, plain or
compressed. Each system has the rate of --peaks with the lowest validation loss after the first updates of a
run (--trial-updates); the run of that rate then goes on. The same command goes on after an interruption; what
is complete is not trained again.
Behind each system results.json and results.md in the folder of the runs, or what --output says, are written
anew.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import deepwire
from deepwire.checkpoint.store import parameter_count
from deepwire.data.text.files import find_text
from deepwire.decoding.language_model import TextScore
from deepwire.decoding.translation_io import read_text
from deepwire.errors import DeepwireError, DivergedError

HERE = Path(__file__).parent

SYSTEMS: Mapping[str, Mapping[str, object]] = {
    "post-norm": {"connection": "post_norm"},
    "pre-norm": {},
    "peri-norm": {"connection": "peri_ln"},
    "deep-norm": {"connection": "deepnorm"},
    "residual": {"connection": "resi_dual"},
    "dlcl": {"aggregation": "dlcl"},
    "gtrans": {"fusion": {"type": "groups", "size": 3}},
    "depth-lstm": {"connection": "depth_lstm"},
    "hyper": {"connection": "hyper"},
    "mhc-lite": {"connection": "mhc_lite"},
    "attention-residuals": {"connection": "attn_res"},
    "dwa": {"aggregation": "dwa"},
    "gla": {"mixer": "gla"},
    "mamba2": {"mixer": "mamba2"},
    "gated-deltanet": {"mixer": "gated_deltanet"},
    "hybrid": {"mixer": ["gla", "gla", "self_attention"]},
}
"""What each has in place of pre-norm residuals and self-attention."""

STARTS: Mapping[str, str] = {"post-norm": "deepnorm", "deep-norm": "deepnorm"}
"""Initialisations where the default one is not the best: norms after each residual need DeepNet's."""

PEAKS = (0.001, 0.002, 0.004, 0.008)
"""Peak rates that each system is tried with."""


class Outcome(NamedTuple):
    """What came of one run: its parameters, its peak rate, and the score of the test text."""

    parameters: int
    peak: float
    score: TextScore


Outcomes = Mapping[str, Sequence[Outcome]]
"""Of each seed, by system."""


def run_folder(name: str, seed: int, peak: float, options: argparse.Namespace) -> Path:
    """Where a system is trained; what is tried for its rate is the beginning of that."""
    return Path(options.folder / f"{name}-{peak:g}-{seed}")


def train(
    name: str, seed: int, peak: float, options: argparse.Namespace, stop_after: str | None = None
) -> deepwire.Run:
    """Train a system, or go on."""
    text = options.text.resolve()
    data = {"train": str(text / "deen-tech-full/train"), "valid": str(text / "deen-tech/valid"), "test": None}
    schedule: dict[str, object] = {"peak": peak}
    training: dict[str, object] = {"schedule": schedule, "stop_after": stop_after}
    if options.updates is not None:
        training["max_updates"] = options.updates
        schedule["warmup"] = max(1, options.updates // 10)
    layers = {} if options.layers is None else {"layers": options.layers}
    start = {"initialization": STARTS[name]} if name in STARTS else {}
    done = deepwire.train(
        HERE / "run.yaml",
        run=str(run_folder(name, seed, peak, options)),
        seed=seed,
        data={**data, "prepared": str(options.folder / "prepared")},
        model={**start, "decoder": {**SYSTEMS[name], **layers}},
        training=training,
        handle_signals=True,
    )
    if done.stop_reason is not None and not done.stop_reason.finished:
        raise SystemExit(done.stop_reason.exit_code)
    return done


def best_peak(name: str, options: argparse.Namespace) -> float:
    """The peak rate with the lowest validation loss after the first updates of a run with the first seed."""
    if len(options.peaks) == 1:
        return float(options.peaks[0])
    losses = {}
    for peak in options.peaks:
        try:
            done = train(name, options.seeds[0], peak, options, f"{options.trial_updates}u")
        except DivergedError as error:
            print(f"{name}, peak {peak:g}: {error}", flush=True)
            continue
        history: Any = done.history
        scored = [each for each in history if each["kind"] == "valid"]
        losses[peak] = [each["loss"] for each in scored if each["update"] <= options.trial_updates][-1]
        print(f"{name}, peak {peak:g}: validation loss {losses[peak]:.4f}", flush=True)
    if not losses:
        raise SystemExit(f"{name}: diverged with every peak rate of --peaks: add lower ones")
    return min(losses, key=lambda peak: losses[peak])


def trained(name: str, seed: int, peak: float, options: argparse.Namespace) -> Outcome:
    """Train a system, or go on; what came of it on the test text."""
    run = train(name, seed, peak, options)
    assert run.best is not None, "a run that is complete has a checkpoint"
    lines = read_text(find_text(options.text.resolve() / "deen-tech/test", "en"), print)
    score = deepwire.load(run, precision="fp32").perplexity(lines)
    return Outcome(parameter_count(run.best.path), peak, score)


def settings(run: Path) -> dict[str, object]:
    """What all systems have in common, as a run recorded it."""
    recorded = json.loads((run / "config.resolved.json").read_text())
    model, training = recorded["model"], recorded["training"]
    return {
        "d_model": model["d_model"],
        "feed_forward": model["feed_forward"],
        "layers": model["decoder"]["layers"],
        "vocabulary": recorded["data"]["vocabulary"]["size"],
        "block": recorded["data"]["text"]["block"],
        "updates": training["max_updates"],
        "batch_tokens": training["batch_tokens"],
        "optimizer": training["optimizer"]["type"],
    }


def write(outcomes: Outcomes, options: argparse.Namespace) -> None:
    """The results so far: settings and scores as JSON, and the table as Markdown below a title."""
    first = next(iter(outcomes))
    common = settings(run_folder(first, options.seeds[0], outcomes[first][0].peak, options))
    systems = {
        name: {
            "parameters": done[0].parameters,
            "peak": done[0].peak,
            "initialization": STARTS.get(name),
            "scores": {
                str(seed): outcome.score.to_dict() for seed, outcome in zip(options.seeds, done, strict=False)
            },
        }
        for name, done in outcomes.items()
    }
    seeds = ", ".join(map(str, options.seeds))
    about = (
        f"{common['layers']} layers, d {common['d_model']}, feed-forward {common['feed_forward']}, "
        f"{common['vocabulary']:,} subwords; {common['updates']:,} updates of {common['batch_tokens']:,} "
        f"tokens by {common['optimizer']}, seed {seeds}. {how_begun(outcomes, options)}"
        "Perplexities are of the test text, each line alone; a token is a subword."
    )
    output = options.output or options.folder / "results"
    figures = {"settings": common, "seeds": options.seeds, "systems": systems}
    output.with_name(f"{output.name}.json").write_text(json.dumps(figures, indent=1) + "\n")
    output.with_name(f"{output.name}.md").write_text(f"# Language models\n\n{about}\n\n{table(outcomes)}\n")


def how_begun(outcomes: Outcomes, options: argparse.Namespace) -> str:
    """Where rates and initialisations come from, as sentences."""
    sentences = []
    if len(options.peaks) > 1:
        peaks = ", ".join(f"{peak:g}" for peak in options.peaks)
        sentences.append(
            f"Each has the peak rate, of {peaks}, with the lowest validation loss after "
            f"{options.trial_updates} updates. "
        )
    special = [f"{name} with {STARTS[name]}" for name in outcomes if name in STARTS]
    if special:
        sentences.append(f"All begin with the default initialisation, but {' and '.join(special)}. ")
    return "".join(sentences)


def table(outcomes: Outcomes) -> str:
    """The systems, the best first."""
    lines = [
        "| system | parameters | peak rate | per token | deviation | per word | bits per byte |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    rows = []
    for name, done in outcomes.items():
        tokens = [outcome.score.perplexity for outcome in done]
        spread = f"{statistics.stdev(tokens):.2f}" if len(tokens) > 1 else ""
        words, bits = (
            statistics.fmean(getattr(outcome.score, what) for outcome in done)
            for what in ("word_perplexity", "bits_per_byte")
        )
        mean, first = statistics.fmean(tokens), done[0]
        cells = (
            name,
            f"{first.parameters:,}",
            f"{first.peak:g}",
            f"{mean:.2f}",
            spread,
            f"{words:.1f}",
            f"{bits:.4f}",
        )
        rows.append((mean, f"| {' | '.join(cells)} |"))
    return "\n".join([*lines, *(row for _, row in sorted(rows))])


def main() -> None:
    """Train all systems with all seeds, and print the table after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("text", type=Path, help="folder of the text")
    parser.add_argument("--folder", type=Path, default=Path("runs/language-models"), help="of the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--only", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--updates", type=int, help="default: those of run.yaml")
    parser.add_argument(
        "--peaks", type=float, nargs="+", default=PEAKS, help="rates to try; one is taken untried"
    )
    parser.add_argument(
        "--trial-updates", type=int, default=300, help="updates after which rates are compared"
    )
    parser.add_argument("--layers", type=int, help="default: those of run.yaml")
    parser.add_argument("--output", type=Path, help="of results, without .json; default: results in --folder")
    options = parser.parse_args()
    peaks: dict[str, float] = {}
    outcomes: dict[str, list[Outcome]] = {}
    for seed in options.seeds:
        for name in options.only:
            try:
                if name not in peaks:
                    peaks[name] = best_peak(name, options)
                outcomes.setdefault(name, []).append(trained(name, seed, peaks[name], options))
            except DeepwireError as error:
                raise SystemExit(f"{name}: {error}") from None
            print(f"\n{table(outcomes)}\n", flush=True)
            write(outcomes, options)


if __name__ == "__main__":
    main()
