"""A mixer for each layer: hybrids of attention and recurrences."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationInfo, field_validator

from deepwire.model.mixers.gla import GLAConfig
from deepwire.model.mixers.mixer import Mixer, MixerSection
from deepwire.model.mixers.self_attention import SelfAttentionConfig
from deepwire.model.stack_spec import StackSpec


class PerLayerConfig(MixerSection):
    """Layer l has mixer number l of a list, which begins anew where it ends."""

    type: Literal["per_layer"] = "per_layer"
    mixers: tuple[MixerSection, ...] = Field(
        (SelfAttentionConfig(), GLAConfig()),
        description="of layers 1, 2, ..., and from the first again; mixer: [self_attention, gla] will do",
    )

    @field_validator("mixers")
    @classmethod
    def _each_is_for_a_layer(cls, mixers: tuple[MixerSection, ...]) -> tuple[MixerSection, ...]:
        if not mixers:
            raise ValueError("must name one mixer at least")
        for mixer in mixers:
            if isinstance(mixer, PerLayerConfig):
                raise ValueError("a list of mixers is made of mixers, not of lists")
            if mixer.has_companion or mixer.reads_below or mixer.replaces or mixer.brings_cross_attention:
                raise ValueError(
                    f"{mixer.type} works in all layers of a stack or in none, so no list of mixers has it"
                )
        return mixers

    @property
    def has_feed_forward(self) -> bool:
        """Whether any of them has."""
        return any(mixer.has_feed_forward for mixer in self.mixers)

    def has_norm(self, spec: StackSpec) -> bool:
        """Whether any of those that a layer has."""
        return any(mixer.has_norm(spec) for mixer in self.mixers)

    def check(self, spec: StackSpec) -> None:
        """Refuse whatever one of them refuses."""
        if len(self.mixers) > spec.layers:
            raise ValueError(
                f"{spec.side}.mixer: {len(self.mixers)} mixers for {spec.layers} layers; leave out the "
                "last ones"
            )
        for layer, mixer in enumerate(self.mixers):
            if spec.side not in mixer.sides:
                raise ValueError(f"{spec.side}.mixer: {mixer.type} does not work in the {spec.side}")
            mixer.check(self._told(mixer, replace(spec, layer=layer)))

    def check_sublayer(self, spec: StackSpec) -> None:
        """Refuse a sub-layer that one of them has no place for."""
        for mixer in self.mixers:
            mixer.check_sublayer(self._told(mixer, spec))

    def build(self, spec: StackSpec) -> Mixer:
        """The mixer of the layer."""
        mixer = self.mixers[spec.layer % len(self.mixers)]
        return mixer.build(self._told(mixer, spec))

    def _told(self, mixer: MixerSection, spec: StackSpec) -> StackSpec:
        """The spec of a mixer: beside attention with rotary positions the others have no positions."""
        beside = not mixer.has_rotary and any(other.has_rotary for other in self.mixers)
        return replace(spec, rotary=None) if beside else spec


_MIXERS = TypeAdapter(tuple[MixerSection, ...])


def _list_of_mixers(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, list | tuple):
        return value
    # Here, so that the place of a mistake is that in the list.
    return {"type": "per_layer", "mixers": _MIXERS.validate_python(value, context=info.context)}


AnyMixer = Annotated[
    MixerSection, BeforeValidator(_list_of_mixers, json_schema_input_type=tuple[MixerSection, ...])
]
"""A mixer for all layers, or a list of mixers for the layers in turn."""
