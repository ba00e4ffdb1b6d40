"""Send the records of a training to MLflow (`pip install mlflow`); MLFLOW_TRACKING_URI says where it is.

deepwire train run.yaml --log-command 'python examples/trackers/to_mlflow.py my-experiment'
"""

import json
import sys
from pathlib import Path

import mlflow

mlflow.set_experiment(sys.argv[1])
for line in sys.stdin:
    record = json.loads(line)
    if record["kind"] == "begin":
        mlflow.start_run(run_name=Path(record["run"]).name)
        mlflow.log_dict(record["settings"], "settings.json")
    elif record["kind"] in ("train", "valid"):
        values = {
            f"{record['kind']}/{key}": value
            for key, value in record.items()
            if isinstance(value, int | float)
        }
        mlflow.log_metrics(values, step=record["update"])
mlflow.end_run()
