"""Train a language model with one connection or mixer after the other, and print a table of perplexities.

    python examples/language-models/compare.py FOLDER --folder runs/language-models [--seeds 1 2 3]

FOLDER holds the text as run.yaml names it: deen-tech-full/train.en, deen-tech/valid.en and test.en, plain or
compressed. The same command goes on after an interruption; what is complete is not trained again. Behind
each system results.json and results.md in the folder of the runs, or what --output says, are written anew.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import deepwire
from deepwire.checkpoint.store import parameter_count
from deepwire.data.text.files import find_text
from deepwire.decoding.text_scoring import TextScore
from deepwire.decoding.translation_io import read_text
from deepwire.errors import DeepwireError

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

GENTLE: Mapping[str, Mapping[str, object]] = {
    "model": {"initialization": "deepnorm"},
    "training": {"schedule": {"peak": 0.0005}},
}
"""Norms after each residual need DeepNet's initialisation and a lower rate, or they learn unigrams only."""

STARTS: Mapping[str, Mapping[str, Mapping[str, object]]] = {"post-norm": GENTLE, "deep-norm": GENTLE}
"""How systems begin that do not learn with the settings of the others."""

Scored = Mapping[str, Sequence[tuple[int, TextScore]]]
"""Parameters and test score of each seed, by system."""


def trained(name: str, seed: int, options: argparse.Namespace) -> tuple[int, TextScore]:
    """Train a system, or go on; its parameters, and the score of the test text."""
    text = options.text.resolve()
    data = {"train": str(text / "deen-tech-full/train"), "valid": str(text / "deen-tech/valid"), "test": None}
    start = STARTS.get(name, {})
    training = dict(start.get("training", {}))
    if options.updates is not None:
        warmup = {"warmup": max(1, options.updates // 10)}
        schedule = cast("Mapping[str, object]", training.get("schedule", {}))
        training |= {"max_updates": options.updates, "schedule": {**schedule, **warmup}}
    layers = {} if options.layers is None else {"layers": options.layers}
    run = deepwire.train(
        HERE / "run.yaml",
        run=str(options.folder / f"{name}-{seed}"),
        seed=seed,
        data={**data, "prepared": str(options.folder / "prepared")},
        model={**start.get("model", {}), "decoder": {**SYSTEMS[name], **layers}},
        training=training,
        handle_signals=True,
    )
    if run.stop_reason is not None and not run.stop_reason.finished:
        raise SystemExit(run.stop_reason.exit_code)
    assert run.best is not None, "a run that is complete has a checkpoint"
    lines = read_text(find_text(text / "deen-tech/test", "en"), print)
    return parameter_count(run.best.path), deepwire.load(run, precision="fp32").perplexity(lines)


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
        "peak": training["schedule"]["peak"],
    }


def write(scored: Scored, options: argparse.Namespace) -> None:
    """The results so far: settings and scores as JSON, and the table as Markdown below a title."""
    common = settings(options.folder / f"{next(iter(scored))}-{options.seeds[0]}")
    systems = {
        name: {
            "parameters": seeds[0][0],
            "scores": {
                str(seed): score.to_dict() for seed, (_, score) in zip(options.seeds, seeds, strict=False)
            },
        }
        for name, seeds in scored.items()
    }
    seeds = ", ".join(map(str, options.seeds))
    about = (
        f"{common['layers']} layers, d {common['d_model']}, feed-forward {common['feed_forward']}, "
        f"{common['vocabulary']:,} subwords; {common['updates']:,} updates of {common['batch_tokens']:,} "
        f"tokens; seed {seeds}. {begun(scored)}"
        "Perplexities are of the test text, each line alone; a token is a subword."
    )
    output = options.output or options.folder / "results"
    figures = {"settings": common, "seeds": options.seeds, "systems": systems}
    output.with_name(f"{output.name}.json").write_text(json.dumps(figures, indent=1) + "\n")
    output.with_name(f"{output.name}.md").write_text(f"# Language models\n\n{about}\n\n{table(scored)}\n")


def begun(scored: Scored) -> str:
    """The systems that begin otherwise, as a sentence; empty where there is none."""
    names = [name for name in scored if name in STARTS]
    if not names:
        return ""
    others = "the default initialisation and 0.002 for the others"
    return f"Initialisation deepnorm and peak rate 0.0005 for {' and '.join(names)}, {others}. "


def table(scored: Scored) -> str:
    """The systems, the best first."""
    lines = [
        "| system | parameters | per token | deviation | per word | bits per byte |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    rows = []
    for name, seeds in scored.items():
        tokens = [score.perplexity for _, score in seeds]
        spread = f"{statistics.stdev(tokens):.2f}" if len(tokens) > 1 else ""
        words, bits = (
            statistics.fmean(getattr(score, what) for _, score in seeds)
            for what in ("word_perplexity", "bits_per_byte")
        )
        mean = statistics.fmean(tokens)
        rows.append(
            (mean, f"| {name} | {seeds[0][0]:,} | {mean:.2f} | {spread} | {words:.1f} | {bits:.4f} |")
        )
    return "\n".join([*lines, *(row for _, row in sorted(rows))])


def main() -> None:
    """Train all systems with all seeds, and print the table after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("text", type=Path, help="folder of the text")
    parser.add_argument("--folder", type=Path, default=Path("runs/language-models"), help="of the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--only", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--updates", type=int, help="default: those of run.yaml")
    parser.add_argument("--layers", type=int, help="default: those of run.yaml")
    parser.add_argument("--output", type=Path, help="of results, without .json; default: results in --folder")
    options = parser.parse_args()
    scored: dict[str, list[tuple[int, TextScore]]] = {}
    for seed in options.seeds:
        for name in options.only:
            try:
                scored.setdefault(name, []).append(trained(name, seed, options))
            except DeepwireError as error:
                raise SystemExit(f"{name}: {error}") from None
            print(f"\n{table(scored)}\n", flush=True)
            write(scored, options)


if __name__ == "__main__":
    main()
