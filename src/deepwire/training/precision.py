"""The number formats of a run: chosen once, then kept by every continuation of the run."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import torch

from deepwire.errors import ModelError
from deepwire.ops.precision import MatmulPrecision, pick, set_fp32_matmul
from deepwire.training.config import Precision


@dataclass(frozen=True)
class Numerics:
    """How a run computes.

    Attributes:
        precision: ``fp32``, or ``bf16``: products in bfloat16, weights, sums and optimizer in float32.
        products: What ``torch.set_float32_matmul_precision`` is told; on some CPUs ``medium`` selects another
            library that is faster and just as exact.
        device_type: ``cpu`` or ``cuda``: the kind of device that this was chosen for.
    """

    precision: Precision
    products: MatmulPrecision
    device_type: str

    @classmethod
    def choose(cls, setting: Literal["auto", "fp32", "bf16"], device: torch.device) -> Numerics:
        """What the user asked for; for ``auto``, what the device computes faster.

        A format that was asked for involves no timing, so it is the same in every process.
        """
        kind = pick(device, setting)
        products = set_fp32_matmul("auto" if setting == "auto" else "highest")
        return cls("bf16" if kind is torch.bfloat16 else "fp32", products, device.type)

    @classmethod
    def from_json(cls, value: object) -> Numerics:
        """Read what ``to_json`` gave.

        Raises:
            ModelError: If it is something else.
        """
        match value:
            case {
                "precision": "fp32" | "bf16" as precision,
                "products": "highest" | "medium" as products,
                "device_type": str(device_type),
            }:
                return cls(precision, products, device_type)
            case _:
                raise ModelError(f"stored number formats are damaged: {value!r}")

    def to_json(self) -> dict[str, object]:
        """Plain values for a JSON file."""
        return {"precision": self.precision, "products": self.products, "device_type": self.device_type}

    def serves(self, setting: Literal["auto", "fp32", "bf16"], device: torch.device) -> bool:
        """Whether a stored choice is still what the user asks for, on this kind of device."""
        return device.type == self.device_type and setting in ("auto", self.precision)

    def apply(self) -> None:
        """Make this the way the process computes."""
        set_fp32_matmul(self.products)

    def autocast(self) -> AbstractContextManager[object]:
        """The context of every forward pass."""
        return torch.autocast(self.device_type, dtype=torch.bfloat16, enabled=self.precision == "bf16")
