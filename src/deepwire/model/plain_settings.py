"""Settings beyond a plain Transformer, for formats of other programs.

Every setting is compared with that of a plain Transformer. So a new one is refused by all formats until it is
listed here, or by the format that has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from deepwire.config.section import Section
from deepwire.model.config import ModelConfig

Allowed = Mapping[str, tuple[object, ...] | None]
"""Settings by their path, where `stack` is either side, and the values that they may have; None: any, and
anything below them. A choice is known by its type, and its own settings are looked at in turn."""

_OF_EVERY_FORMAT: Allowed = {
    **dict.fromkeys(
        # Measures, biases and matrices, which are in the weights.
        ("d_model", "heads", "feed_forward", "max_length", "norm_eps", "embeddings.tie", "embeddings.scale")
    ),
    **dict.fromkeys(f"bias.{name}" for name in ("attention", "feed_forward", "output")),
    **dict.fromkeys(f"stack.size.{name}" for name in ("d_model", "heads", "feed_forward")),
    **dict.fromkeys(("stack.layers", "stack.scale_embedding")),
    # Of training alone.
    **dict.fromkeys(("dropout", "initialization", "source_loss")),
    # Forms of a table that `mixer.relative` makes.
    **dict.fromkeys(("stack.mixer.relative_values", "stack.mixer.relative_table")),
    # Looked at above: in the place of the model's, and stack by stack.
    **dict.fromkeys(("positions", "encoder", "decoder")),
    "stack.positions": ("sinusoidal", "learned"),
    **dict.fromkeys(f"stack.positions.{name}" for name in ("layout", "first", "base")),
}


def beyond_plain(config: ModelConfig, allowed: Allowed) -> str | None:
    """The first setting that a plain Transformer has otherwise, as `encoder.mixer=gru`; None without.

    Args:
        config: Of the model.
        allowed: What the format has nevertheless.
    """
    if config.is_decoder_only:
        return f"architecture={config.architecture}"
    allowed = {**_OF_EVERY_FORMAT, **allowed}
    for side in config.sides:
        stack = config.stack(side)
        whole = stack.model_copy(update={"positions": stack.positions or config.positions})
        for setting in _differing(whole, "stack.", allowed):
            return f"{side}{setting.removeprefix('stack')}"
    return next(_differing(config, "", allowed), None)


def _differing(section: Section, path: str, allowed: Allowed) -> Iterator[str]:
    for name, field in type(section).model_fields.items():
        here, value = f"{path}{name}", getattr(section, name)
        if name == "type" or (here in allowed and allowed[here] is None):
            continue
        usual = field.get_default(call_default_factory=True)
        kind, plain = getattr(value, "type", value), getattr(usual, "type", usual)
        if isinstance(value, Section) and usual is not None and kind is value:
            yield from _differing(value, f"{here}.", allowed)
        elif kind not in (allowed.get(here) or (plain,)):
            yield here if kind is value and isinstance(value, Section) else f"{here}={_text(kind)}"
        elif isinstance(value, Section):
            yield from _differing(value, f"{here}.", allowed)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
