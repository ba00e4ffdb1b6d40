"""Write the records of a training as TensorBoard events.

deepwire train run.yaml --log-command 'python examples/trackers/to_tensorboard.py events'
"""

import json
import sys

from torch.utils.tensorboard import SummaryWriter

with SummaryWriter(sys.argv[1] if len(sys.argv) > 1 else "events") as writer:
    for line in sys.stdin:
        record = json.loads(line)
        if record["kind"] == "begin":
            writer.add_text(
                "settings", f"```\n{json.dumps(record['settings'], indent=2)}\n```", record["update"]
            )
        for name, value in record.items():
            if record["kind"] in ("train", "valid") and name != "update" and isinstance(value, int | float):
                writer.add_scalar(f"{record['kind']}/{name}", value, record["update"])
