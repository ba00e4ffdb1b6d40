"""``python -m deepwire``: the same as the command ``deepwire``."""

from __future__ import annotations

from deepwire.cli.main import run

if __name__ == "__main__":
    run()
