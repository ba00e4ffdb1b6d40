"""Reading the logs of OpenNMT-py and its successor eole, which have one form."""

from __future__ import annotations

import re
from datetime import datetime

from peers.base import Reading

# [2026-01-31 12:00:00,123 INFO] Step 5/ 40; ... bsz: 3800/3900/270; ...
# bsz counts source tokens, target tokens and sentences of a batch, on average since the last line.
_LINE = re.compile(r"^\[([\d-]+ [\d:]+,\d+) INFO\] Step\s+(\d+)/.*bsz:\s*(\d+)/\s*(\d+)/", re.MULTILINE)


def step_lines(output: str) -> list[Reading]:
    """A reading for each line of a step."""
    found: list[Reading] = []
    tokens, before = 0.0, 0
    for when, step, _, target in _LINE.findall(output):
        tokens += int(target) * (int(step) - before)
        before = int(step)
        stamp = datetime.strptime(when, "%Y-%m-%d %H:%M:%S,%f").timestamp()
        found.append(Reading(before, stamp, tokens))
    return found
