"""Decoding speed of deepwire and CTranslate2 with the same model on the same sentences.

    python benchmarks/decoding_speed.py [--peers ~/.cache/deepwire-peers] [--rounds 3] ...
    python benchmarks/decoding_speed.py MODEL --text FILE --reference FILE ...

Without MODEL: a Transformer of 6 + 6 layers, d 512 and 32,000 subwords, random weights, 15 subwords in and
15 out. With a trained plain Transformer (run directory or model directory): the lines of FILE, and BLEU of
what comes out. Subwords to subwords: text is segmented before and joined after the clock. The model is handed
to CTranslate2 as `deepwire export` writes it, so both give nearly the same translations; how
many are equal is counted. With --shortlist deepwire is timed with and without one. Rounds take turns; each is
a process of its own that translates a little before the clock starts. Sentences that come one at a time are
translated with all threads; batches side by side, a thread each, by CTranslate2 both so and one after the
other with all threads. Writes a Markdown table and the raw
figures under benchmarks/results/.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import Any, TypedDict, cast

import harness
import torch

import deepwire
from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import load_model
from deepwire.convert.ctranslate2 import save_spec, transformer_spec
from deepwire.data.vocabulary import EOS, UNK
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.model_inputs import batches_by_length, map_batches, pad_batch
from deepwire.decoding.model_loading import PRECISIONS
from deepwire.decoding.search import Batch, generate
from deepwire.errors import DeepwireError, ModelError
from deepwire.evaluation.metric_choice import corpus_score
from deepwire.model.build import build_model
from deepwire.model.captured_steps import capturing
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.allocator import keep_memory
from deepwire.ops.packed_linear import has_kernels, pack_linears
from deepwire.ops.precision import autocast_dtype, set_fp32_matmul
from deepwire.runfile import load_run_file

HERE = Path(__file__).resolve().parent
RANDOM = ("papers/neutron-base", 32_000, 15)
# Added to the logits of the end: low enough, and sums of log-probabilities keep their digits.
UNLIKELY = -1000.0


class Job(TypedDict):
    """The task of a round of any toolkit; deepwire reads `origin`, CTranslate2 `model`."""

    origin: dict[str, str | int | list[str]]
    model: str
    source: list[list[int]]
    settings: list[dict[str, int]]
    threads: int
    length_penalty: float
    shortest: int
    longest: int
    shortlist: int


def main() -> None:
    if len(sys.argv) == 4 and sys.argv[1] == "--worker":
        job = json.loads(Path(sys.argv[3]).read_text())
        work(cast("Job", job), sys.argv[2])
        return
    options = arguments(__doc__)
    folder = Path(tempfile.mkdtemp(prefix="decoding-speed-"))
    try:
        model, task = prepare(options, folder)
        toolkits = chosen(options, model, folder)
        rounds: list[dict[str, object]] = []
        for _, name in harness.in_turns(toolkits, options.rounds):
            rounds += one_round(name, toolkits[name], task, folder, options)
    except (DeepwireError, OSError) as error:
        sys.exit(f"error: {error}")
    finally:
        shutil.rmtree(folder)
    print(write_results(rounds, task, model, options))


def arguments(description: str | None) -> argparse.Namespace:
    parser = harness.parser(description)
    parser.add_argument("model", nargs="?", metavar="MODEL")
    parser.add_argument("--text", type=Path, help="source text, a sentence a line, .gz or not")
    parser.add_argument("--reference", type=Path, help="its translation, for BLEU")
    parser.add_argument(
        "--sentences", type=int, default=200, help="how many; all lines have it as their limit"
    )
    parser.add_argument("--beam", type=int, nargs="+", default=[4, 1])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64, 512], help="sentences at a time")
    parser.add_argument("--formats", nargs="+", choices=PRECISIONS, help="of deepwire; those that pay here")
    parser.add_argument(
        "--shortlist",
        type=int,
        metavar="ROWS",
        help="time deepwire with a shortlist too, of so many random subwords a batch",
    )
    parser.add_argument("--recipe", default=RANDOM[0], help="of the random model")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes to that recipe")
    parser.add_argument("--vocabulary-size", type=int, default=RANDOM[1], help="of the random model")
    parser.add_argument("--length", type=int, default=RANDOM[2], help="subwords of its sentences")
    parser.add_argument("--peers", type=Path, default=Path("~/.cache/deepwire-peers").expanduser())
    options = parser.parse_args()
    if options.model is not None and options.text is None:
        parser.error("a trained model needs --text")
    return options


def prepare(options: argparse.Namespace, folder: Path) -> tuple[TranslationModel, Job]:
    """The model in float32, and what every toolkit is told."""
    if options.model is None:
        model = random_model(options.recipe, options.set, options.vocabulary_size)
        generator = torch.Generator().manual_seed(1)
        shape = (options.sentences, options.length - 1)
        drawn = torch.randint(EOS + 2, options.vocabulary_size, shape, generator=generator)
        source = [[*row, EOS] for row in drawn.tolist()]
        origin = origin_of(options)
        limits = (options.length, options.length)
    else:
        # A run that goes on has another best checkpoint tomorrow: every round reads this folder.
        folder_of_model = find_model(options.model)
        loaded = load_model(folder_of_model, torch.device("cpu"), torch.float32)
        model = loaded.model
        if loaded.metadata.get("source_bos") is True:
            raise ModelError("data.source_bos is not supported by this comparison")
        source = [
            [*loaded.vocabularies.source.encode(line), EOS] for line in lines(options.text, options.sentences)
        ]
        origin = {"name": str(folder_of_model)}
        limits = (1, 256)
    return model, Job(
        origin=origin,
        model=str(folder / "exported"),
        source=source,
        settings=settings_of(options),
        threads=options.threads,
        length_penalty=0.0,
        shortest=limits[0],
        longest=limits[1],
        shortlist=options.shortlist or 0,
    )


def origin_of(options: argparse.Namespace) -> dict[str, str | int | list[str]]:
    """The model as it was asked for."""
    if options.model is not None:
        return {"name": options.model}
    return {"recipe": options.recipe, "set": options.set, "vocabulary": options.vocabulary_size}


def settings_of(options: argparse.Namespace) -> list[dict[str, int]]:
    """Each beam with each number of sentences at a time."""
    return [{"beam": beam, "batch": batch} for beam in options.beam for batch in options.batch]


def random_model(recipe: str, overrides: Sequence[str], vocabulary: int) -> TranslationModel:
    """The same weights in every process."""
    torch.manual_seed(1)
    config = load_run_file(recipe, overrides).config.model
    return build_model(config, vocabulary, vocabulary).eval()


def lines(path: Path, count: int) -> list[str]:
    """The first lines of a file, .gz or not."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open() as file:
        return [line.rstrip("\n") for line, _ in zip(file, range(count), strict=False)]


def chosen(
    options: argparse.Namespace, model: TranslationModel, folder: Path
) -> Mapping[str, tuple[list[str], dict[str, object]]]:
    """Command and settings of each toolkit; a job is appended to the command."""
    own = (sys.executable, str(Path(__file__).resolve()), "--worker")
    found: dict[str, tuple[list[str], dict[str, object]]] = {}
    for name in options.formats or formats():
        found[f"deepwire {name}"] = ([*own, name], {"shortlist": 0})
        if options.shortlist:
            found[f"deepwire {name} shortlist"] = ([*own, name], {})
    python = options.peers / "ctranslate2" / "bin" / "python"
    if not python.exists():
        where = options.peers / "ctranslate2"
        print(f"CTranslate2 is not set up: benchmarks/peers/setup_ctranslate2.sh {where}")
        return found
    if find_spec("ctranslate2") is None:
        print("CTranslate2 is not installed beside deepwire: pip install '.[ctranslate2]'")
        return found
    hand_over(model, folder / "exported")
    command = [str(python), str(HERE / "peers" / "inside" / "ctranslate2_run.py")]
    # Its threads share one batch, or each has one of its own; the second changes nothing with one sentence.
    several = [each for each in settings_of(options) if each["batch"] > 1]
    for name in ("float32", "int8"):
        found[f"CTranslate2 {name}"] = (command, {"compute_type": name, "inter_threads": 1})
        if options.threads > 1 and several:
            own_batch: dict[str, object] = {"inter_threads": options.threads, "settings": several}
            found[f"CTranslate2 {name}, a batch each"] = (command, {"compute_type": name, **own_batch})
    return found


def hand_over(model: TranslationModel, folder: Path) -> None:
    """The model in the format of CTranslate2, which is given ids: its words are the numbers of ours."""
    spec = transformer_spec(model)
    special = ["<pad>", "<s>", "</s>", "<unk>"]  # as CTranslate2 calls PAD, BOS, EOS and UNK
    sizes = (model.source_vocabulary, model.target_vocabulary)
    folder.mkdir()
    save_spec(spec, [[*special, *map(str, range(len(special), size))] for size in sizes], folder)


def formats() -> list[str]:
    """The number formats that pay on this CPU."""
    found = ["fp32"]
    if autocast_dtype(torch.device("cpu"), "auto") is torch.bfloat16:
        found.append("bf16")
    return found + [name for name in ("fp16", "int8") if has_kernels(PRECISIONS[name][1])]


def one_round(
    name: str,
    toolkit: tuple[list[str], dict[str, object]],
    task: Job,
    folder: Path,
    options: argparse.Namespace,
) -> list[dict[str, object]]:
    """One process of one toolkit: a record for each beam and batch size."""
    command, own = toolkit
    job = folder / "job.json"
    job.write_text(json.dumps({**task, **own}))
    threads = str(options.threads)
    run = subprocess.run(
        [*command, str(job)],
        env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        sys.exit(f"{name} failed (status {run.returncode}):\n{run.stderr[-3000:]}")
    answer = json.loads(run.stdout.splitlines()[-1])
    found = [{"toolkit": name, "version": answer["version"], **result} for result in answer["results"]]
    for each in found:
        print(name, {key: each[key] for key in ("beam", "batch", "seconds")}, flush=True)
    return found


def work(job: Job, format_name: str) -> None:
    """One round of deepwire, in a process of its own."""
    torch.set_num_threads(job["threads"])
    keep_memory()  # as `deepwire translate` does
    kind, packing = PRECISIONS[format_name]
    if kind is torch.float32:
        set_fp32_matmul("auto")
    model: Any = model_of(job["origin"], kind)
    if job["shortest"] == job["longest"]:
        end_late(model)
    pack_linears(model, packing)
    size = model.target_vocabulary
    model = capturing(model, torch.device("cpu"), False)
    shortlist = shortlist_of(job["shortlist"], size)
    results = []
    for setting in job["settings"]:
        translate(
            model, job["source"][: setting["batch"] * job["threads"]], setting, job["longest"], shortlist
        )
        begun, before = time.perf_counter(), time.process_time()
        found = translate(model, job["source"], setting, job["longest"], shortlist)
        times = {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - before}
        results.append({**setting, **times, "translations": found})
    version = f"{deepwire.__version__} torch {torch.__version__}"
    print(json.dumps({"version": version, "results": results}))


def model_of(origin: Mapping[str, str | int | list[str]], kind: torch.dtype) -> TranslationModel:
    match origin:
        case {"name": str(name)}:
            return load_model(find_model(name), torch.device("cpu"), kind).model
        case {"recipe": str(recipe), "set": list(overrides), "vocabulary": int(size)}:
            return random_model(recipe, overrides, size).to(kind)
        case _:
            raise ValueError(f"no model: {origin}")


def end_late(model: TranslationModel) -> None:
    """Let random weights never end a translation before its limit."""
    if model.head.bias is None:
        sys.exit("error: a random model needs an output bias here: model.bias.output=true")
    with torch.no_grad():
        model.head.bias[EOS] = UNLIKELY


def shortlist_of(rows: int, size: int) -> Callable[[torch.Tensor], torch.Tensor | None]:
    """Gives the shortlist of a batch `[N, S]`; None where all subwords are to be chosen from."""
    generator, special = torch.Generator().manual_seed(1), torch.arange(UNK + 1)

    def draw(_source: torch.Tensor) -> torch.Tensor:
        others = torch.randperm(size - len(special), generator=generator)[: rows - len(special)]
        return torch.cat([special, others.sort().values + len(special)])

    return draw if rows else lambda _source: None


def translate(
    model: TranslationModel,
    source: Sequence[list[int]],
    setting: Mapping[str, int],
    longest: int,
    shortlist: Callable[[torch.Tensor], torch.Tensor | None] = lambda _source: None,
) -> list[list[int]]:
    """The best translation of each sentence as ids; batches are taken in the order of length.

    Without a length penalty, as here, both toolkits stop a sentence once nothing better can come.
    """
    config = DecodingConfig(beam=setting["beam"], length_penalty=0)
    order = [row for group in batches_by_length([len(ids) for ids in source], 1) for row in group]
    found: list[list[int]] = [[] for _ in source]
    batches = [order[start : start + setting["batch"]] for start in range(0, len(order), setting["batch"])]

    def best(rows: Sequence[int], _stop: Event) -> list[list[int]]:
        sentences = pad_batch([source[row] for row in rows], torch.device("cpu"))
        tokens = shortlist(sentences)
        few = model if tokens is None else model.select(tokens)
        answers = generate(few, Batch(sentences, [longest] * len(rows), shortlist=tokens), config)
        return [list(hypotheses[0].ids) for hypotheses in answers]

    # One sentence at a time means one after the other: what a user waits for.
    together = [batches] if setting["batch"] > 1 else [[batch] for batch in batches]
    for group in together:
        rows = sorted(row for batch in group for row in batch)
        for row, ids in zip(rows, map_batches(best, group, torch.device("cpu")), strict=True):
            found[row] = ids
    return found


def bleu(rounds: Sequence[Mapping[str, object]], options: argparse.Namespace) -> dict[str, float]:
    """BLEU of each toolkit and beam, where there is a reference; batch sizes change nothing that shows."""
    if options.model is None or options.reference is None:
        return {}
    target = load_model(find_model(options.model), torch.device("cpu"), torch.float32).vocabularies.target
    references = lines(options.reference, options.sentences)
    scores = {}
    for each in rounds:
        hypotheses = [target.decode(ids) for ids in cast("list[list[int]]", each["translations"])]
        scores[f"{each['toolkit']}, beam {each['beam']}"] = corpus_score("bleu", hypotheses, references).value
    return scores


def write_results(
    rounds: Sequence[Mapping[str, object]],
    task: Job,
    model: TranslationModel,
    options: argparse.Namespace,
    kinds: tuple[str, str] = ("Decoding speed", "decoding_speed"),
) -> str:
    """Table and raw figures under the options' folder; `kinds`: heading, and how the files' names begin."""
    parameters, scores = sum(each.numel() for each in model.parameters()), bleu(rounds, options)
    record: dict[str, object] = {
        "origin": task["origin"],
        "sentences": len(task["source"]),
        "parameters": parameters,
        "shortlist": options.shortlist,
        "bleu": scores,
        "rounds": [{key: value for key, value in each.items() if key != "translations"} for each in rounds],
    }
    beams, batches = (sorted({int(str(each[name])) for each in rounds}) for name in ("beam", "batch"))
    about = (
        f"{in_words(task['origin'])}, {parameters:,} parameters; {len(task['source'])} sentences, "
        f"{options.rounds} rounds in turn."
    )
    lines = [about, "", *as_table(rounds, len(task["source"]))]
    if scores:
        lines += ["", "BLEU: " + "; ".join(f"{name} {score:.2f}" for name, score in scores.items()) + "."]
    return harness.write(
        options,
        [kinds[1], "random" if options.model is None else "trained"],
        f"{kinds[0]}: beam {either(beams)}, {either(batches)} at a time",
        lines,
        record,
    )


def in_words(origin: Mapping[str, str | int | list[str]]) -> str:
    """A model in words."""
    match origin:
        case {"recipe": str(recipe), "set": list(changes), "vocabulary": int(words)}:
            return f"{' '.join([recipe, *changes])}, {words:,} subwords, random weights"
    return str(origin["name"])


def either(numbers: Sequence[int]) -> str:
    return " or ".join(map(str, numbers))


def as_table(rounds: Sequence[Mapping[str, object]], sentences: int) -> list[str]:
    heads = ["beam", "batch", "toolkit", "version", "sentences/s", "lowest", "highest", "sentences/CPU-s"]
    rows = []
    for beam, batch in dict.fromkeys((each["beam"], each["batch"]) for each in rounds):
        here = [each for each in rounds if (each["beam"], each["batch"]) == (beam, batch)]
        first = cast("list[list[int]]", here[0]["translations"])
        for name in dict.fromkeys(each["toolkit"] for each in here):
            own = [each for each in here if each["toolkit"] == name]
            rates = [sentences / cast("float", each["seconds"]) for each in own]
            busy = [sentences / cast("float", each["cpu_seconds"]) for each in own]
            made = cast("list[list[int]]", own[0]["translations"])
            equal = sum(one == other for one, other in zip(made, first, strict=True))
            tokens = statistics.median(rates) * sum(len(ids) + 1 for ids in made) / sentences
            speeds = [statistics.median(rates), min(rates), max(rates), statistics.median(busy)]
            cells = [f"{speed:.2f}" for speed in speeds]
            cells += [f"{tokens:.0f}", f"{equal / sentences:.1%}"]
            rows.append([beam, batch, name, own[0]["version"], *cells])
    return harness.table([*heads, "tokens/s", "same translations as the first row"], rows)


if __name__ == "__main__":
    main()
