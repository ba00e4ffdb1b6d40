"""Send the records of a training to Weights & Biases (`pip install wandb`, then `wandb login`).

deepwire train run.yaml --log-command 'python examples/trackers/to_wandb.py my-project'
"""

import json
import sys
from pathlib import Path

import wandb

for line in sys.stdin:
    record = json.loads(line)
    if record["kind"] == "begin":
        # The same id after an interruption: the run goes on there, too.
        name = Path(record["run"]).name
        wandb.init(project=sys.argv[1], name=name, id=name, resume="allow", config=record["settings"])
        wandb.define_metric("*", step_metric="update")
    elif record["kind"] in ("train", "valid"):
        values = {
            f"{record['kind']}/{key}": value
            for key, value in record.items()
            if key != "update" and isinstance(value, int | float)
        }
        wandb.log({"update": record["update"], **values})
wandb.finish()
