"""Send the records of a training to Trackio (`pip install trackio`), whose page runs on this machine.

deepwire train run.yaml --log-command 'python examples/trackers/to_trackio.py my-project'
"""

import json
import sys
from pathlib import Path

import trackio

for line in sys.stdin:
    record = json.loads(line)
    if record["kind"] == "begin":
        trackio.init(
            project=sys.argv[1], name=Path(record["run"]).name, config=record["settings"], resume="allow"
        )
    elif record["kind"] in ("train", "valid"):
        values = {
            f"{record['kind']}/{key}": value
            for key, value in record.items()
            if key != "update" and isinstance(value, int | float)
        }
        trackio.log(values, step=record["update"])
trackio.finish()
