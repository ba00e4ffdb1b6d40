"""A linear map that says what it is for, so that an initialisation can treat it as its authors did."""

from __future__ import annotations

from typing import Literal

from torch import nn

Role = Literal["self_attention", "cross_attention", "attention_output", "other"]
"""What a linear map makes: queries, keys or values of an attention, what leaves an attention, or else."""


class Linear(nn.Linear):
    """`nn.Linear` with a role.

    Plain `nn.Linear` is initialised like the role `other`; a mixer whose maps have one of the other roles
    takes part by using this class.

    Attributes:
        role: What it is for.
        parts: How many maps of one size lie side by side along the outputs: 3 for queries, keys and values.
    """

    role: Role
    parts: int

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool, role: Role = "other", parts: int = 1
    ) -> None:
        super().__init__(inputs, outputs, bias=bias)
        if outputs % parts:
            raise ValueError(f"{outputs} outputs are not {parts} equal parts")
        self.role, self.parts = role, parts
