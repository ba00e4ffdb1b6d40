"""Translate ids with CTranslate2 and time it: python ctranslate2_run.py JOB.json, in its own environment.

Makes a model of the arrays of `ctranslate2_model.export` where there is none yet. Prints one JSON line:
seconds and translations of each setting.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import ctranslate2
import numpy as np
from ctranslate2.specs import transformer_spec
from ctranslate2.specs.common_spec import Activation

# The entries of deepwire's vocabularies that are not words.
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(job["model"])
    if not (folder / "ctranslate2").exists():
        convert(folder)
    translator = ctranslate2.Translator(
        str(folder / "ctranslate2"),
        compute_type=job["compute_type"],
        inter_threads=job["inter_threads"],
        intra_threads=job["threads"] // job["inter_threads"],
    )
    source = [[word(number) for number in ids] for ids in job["source"]]
    results = []
    for setting in job["settings"]:
        translate(translator, source[: setting["batch"] * job["threads"]], setting, job)
        begun, before = time.perf_counter(), time.process_time()
        found = translate(translator, source, setting, job)
        times = {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - before}
        results.append({**setting, **times, "translations": found})
    print(json.dumps({"version": ctranslate2.__version__, "results": results}))


def convert(folder: Path) -> None:
    settings = json.loads((folder / "settings.json").read_text())
    spec = transformer_spec.TransformerSpec.from_config(
        tuple(settings["layers"]),
        settings["heads"],
        pre_norm=settings["pre_norm"],
        activation=Activation[settings["activation"]],
        layernorm_embedding=settings["embedding_norm"],
    )
    spec.encoder.scale_embeddings, spec.decoder.scale_embeddings = settings["scale"]
    for name, array in np.load(folder / "model.npz").items():
        *path, last = name.split("/")
        place = spec
        for part in path:
            kind, _, index = part.rpartition("_")
            listed = index.isdigit() and not hasattr(place, part)
            place = getattr(place, kind)[int(index)] if listed else getattr(place, part)
        setattr(place, last, array)
    spec.config.layer_norm_epsilon = settings["norm_eps"]
    spec.register_source_vocabulary([word(number) for number in range(settings["source_vocabulary"])])
    spec.register_target_vocabulary([word(number) for number in range(settings["target_vocabulary"])])
    spec.validate()
    (folder / "ctranslate2").mkdir()
    spec.save(str(folder / "ctranslate2"))


def word(number: int) -> str:
    return SPECIAL[number] if number < len(SPECIAL) else str(number)


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
