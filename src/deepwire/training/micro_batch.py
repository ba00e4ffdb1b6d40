"""How many padded tokens a forward pass takes unless the run file says so."""

from __future__ import annotations

from deepwire.training.config import Precision

# They keep the device busy and its memory in bounds. In float32 a CPU is kept busy by fewer where the model
# is wide, which takes a third less memory; in bfloat16 products are so much faster that rounding the weights
# for every pass shows (docs/performance.md).
_USUAL = {"cpu": 2048, "cuda": 16384}
_WIDE, _OF_WIDE = 256, 512


def usual_micro_batch(device_type: str, precision: Precision, width: int) -> int:
    """Padded tokens of one forward pass on a ``cpu`` or on ``cuda``, of a model of that width."""
    if (device_type, precision) == ("cpu", "fp32") and width >= _WIDE:
        return _OF_WIDE
    return _USUAL[device_type]
