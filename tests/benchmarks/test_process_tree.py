"""The time and memory of a process and of all that it started, as Linux counts them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import training_speed

# Holds memory, has used CPU time, and has a child that does the same.
PROGRAM = """
import os, sys, time
held = bytearray(os.urandom(1 << 20) * 40)
while time.process_time() < 0.3:
    pass
if len(sys.argv) < 2:
    import subprocess
    subprocess.run([sys.executable, "-c", open("/proc/self/cmdline").read().split(chr(0))[2], "child"])
else:
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_what_a_process_started_counts() -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert len(list(training_speed.processes(process.pid))) == 2
        assert training_speed.cpu_seconds(process.pid) > 0.55
        assert 80 << 20 < training_speed.memory(process.pid) < 200 << 20
        process.communicate("")


def test_what_is_gone_counts_nothing() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert training_speed.memory(child) == 0
    assert training_speed.cpu_seconds(child) == pytest.approx(0)
