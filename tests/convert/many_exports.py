"""Models with anything at every socket, exported to ONNX; for a night, not for the suite.

    python tests/convert/many_exports.py [--models 200] [--seed 0] [--shard 1/4]

Every fourth is a decoder alone. Prints every model that cannot be exported or computes something else there;
the exit code is 1 if any does. A log-probability may differ by 1e-4 nats, or by ten times what
PyTorch's own float32 differs from float64; which models need that is printed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "model"))
from onnx_check import ALLOWED, drawn, drawn_alone, in_onnx, largest_difference, most_allowed

from deepwire.testing import small_model


def main() -> int:
    """Export this shard's models."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=200, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=0, help="of the first; each further one is one higher")
    parser.add_argument("--shard", default="1/1", help="which part of how many")
    options = parser.parse_args()
    part, parts = (int(number) for number in options.shard.split("/"))
    torch.set_num_threads(1)
    begun, worked, failures, longest = time.monotonic(), 0, 0, (0.0, "")
    for seed in range(options.seed + part - 1, options.seed + options.models, parts):
        wanted = drawn_alone(seed) if seed % 4 == 3 else drawn(seed)
        begun_model = time.process_time()
        try:
            with tempfile.TemporaryDirectory() as folder:
                model = small_model(wanted, seed)
                difference = largest_difference(model, in_onnx(model, Path(folder)))
            allowed = most_allowed(model, difference)
            if not difference <= allowed:
                raise AssertionError(f"a log-probability differs by {difference:.1e}, not {allowed:.1e}")
            if difference > ALLOWED:
                print(f"differs by {difference:.1e}, rounding allows {allowed:.1e}: {json.dumps(wanted)}")
            worked += 1
            longest = max(longest, (time.process_time() - begun_model, json.dumps(wanted)))
        # Whatever goes wrong with one model must not hide the others.
        except Exception as error:
            failures += 1
            print(f"FAILED {json.dumps(wanted)}\n  {type(error).__name__}: {error}", flush=True)
        if (worked + failures) % 10 == 0:
            print(f"{worked} work, {failures} fail, {time.monotonic() - begun:.0f} s", flush=True)
    spent = f"{time.monotonic() - begun:.0f} s, {time.process_time():.0f} s of CPU"
    print(f"{worked} work, {failures} fail; {spent}, at most {longest[0]:.0f} s by {longest[1]}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
