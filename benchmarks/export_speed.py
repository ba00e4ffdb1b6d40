"""Speed of an exported model beside deepwire's own decoding, on the same sentences.

    python benchmarks/export_speed.py [--rounds 3] ...
    python benchmarks/export_speed.py MODEL --text FILE --reference FILE ...

Models, sentences, clocks and files are those of decoding_speed.py: a Transformer of 6 + 6 layers with random
weights, or a trained plain one. deepwire is timed in the number formats that pay, ONNX graphs through the
`translate.py` that lies beside them, and CTranslate2, each with weights as they are and in int8. Rounds take
turns; each is a process of its own. Processor time stands beside the time of the clock.
"""

from __future__ import annotations

import json
import runpy
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import cast

import decoding_speed
import harness
from decoding_speed import HERE, Job

from deepwire.checkpoint.store import LoadedModel, load_model, save_model
from deepwire.convert.formats import FORMATS
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import UNK, Vocabularies
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.errors import DeepwireError
from deepwire.model.translation_model import TranslationModel

Toolkits = Mapping[str, tuple[list[str], dict[str, object]]]
# Formats whose folders hold a translate.py: their names in the table, and the library that runs them.
HOSTED = {"onnx": "onnxruntime"}


def main() -> None:
    if len(sys.argv) == 4 and sys.argv[1] == "--worker":
        work(cast("Job", json.loads(Path(sys.argv[3]).read_text())), Path(sys.argv[2]))
        return
    options = decoding_speed.arguments(__doc__)
    folder = Path(tempfile.mkdtemp(prefix="export-speed-"))
    try:
        model, task = decoding_speed.prepare(options, folder)
        loaded = stored(model, task, folder / "model")
        task["origin"] = {"name": str(loaded.folder)}
        toolkits = exported(loaded, options.formats or decoding_speed.formats(), folder)
        rounds: list[dict[str, object]] = []
        for _, name in harness.in_turns(toolkits, options.rounds):
            rounds += decoding_speed.one_round(name, toolkits[name], task, folder, options)
        # Where the model lies on this machine is nobody's concern.
        task["origin"] = decoding_speed.origin_of(options)
        kind = ("Speed of exported models", "export_speed")
        print(decoding_speed.write_results(rounds, task, model, options, kind))
    except (DeepwireError, OSError) as error:
        sys.exit(f"error: {error}")
    finally:
        shutil.rmtree(folder)


def stored(model: TranslationModel, task: Job, folder: Path) -> LoadedModel:
    """The model on disk; one with random weights is stored with words that are the numbers of its ids."""
    match task["origin"]:
        case {"name": str(name)}:
            return load_model(Path(name))
    decoding_speed.end_late(model)
    numbers = " ".join(map(str, range(UNK + 1, model.target_vocabulary)))
    text = Pair(1, numbers, numbers, 0)
    words = Vocabularies.learn_from_blocks(WordsConfig(joint=True), [[text]])
    save_model(folder, model, words, {})
    return replace(load_model(folder), model=model)


def exported(model: LoadedModel, formats: list[str], folder: Path) -> Toolkits:
    """Command and settings of each program; a job is appended to the command."""
    own = [sys.executable, str(HERE / "decoding_speed.py"), "--worker"]
    found: dict[str, tuple[list[str], dict[str, object]]] = {
        f"deepwire {name}": ([*own, name], {"shortlist": 0}) for name in formats
    }
    for name, library in HOSTED.items():
        FORMATS[name].require(model)
        for kind in FORMATS[name].quantizations:
            place = folder / f"{name}-{kind}"
            place.mkdir()
            FORMATS[name].write(model, place, kind)
            command = [sys.executable, str(Path(__file__).resolve()), "--worker", str(place)]
            found[f"{library} {kind}"] = (command, {"library": library})
    FORMATS["ctranslate2"].require(model)
    decoding_speed.hand_over(model.model, folder / "exported")
    for kind in ("float32", "int8"):
        command = [sys.executable, str(HERE / "peers" / "inside" / "ctranslate2_run.py")]
        found[f"CTranslate2 {kind}"] = (command, {"compute_type": kind, "inter_threads": 1})
    return found


def work(job: Job, folder: Path) -> None:
    """One round of a folder with a translate.py, in a process of its own."""
    host = runpy.run_path(str(folder / "translate.py"))["Translator"]
    results = []
    for setting in job["settings"]:
        settings = {"beam": setting["beam"], "n_best": 1, "length_penalty": job["length_penalty"]}
        settings |= {"max_length_ratio": 0, "max_length_extra": job["longest"], "min_length": job["shortest"]}
        translator = host(folder, {**settings, "batch_tokens": 10**9}, job["threads"])
        translate(translator, job["source"][: setting["batch"]], setting["batch"])
        begun, before = time.perf_counter(), time.process_time()
        found = translate(translator, job["source"], setting["batch"])
        times = {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - before}
        results.append({**setting, **times, "translations": found})
    library = str(cast("dict[str, object]", job)["library"])
    print(json.dumps({"version": version(library), "results": results}))


def translate(translator: object, source: list[list[int]], batch: int) -> list[list[int]]:
    """The best translation of each sentence as ids; batches are taken in the order of length."""
    order = sorted(range(len(source)), key=lambda row: len(source[row]))
    found: list[list[int]] = [[] for _ in source]
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        # The host appends the end itself.
        answers = translator.translate_ids([source[row][:-1] for row in rows])  # type: ignore[attr-defined]
        for row, (best, *_) in zip(rows, answers, strict=True):
            found[row] = list(best.ids)
    return found


if __name__ == "__main__":
    main()
