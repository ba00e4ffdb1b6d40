"""eole 0.6.4, the successor of OpenNMT-py, as its users run it: eole train."""

from __future__ import annotations

import json
from pathlib import Path

from peers.base import Reading, Task, Toolkit
from peers.log_lines import step_lines
from peers.opennmt_data import BUCKET, data_settings


class Eole(Toolkit):
    name = "eole"
    version_code = (
        "import importlib.metadata as m, torch; print(m.version('eole'), 'torch', torch.__version__)"
    )
    precision = "fp32"

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
        return step_lines(output)


class EoleBfloat16(Eole):
    name = "eole bf16"
    precision = "bf16"
