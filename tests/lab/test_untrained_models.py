from __future__ import annotations

from pathlib import Path

import pytest
import torch

from deepwire.evaluation.texts import data_section
from deepwire.lab.subject import open_untrained, untrained_model

CPU = torch.device("cpu")


def test_a_connection_that_changes_with_the_updates_is_as_in_the_first(corpus: Path) -> None:
    connection = "model.encoder.connection={type: branch_norm, updates: 40}"
    run = open_untrained(str(corpus / "small.yaml"), [connection, f"data.prepared={corpus / 'prepared'}"])
    begun = untrained_model(run, 1, CPU).encoder.connection
    assert begun.factor.item() == pytest.approx(1 / 40)


def test_admin_begins_with_what_a_batch_shows(corpus: Path) -> None:
    """As training does: from the second on scales grow with what sub-layers add, alike for one seed."""
    settings = ["model.encoder.connection=admin", f"data.prepared={corpus / 'prepared'}"]
    run = open_untrained(str(corpus / "small.yaml"), settings)
    found = []
    for seed in (1, 1, 2):
        connection = untrained_model(run, seed, CPU).encoder.connection
        found.append([scale[0].item() for scale in connection.scales])
    assert found[0][0] == 1
    assert found[0][1:] == sorted(set(found[0][1:]))
    assert found[0] == found[1] != found[2]


def test_settings_of_an_earlier_version_are_read() -> None:
    """The run has settings that are no more."""
    run = Path(__file__).parents[1] / "contract" / "stored" / "0.2.0" / "run"
    assert data_section(str(run)).source == "de"
