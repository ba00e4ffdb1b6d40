"""Write the records of a training as TensorBoard events; needs the package tensorboard alone.

deepwire train run.yaml --log-command 'python examples/trackers/to_tensorboard.py events'
"""

import json
import sys
import time

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.text.metadata import create_summary_metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto

writer = EventFileWriter(sys.argv[1] if len(sys.argv) > 1 else "events")
for line in sys.stdin:
    record = json.loads(line)
    values = []
    if record["kind"] == "begin":
        text = f"```\n{json.dumps(record['settings'], indent=2)}\n```".encode()
        values = [
            Summary.Value(
                tag="settings/text_summary",
                metadata=create_summary_metadata("settings", ""),
                tensor=make_tensor_proto([text]),
            )
        ]
    elif record["kind"] in ("train", "valid"):
        values = [
            Summary.Value(tag=f"{record['kind']}/{name}", simple_value=value)
            for name, value in record.items()
            if name != "update" and isinstance(value, int | float)
        ]
    writer.add_event(Event(step=record["update"], wall_time=time.time(), summary=Summary(value=values)))
writer.close()
