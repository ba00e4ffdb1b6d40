"""Models for several processes that compute alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepwire.api.model import Model
    from deepwire.decoding.shortlist import ShortlistChoice
    from deepwire.distributed.process_group import ProcessGroup


def load_in_processes(
    models: Sequence[str],
    settings: Mapping[str, object],
    device: str,
    precision: str,
    processes: ProcessGroup,
    shortlist: ShortlistChoice = False,
    terms: Path | None = None,
) -> tuple[Model, str]:
    """The models on the device of this process, which compute as those of the main process; the precision."""
    import torch

    from deepwire.api.model import load
    from deepwire.cli.line_by_line import warn
    from deepwire.decoding.model_loading import fastest_precision, pick_device
    from deepwire.ops.precision import set_fp32_matmul
    from deepwire.training.device import choose_device

    pick_device(device)
    own_device = choose_device(device, processes, "--device")
    if precision == "auto":
        precision = str(processes.broadcast_value(fastest_precision(own_device) if processes.main else None))
    loaded: list[Model] = []

    def tell(text: str) -> None:
        """Print a warning of the main process; all processes read the same."""
        if processes.main or loaded:
            warn(text)

    # An average that does not exist yet is made by one process.
    translator = processes.run_on_main_first(
        lambda: load(
            models,
            str(own_device),
            precision,
            settings=settings,
            warn=tell,
            shortlist=shortlist,
            terms=terms,
        )
    )
    loaded.append(translator)
    products = processes.broadcast_value(torch.get_float32_matmul_precision())
    set_fp32_matmul("medium" if products == "medium" else "highest")
    return translator, precision
