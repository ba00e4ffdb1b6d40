"""OpenNMT-py 3.5.1, as its users run it: onmt_train with its defaults beyond what the task fixes."""

from __future__ import annotations

import json
from pathlib import Path

from peers.base import Reading, Task, Toolkit
from peers.log_lines import step_lines
from peers.opennmt_data import BUCKET, data_settings


class OpenNMT(Toolkit):
    name = "OpenNMT-py"
    version_code = "import onmt, torch; print(onmt.__version__, 'torch', torch.__version__)"

    def prepare(self, folder: Path, task: Task, corpus: Path) -> None:
        settings = {
            **data_settings(folder, task, corpus),
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "encoder_type": "transformer",
            "decoder_type": "transformer",
            "position_encoding": True,
            "layers": task.layers,
            "hidden_size": task.d_model,
            "word_vec_size": task.d_model,
            "transformer_ff": task.d_ffn,
            "heads": task.heads,
            "add_qkvbias": True,
            "add_ffnbias": True,
            "dropout": [task.dropout],
            "attention_dropout": [task.dropout],
            "label_smoothing": task.label_smoothing,
            "batch_type": "tokens",
            "batch_size": task.batch_tokens,
            "normalization": "tokens",
            "bucket_size": BUCKET,
            "optim": "adam",
            "adam_beta2": 0.998,
            "decay_method": "noam",
            "learning_rate": 2.0,
            "warmup_steps": 4000,
            "max_grad_norm": 1.0,
            "param_init": 0.0,
            "param_init_glorot": True,
        }
        # JSON is YAML.
        (folder / "onmt.yaml").write_text(json.dumps(settings, indent=1))

    def command(self, folder: Path, updates: int, log_every: int, run: Path) -> list[str]:
        return [
            str(self.python),
            "-m",
            "onmt.bin.train",
            *("-config", str(folder / "onmt.yaml"), "-save_model", str(run / "model")),
            *("-train_steps", str(updates), "-report_every", str(log_every)),
        ]

    def readings(self, output: str, run: Path) -> list[Reading]:  # noqa: ARG002
        return step_lines(output)
