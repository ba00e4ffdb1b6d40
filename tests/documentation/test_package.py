"""The wheel has all that runs, and its version is that of the changelog; `.ci/package` installs it afresh."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import yaml

import deepwire
from deepwire import recipes

ROOT = Path(__file__).parents[2]


def test_the_wheel_has_everything_that_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"deepwire-{deepwire.__version__}-py3-none-any.whl"
    packed = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(
        ["git", "ls-files", "src/deepwire"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    assert {name.removeprefix("src/") for name in tracked} - packed == set()
    assert sum(name.startswith("deepwire/recipes/papers/") for name in packed) > 150
    assert len(recipes.names()) > 200
    assert not [name for name in packed if name.startswith(("tests", "docs", "benchmarks"))]


def test_the_version_is_the_same_everywhere() -> None:
    version = deepwire.__version__
    changes = re.findall(r"^## (\S+?),? ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert changes[0] in (version, "Unreleased")
    assert version in changes
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == version
