"""eole 0.6.4, the successor of OpenNMT-py, as its users run it: eole train and eole predict.

Its `-compute_dtype int8` ends with an error: settings that were renamed are asked for by their old name.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime
from pathlib import Path

from peers.base import Format, Reading, Request, Task, Toolkit

# Examples that each of the two loading processes gathers before it sorts them by length. The default of
# 262,144 is for large corpora: of 29,000 pairs both would read each nine times while training has begun, and
# hold all of that in memory. This is about what a process reads of such a corpus, and fifty batches.
BUCKET = 16_384
# [2026-01-31 12:00:00,123 INFO] Step 5/ 40; ... bsz: 3800/3900/270; ...
# bsz counts source tokens, target tokens and sentences of a batch, on average since the last line.
_LINE = re.compile(r"^\[([\d-]+ [\d:]+,\d+) INFO\] Step\s+(\d+)/.*bsz:\s*(\d+)/\s*(\d+)/", re.MULTILINE)


class Eole(Toolkit):
    name = "eole"
    version_code = (
        "import importlib.metadata as m, torch; print(m.version('eole'), 'torch', torch.__version__)"
    )
    precision = "fp32"
    formats = (Format("fp32"), Format("bf16", ("-compute_dtype", "bf16")))
    counted = re.compile(r"number of parameters: (\d+)")

    def prepare(self, folder: Path, task: Task, corpus: Path) -> None:
        settings = {
            **data_settings(folder, task, corpus),
            "model": {
                "architecture": "transformer",
                "layers": task.layers,
                "hidden_size": task.d_model,
                "transformer_ff": task.d_ffn,
                "heads": task.heads,
                "add_qkvbias": True,
                # Follows from the line above, but not in the encoder: the model that is read again has a bias
                # there that the one that was written had not.
                "add_final_linear_bias": True,
                "add_ffnbias": True,
                "share_embeddings": True,
                "share_decoder_embeddings": True,
                "embeddings": {
                    "word_vec_size": task.d_model,
                    "position_encoding": True,
                    "position_encoding_type": "SinusoidalInterleaved",
                },
            },
            "training": {
                "world_size": 0,
                "gpu_ranks": [],
                "compute_dtype": self.precision,
                "batch_type": "tokens",
                "batch_size": task.batch_tokens,
                "normalization": "tokens",
                "bucket_size": BUCKET,
                "dropout": [task.dropout],
                "attention_dropout": [task.dropout],
                "label_smoothing": task.label_smoothing,
                "optim": "adam",
                "adam_beta2": 0.998,
                "decay_method": "noam",
                "learning_rate": 2.0,
                "warmup_steps": 4000,
                "max_grad_norm": 1.0,
                "param_init_method": "xavier_uniform",
                # On by default; it keeps attention weights of every layer, which no other toolkit does.
                "log_attention_entropy": False,
            },
        }
        # JSON is YAML.
        (folder / "eole.yaml").write_text(json.dumps(settings, indent=1))

    def command(self, folder: Path, updates: int, log_every: int, run: Path) -> list[str]:
        settings = json.loads((folder / "eole.yaml").read_text())
        settings["training"] |= {"train_steps": updates, "model_path": str(run / "model")}
        settings["report_every"] = log_every
        path = run / "eole.yaml"
        path.write_text(json.dumps(settings, indent=1))
        return [str(self.python), "-m", "eole.bin.main", "train", "-config", str(path)]

    def readings(self, output: str, run: Path) -> list[Reading]:  # noqa: ARG002
        found: list[Reading] = []
        tokens, before = 0.0, 0
        for when, step, _, target in _LINE.findall(output):
            tokens += int(target) * (int(step) - before)
            before = int(step)
            stamp = datetime.strptime(when, "%Y-%m-%d %H:%M:%S,%f").timestamp()
            found.append(Reading(before, stamp, tokens))
        return found

    def translate(self, folder: Path, text: Path, output: Path, request: Request) -> list[str]:
        """Neither limit counts the end, and no step is spent on it at the upper one."""
        length = str(request.length)
        return [
            *(str(self.python), "-m", "eole.bin.main", "predict", "-world_size", "0"),
            *("-model_path", str(folder / "run" / "model"), "-src", str(text), "-output", str(output)),
            *("-beam_size", str(request.beam), "-batch_size", str(request.batch), "-batch_type", "sents"),
            *("-min_length", length, "-max_length", length, "-max_length_ratio", "0"),
            *("-length_penalty", "none"),
        ]


def data_settings(folder: Path, task: Task, corpus: Path) -> dict[str, object]:
    """Write the joint vocabulary of a corpus into the folder; gives the settings of both."""
    words: Counter[str] = Counter()
    sides = [f"{corpus}.{language}" for language in (task.source, task.target)]
    for side in sides:
        words.update(Path(side).read_text().split())
    vocabulary = folder / "vocabulary.txt"
    vocabulary.write_text("".join(f"{word}\t{count}\n" for word, count in words.most_common()))
    return {
        "data": {"corpus_1": dict(zip(("path_src", "path_tgt"), sides, strict=True))},
        "src_vocab": str(vocabulary),
        "tgt_vocab": str(vocabulary),
        "share_vocab": True,
    }


class EoleBfloat16(Eole):
    name = "eole bf16"
    precision = "bf16"
