"""JoeyNMT 2.3.0, as its users run it: its train command, its defaults beyond what the task fixes."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime
from pathlib import Path

from peers.base import Reading, Task, Toolkit

# Its log: 2026-01-31 12:00:00,123 - INFO - joeynmt.training - Epoch 1, Step: 5, ... Tokens per Sec: 650, ...
_LINE = re.compile(r"^([\d-]+ [\d:]+,\d+) - INFO - .*Step:\s*(\d+), .*Tokens per Sec:\s*(\d+),", re.MULTILINE)
_SPECIALS = ["<unk>", "<pad>", "<s>", "</s>"]


class JoeyNMT(Toolkit):
    name = "JoeyNMT"
    version_code = (
        "import importlib.metadata as m, torch; print(m.version('joeynmt'), 'torch', torch.__version__)"
    )

    def prepare(self, folder: Path, task: Task, corpus: Path) -> None:
        words: Counter[str] = Counter()
        for language in (task.source, task.target):
            lines = Path(f"{corpus}.{language}").read_text()
            words.update(lines.split())
            # It asks for a validation set; training stops before it is used.
            few = "".join(f"{line}\n" for line in lines.splitlines()[:8])
            (folder / f"valid.{language}").write_text(few)
        vocabulary = folder / "vocabulary.txt"
        vocabulary.write_text(
            "".join(f"{word}\n" for word in [*_SPECIALS, *(w for w, _ in words.most_common())])
        )
        side = {"level": "word", "voc_file": str(vocabulary), "max_length": 256, "lowercase": False}
        stack = {
            "type": "transformer",
            "num_layers": task.layers,
            "num_heads": task.heads,
            "embeddings": {"embedding_dim": task.d_model, "scale": True, "dropout": 0.0},
            "hidden_size": task.d_model,
            "ff_size": task.d_ffn,
            "dropout": task.dropout,
            "layer_norm": "pre",
        }
        settings = {
            "name": "speed",
            "joeynmt_version": "2.3.0",
            "model_dir": "MODEL_DIR",
            "use_cuda": False,
            "fp16": False,
            "data": {
                "train": str(corpus),
                "dev": str(folder / "valid"),
                "dataset_type": "plain",
                "src": {"lang": task.source, **side},
                "trg": {"lang": task.target, **side},
            },
            "testing": {"beam_size": 1},
            "training": {
                "optimizer": "adam",
                "adam_betas": [0.9, 0.998],
                "scheduling": "warmupinversesquareroot",
                "learning_rate_warmup": 4000,
                "learning_rate": 0.001,
                "learning_rate_min": 0.0,
                "label_smoothing": task.label_smoothing,
                "normalization": "tokens",
                "clip_grad_norm": 1.0,
                "batch_size": task.batch_tokens,
                "batch_type": "token",
                "epochs": 100,
                "overwrite": True,
                "shuffle": True,
            },
            "model": {
                "initializer": "xavier_uniform",
                "tied_embeddings": True,
                "tied_softmax": True,
                "encoder": stack,
                "decoder": stack,
            },
        }
        # JSON is YAML.
        (folder / "joey.yaml").write_text(json.dumps(settings, indent=1))

    def command(self, folder: Path, updates: int, log_every: int, run: Path) -> list[str]:
        settings = json.loads((folder / "joey.yaml").read_text())
        settings["model_dir"] = str(run / "model")
        # It wants a multiple, which is never reached.
        never = log_every * (updates + 1)
        settings["training"] |= {"updates": updates, "logging_freq": log_every, "validation_freq": never}
        path = run / "joey.yaml"
        path.write_text(json.dumps(settings, indent=1))
        return [str(self.python), "-m", "joeynmt", "train", str(path), "--skip-test"]

    def readings(self, output: str, run: Path) -> list[Reading]:  # noqa: ARG002
        found: list[Reading] = []
        tokens = 0.0
        for when, step, rate in _LINE.findall(output):
            stamp = datetime.strptime(when, "%Y-%m-%d %H:%M:%S,%f").timestamp()
            # The first line may cover start-up; its tokens are never counted.
            tokens += float(rate) * (stamp - found[-1].seconds) if found else 0.0
            found.append(Reading(int(step), stamp, tokens))
        return found
