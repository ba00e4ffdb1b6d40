"""Every stack that the four tables can make, once; for a night, not for the suite.

    python tests/model/every_combination.py [--shard 1/4] [--seed 0]

Prints how many work, how many are refused and why, and every one that fails; the exit code is 1 if any does.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from choices import every_model
from test_product import refused

from deepwire.testing import check_model


def main() -> int:
    """Check this shard's models."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shard", default="1/1", help="which part of how many")
    parser.add_argument("--seed", type=int, default=0, help="of the partners and the parameters")
    options = parser.parse_args()
    part, parts = (int(number) for number in options.shard.split("/"))
    torch.set_num_threads(1)
    begun, worked, failures = time.monotonic(), 0, 0
    reasons: Counter[str] = Counter()
    for number, wanted in enumerate(every_model(options.seed)):
        if number % parts != part - 1:
            continue
        reason = refused(wanted)
        if reason is not None:
            reasons[reason] += 1
            continue
        try:
            check_model(wanted, options.seed)
            worked += 1
        # Whatever goes wrong with one model must not hide the others.
        except Exception as error:
            failures += 1
            print(f"FAILED {json.dumps(wanted)}\n  {type(error).__name__}: {error}", flush=True)
        if (worked + failures) % 200 == 0:
            print(f"{worked} work, {failures} fail, {time.monotonic() - begun:.0f} s", flush=True)
    for reason, count in reasons.most_common():
        print(f"{count} refused: {reason}")
    print(
        f"{worked} work, {sum(reasons.values())} refused, {failures} fail; {time.monotonic() - begun:.0f} s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
