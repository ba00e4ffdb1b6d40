"""``deepwire train``: from a run file to a trained model."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from deepwire.command_line import again
from deepwire.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deepwire.checkpoint.run_directory import RunDirectory
    from deepwire.data.data_config import DataConfig
    from deepwire.data.prepare.prepared import Prepared
    from deepwire.data.vocabulary import Vocabularies
    from deepwire.distributed.process_group import ProcessGroup
    from deepwire.evaluation.validation_scores import ValidationScores
    from deepwire.model.encoder_decoder import TranslationModel
    from deepwire.runfile import LoadedRunFile, RunFile
    from deepwire.training.run.run_training import Outcome
    from deepwire.training.run.spec import TrainingSpec, TranslateTexts
    from deepwire.training.run.stop_reason import StopReason

_USUAL_VOCABULARY = 32_000
_LOOKED_AT = 200

RunFileName = Annotated[str, typer.Argument(metavar="RUN.yaml", help="Run file, or the name of a recipe.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings, such as training.max_updates=5k."),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Begin anew; a run that is there is moved aside to RUN.1, RUN.2, ...")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show nothing but errors; RUN/log.txt has it all.")
]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Make a few updates and show memory, tokens/s, padding and the expected time; keep nothing.",
    ),
]


def train(
    run_file: RunFileName,
    overrides: Overrides = None,
    fresh: Fresh = False,
    dry_run: DryRunOption = False,
    quiet: Quiet = False,
) -> None:
    """Train a model; text is prepared first where needed, and an interrupted run is continued.

    Examples: deepwire train run.yaml; deepwire train run.yaml training.max_updates=40k model.d_model=512;
    deepwire train run.yaml --dry-run; torchrun --nproc-per-node 4 -m deepwire train run.yaml
    """
    from deepwire.distributed.launch import join_process_group
    from deepwire.runfile import load_run_file

    @cache
    def read() -> LoadedRunFile:
        return load_run_file(run_file, overrides or ())

    def wanted() -> int:
        from deepwire.training.process_count import processes_wanted

        config = read().config
        return processes_wanted(config.training, config.model.d_model, lambda: _parameters(config))

    with join_process_group(wanted) as processes:
        loaded = _read_by_main(read, processes)
        if dry_run:
            _try_out(loaded, processes)
            return
        stop_reason = _train(loaded, processes, fresh=fresh, quiet=quiet)
    if stop_reason is not None and stop_reason.exit_code:
        raise typer.Exit(stop_reason.exit_code)


def _parameters(config: RunFile) -> int:
    """About how many the model has; before preparation nobody knows the size of every vocabulary."""
    from deepwire.cli.inspect import configured_size
    from deepwire.model.cost import meta_model

    size = configured_size(config.data) or _USUAL_VOCABULARY
    languages = 0 if config.data.languages is None else len(config.data.languages.names)
    model = meta_model(config.model, size, size, languages)
    return sum(parameter.numel() for parameter in model.parameters())


def _read_by_main(read: Callable[[], LoadedRunFile], processes: ProcessGroup) -> LoadedRunFile:
    """The run file as the main process read it, once: others might find it changed, or not at all."""
    from deepwire.runfile import LoadedRunFile

    own = processes.run_on_main_first(lambda: read() if processes.main else None)
    told = processes.broadcast_value(None if own is None else own.to_json())
    return LoadedRunFile.from_json(cast("dict[str, object]", told)) if own is None else own


def _train(loaded: LoadedRunFile, processes: ProcessGroup, *, fresh: bool, quiet: bool) -> StopReason | None:
    """Train in this process; None if there was nothing to do."""
    from deepwire.checkpoint.run_directory import RunDirectory
    from deepwire.runfile import completed
    from deepwire.training.run.run_training import finished, run_training

    run = RunDirectory(loaded.run_directory)
    done = None
    if processes.main and not fresh:
        done = finished(run, loaded.config.training, loaded.resolved, completed)
    quiet = quiet or not processes.main
    if processes.broadcast_value(done) is not None:
        if processes.main:
            print(done)
            print(f"to train longer, raise the limit; to begin anew: {again('--fresh')}")
        return None
    _look_ahead(loaded, processes, begins=fresh or not run.checkpoints())
    spec = processes.run_on_main_first(lambda: _training_spec(loaded, run, quiet))
    outcome = run_training(spec, processes=processes, fresh=fresh, quiet=quiet)
    if not quiet:
        try:
            _summarise(loaded, outcome, processes)
            sys.stdout.flush()
        except OSError as error:
            if error.errno != errno.EIO and not outcome.stop_reason.exit_code:
                raise
            _silence_stdout()  # the terminal is gone, and that may be why a signal ended the run
    return outcome.stop_reason


def _try_out(loaded: LoadedRunFile, processes: ProcessGroup) -> None:
    """Make a few updates outside of any run directory and print what they tell."""
    from deepwire.checkpoint.run_directory import RunDirectory
    from deepwire.training.dry_run import dry_run

    run = RunDirectory(loaded.run_directory)
    _look_ahead(loaded, processes, begins=True)
    spec = processes.run_on_main_first(lambda: _training_spec(loaded, run, not processes.main))
    forecast = dry_run(spec, processes=processes)
    if processes.main:
        print("\n".join(forecast.lines()))


def _look_ahead(loaded: LoadedRunFile, processes: ProcessGroup, *, begins: bool) -> None:
    """Find out now what would end the run after the preparation of the text, which may take hours.

    Raises:
        UsageError: The device is not there, a tokenizer of BLEU, or the languages that are to have parameters
            of their own.
        ModelError: There is no such model to begin with.
    """
    from deepwire.checkpoint.model_path import find_model
    from deepwire.checkpoint.store import read_metadata
    from deepwire.training.device import choose_device

    if loaded.config.model.languages.used and loaded.config.data.languages is None:
        where = next(at for key, at in loaded.origins.items() if key.startswith("model.languages"))
        raise UsageError(
            f"{where}: model.languages: this is a run of one source and one target language",
            "name several in data.directions, or leave model.languages out",
        )
    _scores(loaded)
    config = loaded.config.training
    choose_device(config.device, processes)
    if begins and config.start_from is not None:
        model = config.start_from.model  # the other processes need not see it
        processes.run_on_main_first(lambda: read_metadata(find_model(model)) if processes.main else None)


def _training_spec(loaded: LoadedRunFile, run: RunDirectory, quiet: bool) -> TrainingSpec:
    from deepwire.data.prepare.prepared import prepare
    from deepwire.model.build import build_model
    from deepwire.runfile import completed
    from deepwire.training.run.spec import TrainingSpec

    config, scores = loaded.config, _scores(loaded)
    prepared = prepare(config.data, seed=config.seed, progress=None if quiet else _Steps().show)
    words, languages = prepared.vocabularies, prepared.languages
    tags = 0 if languages is None else languages.tags
    named = {"source": config.data.source, "target": config.data.target}
    return TrainingSpec(
        run=run,
        config=config.training,
        seed=config.seed,
        resolved=dict(loaded.resolved),
        build=lambda: build_model(
            config.model,
            words.source.size + tags,
            words.target.size + tags,
            languages=0 if languages is None else len(languages.names),
        ),
        prepared=prepared,
        source_bos=config.data.source_bos,
        sampling=config.data.vocabulary.sampling,
        metadata={
            **(named if languages is None else languages.to_metadata()),
            **({"training_pairs": {share.name: share.pairs for share in prepared.mix}} if languages else {}),
            "source_bos": config.data.source_bos,
            "decoding": config.decoding.model_dump(mode="json"),
        },
        translate=_translate(loaded),
        score=scores,
        signatures=() if scores is None else scores.signatures,
        notes=() if scores is None else tuple(scores.notes(_references(prepared, config.data))),
        user_config=loaded.text,
        complete=completed,
    )


class _Steps:
    """One line on stderr for each step of preparation."""

    def __init__(self) -> None:
        self._shown = ""

    def show(self, what: str, _done: int, _total: int | None) -> None:
        if what != self._shown:
            with suppress(OSError):  # nobody may be there to read it, and the work goes on
                print(what, file=sys.stderr, flush=True)
            self._shown = what


def _translate(loaded: LoadedRunFile) -> TranslateTexts:
    """Translation of the validation set with the decoding settings of the run, but the beam of validation."""
    from deepwire.decoding.translator import Translator

    settings = {"beam": loaded.config.training.validation.beam, "n_best": 1, "sampling": None}
    decoding = loaded.config.decoding.model_copy(update=settings)

    def translate(
        model: TranslationModel, vocabularies: Vocabularies, texts: Sequence[str], /, *, to: str = ""
    ) -> list[str]:
        translator = Translator(
            [model],
            vocabularies,
            decoding,
            device=next(model.parameters()).device,
            source_bos=loaded.config.data.source_bos,
            languages=loaded.config.data.languages,
        )
        return translator.translate(texts, to=to)

    return translate


def _scores(loaded: LoadedRunFile) -> ValidationScores | None:
    """What scores translations of the validation set; None where nothing does.

    Raises:
        UsageError: A tokenizer cannot be used here.
    """
    from deepwire.evaluation.from_model import named_target
    from deepwire.evaluation.validation_scores import ValidationScores

    data, validation = loaded.config.data, loaded.config.training.validation
    if not validation.text_metrics or data.valid is None:
        return None
    target = named_target({"target": data.target})
    targets = [target] if data.languages is None else [way.target for way in data.languages.directions]
    return ValidationScores(validation.text_metrics, validation.tokenize, list(dict.fromkeys(targets)))


def _references(prepared: Prepared, data: DataConfig) -> dict[str, list[str]]:
    """The beginning of the validation text in each target language; one that nobody named is empty."""
    from deepwire.evaluation.from_model import named_target
    from deepwire.training.direction_validation import directions_in

    store = prepared.valid
    if store is None:
        return {}
    if prepared.languages is None:
        places = {named_target({"target": data.target}): list(range(min(len(store), _LOOKED_AT)))}
    else:
        parts = directions_in(store, prepared.languages).values()
        places = {part.direction.target: part.lines[:_LOOKED_AT].tolist() for part in parts}
    return {name: [store.target_text(line) for line in lines] for name, lines in places.items()}


def _first_text(data: DataConfig) -> str:
    """Options of `translate` that name a text in the source language of the run."""
    if data.languages is None:
        return f"-i TEXT.{data.source}"
    source, target = data.languages.directions[0]
    return f"--to {target} -i TEXT.{source}"


def _silence_stdout() -> None:
    """What is left to be shown goes nowhere: else its error, when Python ends, would become the exit code."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _summarise(loaded: LoadedRunFile, outcome: Outcome, processes: ProcessGroup) -> None:
    run, best = loaded.run_directory, outcome.best
    if best is not None and loaded.config.training.validation.metric in best.scores:
        scores = ", ".join(f"{name} {score:.4g}" for name, score in best.scores.items())
        print(f"best checkpoint: {best.path} ({scores})")
    elif best is not None:
        print(f"newest checkpoint: {best.path} (not validated, so none is called the best)")
    if outcome.stop_reason.finished:
        print(f"next: deepwire translate {shlex.quote(str(run))} {_first_text(loaded.config.data)}")
    else:
        on = again(without=["--fresh"])  # it would begin anew once more
        print(f"stopped by {outcome.stop_reason.reason} and saved; go on from here: {on}")
        if processes.after_stop:
            print(processes.after_stop)
