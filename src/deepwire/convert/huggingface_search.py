"""Our settings of a search as those of transformers' `generate`."""

from __future__ import annotations

from collections.abc import Mapping

from deepwire.decoding.decoding_config import DecodingConfig

_MAX_LENGTH = 512


def search_notes(config: DecodingConfig) -> tuple[str, ...]:
    """Settings of the search that differ in transformers."""
    notes = []
    if config.length_penalty and config.length_penalty_form != "average":
        power = f"^{config.length_penalty:g}"
        notes.append(
            f"transformers divides by length{power}, and not by ((5 + length) / 6){power}; with "
            "decoding.length_penalty_form: average both do the same"
        )
    if config.sampling is not None:
        notes.append("decoding.sampling is left out: generation_config.json asks for a search")
    return tuple(notes)


def generation_settings(
    config: DecodingConfig, numbers: Mapping[str, int], longest: int
) -> dict[str, object]:
    """The nearest settings of transformers' `generate`; lengths count the start symbol."""
    symbols = {f"{name}_token_id": numbers[name] for name in ("pad", "bos", "eos")}
    search: dict[str, object] = {"num_beams": config.beam}
    if config.beam > 1:
        search |= {
            "length_penalty": config.length_penalty,
            "early_stopping": True if config.stop == "first" else "never",
        }
    if config.no_repeat_ngram:
        search["no_repeat_ngram_size"] = config.no_repeat_ngram
    return {
        **symbols,
        **search,
        "max_length": min(longest, _MAX_LENGTH),
        "min_new_tokens": config.min_length,
        # Behind the softmax, so that probabilities stay as they are.
        "suppress_tokens": numbers_never(numbers),
    }


def numbers_never(numbers: Mapping[str, int]) -> list[int]:
    """The symbols that a translation never holds."""
    return sorted(numbers[name] for name in ("pad", "bos", "unk"))
