"""The `data.noise` part of a run file: how often training text is written as people in a hurry write."""

from __future__ import annotations

from pydantic import Field, model_validator

from deepwire.config.section import Section, UnusedSettings


class TextNoiseConfig(Section):
    """Noise in the lines that training reads, drawn anew whenever a line is read.

    Validation, test text and the vocabulary see the lines as they are. See `deepwire.data.text.noise`.
    """

    upper: float = Field(0.0, ge=0, le=1, description="probability that a line is in capitals")
    upper_target: bool = Field(
        True, description="whether the target of a line in capitals is in capitals, too"
    )
    title: float = Field(0.0, ge=0, le=1, description="probability that a source line is in Title Case")
    typos: float = Field(
        0.0,
        ge=0,
        le=1,
        description="probability that a word of the source has one letter swapped, dropped or doubled",
    )
    drop_final_punctuation: float = Field(
        0.0, ge=0, le=1, description="probability that a source line loses the marks at its end"
    )

    @model_validator(mode="after")
    def _one_case(self) -> TextNoiseConfig:
        if self.upper + self.title > 1:
            raise ValueError(f"upper and title are {self.upper + self.title:g} together, but at most 1")
        return self

    def unused_settings(self) -> UnusedSettings:
        """What capitals of a target are for."""
        if not self.upper:
            yield "upper_target", "no line is in capitals; set upper"

    @property
    def used(self) -> bool:
        """Whether any line can change."""
        return any((self.upper, self.title, self.typos, self.drop_final_punctuation))
