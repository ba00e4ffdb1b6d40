"""Translate ids with CTranslate2 and time it: python ctranslate2_run.py JOB.json, in its own environment.

The model is a folder that `deepwire.convert` has written, its words are numbers. Prints one JSON line:
seconds and translations of each setting.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import ctranslate2


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    translator = ctranslate2.Translator(
        job["model"],
        compute_type=job["compute_type"],
        inter_threads=job["inter_threads"],
        intra_threads=job["threads"] // job["inter_threads"],
    )
    words = words_of(Path(job["model"]))
    source = [[words[number] for number in ids] for ids in job["source"]]
    results = []
    for setting in job["settings"]:
        translate(translator, source[: setting["batch"] * job["threads"]], setting, job)
        begun, before = time.perf_counter(), time.process_time()
        found = translate(translator, source, setting, job)
        times = {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - before}
        results.append({**setting, **times, "translations": found})
    print(json.dumps({"version": ctranslate2.__version__, "results": results}))


def words_of(model: Path) -> list[str]:
    """The word of the model for each id of a source."""
    names = (model / name for name in ("shared_vocabulary.json", "source_vocabulary.json"))
    return json.loads(next(name for name in names if name.exists()).read_text())


def translate(
    translator: ctranslate2.Translator, source: list[list[str]], setting: dict, job: dict
) -> list[list[int]]:
    """The best translation of each sentence as ids; batches are taken in the order of length."""
    options = {
        "beam_size": setting["beam"],
        "length_penalty": job["length_penalty"],
        "disable_unk": True,
        "max_decoding_length": job["longest"],
        "min_decoding_length": job["shortest"],
    }
    if setting["batch"] == 1:
        results = [found for ids in source for found in translator.translate_batch([ids], **options)]
    else:
        results = translator.translate_batch(
            source, max_batch_size=setting["batch"], batch_type="examples", **options
        )
    return [[int(token) for token in found.hypotheses[0] if token.isdigit()] for found in results]


if __name__ == "__main__":
    main()
