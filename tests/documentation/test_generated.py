"""Pages and figures that scripts make of the program and of stored results."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deepwire.cli.main import COMMANDS
from deepwire.config.section import described_keys
from deepwire.runfile import RunFile

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_site"))
import command_reference
import figures
import run_file_reference
import stage

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", figures.FIGURES)
def test_figures_are_what_the_script_draws(name: str) -> None:
    """After a change: `python docs/_site/figures.py`."""
    assert (ROOT / "docs" / "assets" / f"{name}.svg").read_text(encoding="utf-8") == figures.FIGURES[name]()


def test_every_figure_stands_on_a_page() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    shown = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    assets = (ROOT / "docs" / "assets").glob("*.svg")
    assert [path.name for path in assets if f"assets/{path.name})" not in shown] == []


def test_the_reference_has_every_command_and_option() -> None:
    pages = command_reference.pages()
    assert set(pages) == {f"reference/commands/{name}.md" for name in (*COMMANDS, "index")}
    assert "| `--length-penalty` | `NUMBER` |" in pages["reference/commands/translate.md"]
    assert "## `deepwire data download`" in pages["reference/commands/data.md"]
    assert all("None" not in page for page in pages.values())
    # An empty default is none, and a limit that no one reaches is not told.
    assert all("``" not in page.replace("```", "") and "e+0" not in page for page in pages.values())


def test_examples_of_commands_are_code() -> None:
    pages = command_reference.pages()
    assert all("Example" not in page for page in pages.values())
    block = "\n".join(
        ["```sh", "deepwire prepare run.yaml", "deepwire prepare run.yaml data.vocabulary.size=4k"]
    )
    assert block in pages["reference/commands/prepare.md"]


def test_the_reference_has_every_key_with_its_meaning() -> None:
    text = "\n".join(run_file_reference.pages().values())
    missing = [key for key, meaning in described_keys(RunFile) if f"`{key.rpartition('.')[2]}`" not in text]
    assert missing == []
    assert "| `d_model` | whole number ≥ 1 | `512` | width of the stream |" in text
    assert "| `max_updates` | whole number ≥ 1 |" in text
    assert "Write the name alone" in text


def test_links_out_of_the_documentation_become_names() -> None:
    page = "See [the plugin](../../examples/plugin), [how](../../CONTRIBUTING.md#how-we-work), [x](y.md)."
    plain = stage.without_outer_links(page, "howto/extending.md")
    assert plain == (
        "See the plugin (`examples/plugin`), [how](../understand/contributing.md#how-we-work), [x](y.md)."
    )
    linked = stage.without_outer_links(page, "howto/extending.md", "https://host/us/it")
    assert "[the plugin](https://host/us/it/blob/main/examples/plugin)" in linked


def test_the_menu_has_every_generated_page() -> None:
    menu = stage.with_generated_pages((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert [page for page in stage.generated() if page not in menu] == []
