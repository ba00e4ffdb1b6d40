"""``deepwire shortlist``: learn which target subwords a text may need, for faster translation."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.cli.line_by_line import tell, warn
from deepwire.cli.options import STDIO, Model, Quiet, Threads, use_threads
from deepwire.errors import UsageError
from deepwire.io.progress_line import ProgressLine

if TYPE_CHECKING:
    from collections.abc import Callable

    from deepwire.data.batches.token_store import TokenStore
    from deepwire.data.vocabulary import Vocabularies

Source = Annotated[Path | None, typer.Option("--source", "-s", help="Source text. Default: that of the run.")]
Target = Annotated[Path | None, typer.Option("--target", "-t", help="Target text, line by line.")]
To = Annotated[str | None, typer.Option(metavar="LANGUAGE", help="Target language. Default: each of them.")]
Best = Annotated[int, typer.Option(min=1, help="Maximum of target subwords for a source subword.")]
First = Annotated[int, typer.Option(min=0, help="Frequent target subwords to include always.")]
Seen = Annotated[bool, typer.Option("--seen", help="Store all target subwords, for translate --seen.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Folder. Default: in the run or model.")]


def shortlist(
    model: Model,
    source: Source = None,
    target: Target = None,
    to: To = None,
    best: Best = 100,
    first: First = 1000,
    seen: Seen = False,
    output: Output = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Learn a lexical shortlist, for `deepwire translate MODEL --shortlist`.

    It is learned from the training text of the run (IBM model 1 over subwords), and kept in the run
    directory, for all its checkpoints. A model directory elsewhere needs --source and --target.

    deepwire shortlist runs/demo

    deepwire shortlist my-model --source train.de.gz --target train.en.gz --best 50

    deepwire shortlist runs/six-directions --seen        (then: translate runs/six-directions --to fr --seen)
    """
    from deepwire.checkpoint.model_path import find_model
    from deepwire.checkpoint.store import VOCABULARY, read_metadata, require_translation
    from deepwire.data.languages import Languages
    from deepwire.data.vocabulary import Vocabularies
    from deepwire.decoding import shortlist as store
    from deepwire.lab.shortlist_learning import directions_into, learn_seen_shortlist, learn_shortlist

    use_threads(threads)
    folder = find_model(model)
    metadata = read_metadata(folder)
    require_translation(model, metadata)
    into = directions_into(Languages.from_metadata(metadata), to)
    vocabularies = Vocabularies.load(folder / VOCABULARY)
    place = output or store.shortlist_path(folder, store.SEEN if seen else store.SHORTLIST)
    store.check_shortlist_path(place)
    # Read before learning, so that a damaged file is told at once.
    extends = to is not None and (place / store.RECORD).exists()
    others = store.Shortlist.load(place, vocabularies) if extends else None
    begun = time.monotonic()
    with (
        ProgressLine(every=0.5, live=False if quiet else None) as progress,
        _text(model, vocabularies, source, target, len(into), progress.count) as text,
    ):
        if source is not None:
            into = dict.fromkeys(into)
        if seen:
            learned = learn_seen_shortlist(text, vocabularies, into, progress.count)
        else:
            learned = learn_shortlist(text, vocabularies, into, progress.count, best=best, first=first)
    (learned if others is None else others.joined(learned)).save(place)
    if not quiet:
        tell(f"learned in {time.monotonic() - begun:.1f} s")
    print(place)


def _text(
    model: str,
    vocabularies: Vocabularies,
    source: Path | None,
    target: Path | None,
    languages: int,
    progress: Callable[[str, int, int | None], None],
) -> AbstractContextManager[TokenStore]:
    """The text to learn from, segmented."""
    from deepwire.decoding.translation_io import sentence_pairs
    from deepwire.lab.shortlist_learning import tokenized_store
    from deepwire.lab.subject import training_text

    if (source is None) != (target is None):
        raise UsageError("--source and --target belong together", "give both, or neither: the run's text")
    if source is not None and target is not None:
        if source == target == STDIO:
            raise UsageError("only one text can come from stdin (-)", "put the other one into a file")
        if languages > 1:
            raise UsageError(
                "the model translates into several languages", "name that of the --target file with --to"
            )
        return tokenized_store(sentence_pairs(source, target, warn), vocabularies)
    hint = "give text to learn from with --source FILE and --target FILE"
    return nullcontext(training_text(model, vocabularies, hint, progress).prepared.train)
