"""Options of the commands that run models: `translate`, `score` and `evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

STDIO = Path("-")

Models = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL...",
        help="Run directory (its best checkpoint), RUN@avg5 or model; several = an ensemble.",
    ),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="File for the answers; - is stdout.")]
Json = Annotated[bool, typer.Option("--json", help="Write one JSON object a line.")]
Beam = Annotated[
    int | None, typer.Option(min=1, help="Hypotheses per sentence; 1 = greedy. Default: the model's own.")
]
LengthPenalty = Annotated[
    float | None, typer.Option(help="Exponent of the length penalty; 0 = none. Default: the model's own.")
]
Guards = Annotated[
    bool,
    typer.Option(
        "--guards",
        help="Copy lines without words; search again where a translation repeats itself or does not end.",
    ),
]
Casing = Annotated[
    bool,
    typer.Option(
        "--casing",
        help="Translate lines in capitals or title case as ordinary sentences, and write them alike.",
    ),
]
Placeholders = Annotated[
    bool,
    typer.Option(
        "--placeholders",
        help="Keep numbers, addresses, %s, {name} and tags, also with a model that did not learn to.",
    ),
]
Terms = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Terms that translations must have: SOURCE<tab>TARGET in each line."),
]
TermSearch = Annotated[
    str | None,
    typer.Option(metavar="beam|prefer", help="How terms come in. Default: as the model says."),
]
Alignment = Annotated[
    bool,
    typer.Option(
        "--alignment", help="Also write which words belong together: `translation ||| 0-0 1-2`, from 0."
    ),
]
AlignmentLayer = Annotated[
    int | None,
    typer.Option(min=1, help="Decoder layer whose attention aligns. Default: the model's own, or the first."),
]
AlignmentHead = Annotated[
    int | None, typer.Option(min=1, help="Head of this layer. Default: the model's own, or the mean of all.")
]
AlignmentStep = Annotated[
    str | None,
    typer.Option(
        metavar="reads|writes", help="Attention of the step that writes a subword, or that reads it then."
    ),
]
AlignmentUnits = Annotated[
    str | None, typer.Option(metavar="words|subwords", help="What --alignment counts. Default: words.")
]
Groups = Annotated[
    str | None,
    typer.Option(
        metavar="4|3:6",
        help="Predict with one group or some groups of decoder layers alone. Default: the model's own.",
    ),
]
Rounds = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1000,
        help="Rounds of an encoder with recurrent depth: more take longer. Default: the model's own.",
    ),
]
BatchTokens = Annotated[
    int | None,
    typer.Option(
        min=1, help="Subwords with padding, times hypotheses, in a batch. Default: the model's own."
    ),
]
OtherSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting of a run file's decoding section: --set no_repeat_ngram=3; repeatable.",
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        metavar="auto|fp32|bf16|fp16|int8",
        help="fp16 or int8: weights of so many bits (CPU); auto: the fast one here, never int8.",
    ),
]
UseShortlist = Annotated[
    bool, typer.Option("--shortlist", help="Only subwords that `deepwire shortlist` found likely: faster.")
]
ShortlistFrom = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="The same, with a shortlist that lies elsewhere.")
]
Seen = Annotated[
    bool,
    typer.Option(
        "--seen",
        help="Only subwords that text of the target language has: see `deepwire shortlist --seen`.",
    ),
]
TopK = Annotated[int | None, typer.Option(min=1, help="Draw from the k most probable subwords only.")]
TopP = Annotated[
    float | None, typer.Option(help="Draw from the fewest subwords that together reach this probability.")
]
Epsilon = Annotated[
    float | None, typer.Option(help="Draw from subwords of at least this probability only, such as 0.02.")
]
MinimumBayesRisk = Annotated[
    int | None,
    typer.Option(
        "--mbr", min=2, metavar="N", help="Draw N translations; the one that agrees best with all is written."
    ),
]
Temperature = Annotated[float | None, typer.Option(help="Below 1: more careful draws, above 1: more varied.")]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Seed of the draws; the same gives the same text. Default: 1.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, or auto: a GPU if there is one.")]
Threads = Annotated[int | None, typer.Option(min=1, max=4096, help="CPU threads. Default: all.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No summary on stderr.")]
To = Annotated[
    str | None,
    typer.Option(metavar="LANGUAGE", help="Language to translate into, for models of several: --to fr."),
]
DirectionName = Annotated[
    str | None,
    typer.Option("--direction", metavar="en-de", help="For models of several directions: which one."),
]
TestSamples = Annotated[
    int | None, typer.Option(min=1, help="Resamples (default 1000) or shuffles (default 10000) of the test.")
]
TestSeed = Annotated[int | None, typer.Option(min=0, help="Seed of the test. Default: sacrebleu's, 12345.")]


def chosen_shortlist(likely: bool, folder: Path | None, seen: bool) -> bool | str | Path:
    """Which shortlist the options ask for, as `deepwire.load` wants it.

    Raises:
        UsageError: Both kinds of them.
    """
    if seen and (likely or folder is not None):
        raise UsageError("--seen excludes --shortlist and --shortlist-from", "leave out one of them")
    return "seen" if seen else folder or likely


def use_threads(count: int | None) -> None:
    """Let torch use this many CPU threads; None leaves its own choice."""
    if count is not None:
        import torch

        torch.set_num_threads(count)


def term_settings(terms: Path | None, term_search: str | None) -> dict[str, object]:
    """How terms are brought in, if that is said.

    Raises:
        UsageError: There are no terms.
    """
    if term_search is not None and terms is None:
        raise UsageError("--term-search says how terms come in, and there are none", "add --terms FILE")
    return specified(term_search=term_search)


def specified(**options: object) -> dict[str, object]:
    """The options that have a value; a switch only where it is on."""
    return {name: value for name, value in options.items() if value is not None and value is not False}


def with_others(
    settings: dict[str, object],
    others: list[str] | None,
    *,
    n_best: bool = False,
    terms: bool = False,
    alignment: bool = False,
    window: bool = True,
) -> dict[str, object]:
    """Decoding settings and those that ``--set`` names.

    Args:
        settings: By options of their own.
        others: By ``--set``.
        n_best: Whether more than the best translation is written.
        terms: Whether there are some.
        alignment: Whether something is aligned.
        window: Whether lines are read ahead.

    Raises:
        UsageError: One is not ``key=value``, is said by an option, too, or has no effect here.
    """
    from deepwire.config.merging import read_overrides
    from deepwire.decoding.decoding_config import DecodingConfig

    texts = [text.removeprefix("decoding.") for text in others or ()]
    named = read_overrides(DecodingConfig, texts, "min_length=2")
    if twice := settings.keys() & named.keys():
        name = min(twice)
        raise UsageError(f"--set {name}: another option sets {name}, too", "leave out one of them")
    for name, used, reason in (
        ("n_best", n_best, "only the best translation is used"),
        ("term_search", terms, "there are no terms"),
        ("alignment", alignment, "nothing is aligned"),
        ("window", window, "lines are not read ahead"),
    ):
        if name in named and not used:
            raise UsageError(f"--set {name}: has no effect here: {reason}", "leave it out")
    return settings | named


def alignment_settings(
    alignment: bool, layer: int | None, head: int | None, step: str | None, units: str | None
) -> dict[str, object]:
    """The settings of the alignment, those that are given.

    Raises:
        UsageError: There are some, but no alignment is asked for.
    """
    settings = specified(layer=layer, head=head, step=step, units=units)
    if settings and not alignment:
        raise UsageError(f"--alignment-{next(iter(settings))} is for alignments", "add --alignment")
    return {"alignment": settings} if settings else {}


def search_settings(
    beam: int | None,
    length_penalty: float | None,
    groups: str | None,
    rounds: int | None,
    batch_tokens: int | None,
) -> dict[str, object]:
    """Settings of a search that have a value."""
    return specified(
        beam=beam, length_penalty=length_penalty, groups=groups, rounds=rounds, batch_tokens=batch_tokens
    )


def sampling_settings(
    models: Sequence[str],
    sample: bool,
    top_k: int | None,
    top_p: float | None,
    temperature: float | None,
    seed: int | None,
    beam: int | None,
    epsilon: float | None = None,
    mbr: int | None = None,
) -> dict[str, object] | None:
    """The settings of random translations, as far as they are given; None where none are wanted.

    Raises:
        UsageError: There are some, but neither ``--sample`` nor ``--mbr`` nor stored settings of the first
            model that sample; or a beam beside these.
        ModelError: There are some, and no such model.
    """
    settings = specified(
        top_k=top_k, top_p=top_p, epsilon=epsilon, temperature=temperature, seed=seed, mbr=mbr
    )
    drawing = "--mbr" if mbr else "--sample" if sample else ""
    if settings and not drawing:
        drawing = f"--{next(iter(settings)).replace('_', '-')}"
        if not _samples(models[0]):
            raise UsageError(f"{drawing} is for random translations", "add --sample")
    if drawing and beam is not None:
        raise UsageError(
            f"--beam is for searching, and {drawing} draws translations", "leave out one of them"
        )
    return settings if drawing else None


def _samples(model: str) -> bool:
    """Whether the settings stored with a model draw at random."""
    from deepwire.checkpoint.model_path import find_model
    from deepwire.checkpoint.store import read_metadata

    stored = read_metadata(find_model(model)).get("decoding")
    return isinstance(stored, dict) and stored.get("sampling") is not None
