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
        # After an interruption, the newest run of this name goes on.
        name = Path(record["run"]).name
        known = mlflow.search_runs(filter_string=f"attributes.run_name = '{name}'", output_format="list")
        mlflow.start_run(run_id=known[0].info.run_id if known else None, run_name=name)
        mlflow.log_dict(record["settings"], "settings.json")
    elif record["kind"] in ("train", "valid"):
        values = {
            f"{record['kind']}/{key}": value
            for key, value in record.items()
            if key != "update" and isinstance(value, int | float)
        }
        mlflow.log_metrics(values, step=record["update"])
mlflow.end_run()
