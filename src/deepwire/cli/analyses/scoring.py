"""What analyses that translate and score share: models, and lines on stderr about how far they are."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepwire.analysis.subject.model_and_text import ParallelText
    from deepwire.analysis.subject.scorer import Scorer
    from deepwire.data.languages import Direction


def open_scorers(
    models: Sequence[str],
    pairs: ParallelText,
    settings: dict[str, object],
    device: str,
    precision: str,
    direction: Direction | None = None,
) -> list[Scorer]:
    """Load models to translate and score one text.

    Args:
        models: MODEL names.
        pairs: The text.
        settings: Decoding settings that replace the models' own; None leaves one as it is.
        device, precision: See ``deepwire translate``.
        direction: Of the text; needed by models of several directions.

    Raises:
        UsageError: A model does not translate in the direction.
    """
    from deepwire.analysis.subject.scorer import Scorer
    from deepwire.cli.line_by_line import given, warn
    from deepwire.evaluation.model_translations import SearchSettings, selected_target

    search = SearchSettings(given(**settings), device, precision)
    return [Scorer(name, pairs, search, warn, to=selected_target(name, direction)) for name in models]


def read_direction(text: str | None) -> Direction | None:
    """What ``--direction`` names; None where it is left out.

    Raises:
        UsageError: It is no direction.
    """
    from deepwire.evaluation.multilingual.parse_direction import parse_direction

    return None if text is None else parse_direction(text)


def tell(text: str) -> None:
    """Say on stderr how far the work is."""
    print(text, file=sys.stderr, flush=True)


def numbers(text: str, option: str) -> list[int]:
    """Whole numbers from ``1,2,4``.

    Raises:
        UsageError: The text is something else.
    """
    from deepwire.errors import UsageError

    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{option}: {text!r} is no list of whole numbers", f"write {option} 1,2,4") from None
