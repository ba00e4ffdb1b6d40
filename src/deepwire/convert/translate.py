"""Translates with what `deepwire export` wrote, beside which this file lies; to copy, change and ship.

    python translate.py < source.txt > translations.txt          (SentencePiece vocabularies)
    python translate.py --ids < source.ids                        (subword ids, any vocabulary)

It needs numpy and what runs the graphs, onnxruntime or torch; text needs sentencepiece too, and nothing needs
deepwire. `Translator(folder)` is the same for programs. The folder's `manifest.json` says which tensors the
graphs read and write, and how to search.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Tensors = dict[str, Array]
Run = Callable[[Tensors], Sequence[Array]]
RUNS = ("onnxruntime", "torch_export")
"""The names of what runs graphs."""


class HostError(ValueError):
    """Base of errors that end the program without a traceback; exit codes are those of deepwire."""

    exit_code = 1


class UsageError(HostError):
    """An option or setting is wrong."""

    exit_code = 2


class DataError(HostError):
    """A line of the input is wrong."""

    exit_code = 3


class ModelError(HostError):
    """The folder is no exported model, or a file of it is missing or damaged."""

    exit_code = 4


def reason(error: Exception) -> str:
    """The first line of what a library says."""
    return (str(error).splitlines() or [type(error).__name__])[0]


PAD, BOS, EOS, UNK = 0, 1, 2, 3
NEVER = -np.inf


class Hypothesis(NamedTuple):
    """A translation: subwords without EOS, its log-probability, and that under the length penalty."""

    ids: list[int]
    log_probability: float
    score: float


class Search:
    """Beam search over a batch of sentences as deepwire does it; greedy search with a beam of 1.

    Each step looks at the best `2 * beam` continuations of a sentence. Those that end with EOS and stand
    among the first `beam` are finished, and the first `beam` that go on stay open.

    Args:
        settings: Of the search.
        limits: Most subwords of each sentence.
        pieces: What has a higher number is never found.
        shortest: Fewest subwords of each sentence.
    """

    def __init__(
        self, settings: Mapping[str, Any], limits: list[int], pieces: int, shortest: int = 0
    ) -> None:
        self.settings, self.limits, self.pieces, self.shortest = settings, limits, pieces, shortest
        self.beam, count = settings["beam"], len(limits)
        self.sums: Array = np.zeros((count, 1), np.float32)
        self.history: Array = np.zeros((count, 1, 0), np.int64)
        self.finished: list[list[Hypothesis]] = [[] for _ in range(count)]
        self.finished_count = [0] * count
        self.numbers = np.arange(count)

    def divisor(self, length: int) -> float:
        """The length penalty of so many subwords, EOS counted."""
        form, exponent = self.settings["length_penalty_form"], self.settings["length_penalty"]
        return float(((5 + length) / 6 if form == "gnmt" else length) ** exponent)

    def advance(self, log_probs: Array) -> Array:
        """Continue by one subword; returns the index within the beam that each hypothesis continues."""
        length = self.history.shape[2]
        values = self.constrained(log_probs) + self.sums[:, :, None]
        sentences, _, columns = values.shape
        flat = values.reshape(sentences, -1)
        looked_at = min(1 if self.beam == 1 else 2 * self.beam, flat.shape[1])
        best = np.argpartition(-flat, looked_at - 1, axis=1)[:, :looked_at]
        order = np.argsort(-np.take_along_axis(flat, best, 1), axis=1, kind="stable")
        best = np.take_along_axis(best, order, 1)
        sums, parents, tokens = np.take_along_axis(flat, best, 1), best // columns, best % columns
        ends = tokens == EOS
        for row, place in zip(
            *np.nonzero(ends[:, : self.beam] & (sums[:, : self.beam] > NEVER)), strict=True
        ):
            self.finish(row, self.history[row, parents[row, place]].tolist(), float(sums[row, place]))
        order = np.argsort(ends, axis=1, kind="stable")[:, : self.beam]
        ends, sums, parents, tokens = (np.take_along_axis(x, order, 1) for x in (ends, sums, parents, tokens))
        self.sums = np.where(ends, np.float32(NEVER), sums)
        past = np.take_along_axis(self.history, parents[:, :, None], 1) if length else self.history
        past = np.broadcast_to(past, (*tokens.shape, length))
        self.history = np.concatenate((past, tokens[:, :, None]), 2)
        return parents

    def finish(self, row: int, ids: list[int], total: float) -> None:
        """Take in a hypothesis that has ended."""
        number = int(self.numbers[row])
        if self.settings["stop"] == "first" and self.finished_count[number] >= self.beam:
            return
        self.finished_count[number] += 1
        score = float(np.float32(total) / np.float32(self.divisor(len(ids) + 1)))
        best = [*self.finished[number], Hypothesis(ids, total, score)]
        self.finished[number] = sorted(best, key=lambda each: -each.score)[: self.settings["n_best"]]

    def going_on(self) -> Array:
        """The sentences of the batch that need another step, as indices; others leave it."""
        steps = self.history.shape[2]
        open_ = np.array([self.is_open(row, int(number), steps) for row, number in enumerate(self.numbers)])
        (rows,) = np.nonzero(open_)
        self.sums, self.history, self.numbers = self.sums[rows], self.history[rows], self.numbers[rows]
        return rows

    def is_open(self, row: int, number: int, steps: int) -> bool:
        """Whether an open hypothesis can still come into the n-best list, and none has ended the search."""
        best, finished = float(self.sums[row].max()), self.finished[number]
        if best == NEVER or (self.settings["stop"] == "first" and self.finished_count[number] >= self.beam):
            return False
        if len(finished) < self.settings["n_best"]:
            return True
        divisor = max(self.divisor(self.limits[number] + 1), self.divisor(steps + 1))
        return bool(np.float32(best) / np.float32(divisor) > finished[-1].score)

    def constrained(self, log_probs: Array) -> Array:
        """Log-probabilities with -inf at what may not follow."""
        settings, length = self.settings, self.history.shape[2]
        log_probs = log_probs.copy()
        log_probs[:, :, [PAD, BOS]] = NEVER
        log_probs[:, :, self.pieces :] = NEVER  # tags of languages
        if settings["unknown_penalty"] is None:
            log_probs[:, :, UNK] = NEVER
        else:
            log_probs[:, :, UNK] -= np.float32(settings["unknown_penalty"])
        end = log_probs[:, :, EOS].copy()
        if length < self.shortest:
            log_probs[:, :, EOS] = NEVER
            log_probs[:, :, EOS] = np.where(log_probs.max(2) == NEVER, end, NEVER)
        over = np.array([self.limits[number] <= length for number in self.numbers])
        log_probs[over] = NEVER
        log_probs[over, :, EOS] = end[over]
        return log_probs


class Begun(NamedTuple):
    """A decoder after the first tokens: log-probabilities of the next, `[N, 1, V]`, and the state."""

    log_probs: Array
    memory: Tensors
    state: Tensors
    position: int


def _onnx(path: Path, outputs: Sequence[str], threads: int, providers: Sequence[str]) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), sess_options=options, providers=list(providers))
    return lambda tensors: session.run(list(outputs), tensors)


def _torch(path: Path, threads: int) -> Run:
    import torch

    if threads:
        torch.set_num_threads(threads)
    program = torch.export.load(path).module().requires_grad_(False)  # it may give a parameter itself

    def run(tensors: Tensors) -> list[Array]:
        with torch.no_grad():
            results = program(*(torch.from_numpy(np.asarray(each, order="C")) for each in tensors.values()))
        return [each.numpy() for each in results]

    return run


class GraphModel:
    """The graphs: encoder, start and step; or prompt and step of a decoder alone.

    Args:
        folder: With the graphs.
        manifest: What there is.
        threads: Of what runs them; 0: as many as there are cores.
        providers: Where onnxruntime runs.

    Raises:
        UsageError: What runs the graphs is not installed.
        ModelError: A file is missing or damaged.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Mapping[str, Any],
        threads: int = 0,
        providers: Sequence[str] = ("CPUExecutionProvider",),
    ) -> None:
        graphs = manifest["graphs"]
        self.names = {name: [leaf["name"] for leaf in graph["outputs"]] for name, graph in graphs.items()}
        self.inputs = {name: [leaf["name"] for leaf in graph["inputs"]] for name, graph in graphs.items()}
        self.sessions: dict[str, Run] = {}
        for name, graph in graphs.items():
            path = folder / graph["file"]
            try:
                if manifest.get("runs") == "torch_export":
                    self.sessions[name] = _torch(path, threads)
                else:
                    self.sessions[name] = _onnx(path, self.names[name], threads, providers)
            except ImportError as error:
                raise UsageError(f"{path.name} cannot be run: {reason(error)}; install it") from error
            except Exception as error:  # libraries raise all kinds of them
                raise ModelError(f"{path}: cannot be read: {reason(error)}; export the model anew") from error
        first = self.names["prompt" if "prompt" in graphs else "start"]
        self.memory = {name for name in first if name.startswith("memory")}

    def run(self, graph: str, tensors: Tensors) -> Tensors:
        """The results of a graph by name; of `tensors` those that it reads."""
        inputs = {name: tensors[name] for name in self.inputs[graph]}
        return dict(zip(self.names[graph], self.sessions[graph](inputs), strict=True))

    def start(self, source: Array, languages: Array | None) -> tuple[Tensors, Tensors]:
        """Memory and first state of sentences `[N, S]`, padded with 0; state tensors are `[N, 1, ...]`."""
        given = {} if languages is None else {"languages": languages}
        started = self.run("start", {**self.run("encoder", {"source": source, **given}), **given})
        state = {name: tensor for name, tensor in started.items() if name not in self.memory}
        return {**{name: started[name] for name in self.memory}, **given}, state

    def read(self, source: Array, tokens: Array, languages: Array | None) -> Begun:
        """Read sources `[N, S]` and target tokens `[N, P]` in one pass, without padding."""
        given = {} if languages is None else {"languages": languages}
        state = self.run("prompt", {"source": source, "tokens": tokens, **given})
        return Begun(state.pop("log_probs"), given, state, source.shape[1] + tokens.shape[1])

    def step(self, tokens: Array, position: int, memory: Tensors, state: Tensors) -> tuple[Array, Tensors]:
        """Log-probabilities `[N, W, V]` of what follows the tokens `[N, W]`, and the next state."""
        given = {"tokens": tokens, "position": np.array(position), **memory, **state}
        log_probs, *new = self.run("step", given).values()
        return log_probs, dict(zip(state, new, strict=True))


Language = Mapping[str, Any] | None
Candidates = list[tuple[str, float]]
"""Texts with their scores, best first."""
SETTINGS = (
    *("beam", "n_best", "length_penalty", "length_penalty_form", "stop", "batch_tokens"),
    *("max_length_ratio", "max_length_extra", "min_length", "max_source_length", "unknown_penalty"),
)
"""Settings of a search."""
# SentencePiece writes a space as U+2581; one in the text itself is escaped.
SPACE, ESCAPE = "\u2581", "\U000f2581"


class Sentence(NamedTuple):
    """Tokens of a sentence, the first of its translation, and the most that may follow."""

    source: list[int]
    tokens: list[int]
    limit: int


class SubwordTranslator:
    """A model with its settings.

    Args:
        model: What computes: a `GraphModel`, or another with its methods `start` and `step`.
        manifest: What there is to know of it.
        settings: In the place of those of the manifest: `beam`, `n_best`, `length_penalty`, ...

    Raises:
        UsageError: A setting is unknown or cannot be.
    """

    def __init__(
        self, model: Any, manifest: Mapping[str, Any], settings: Mapping[str, Any] | None = None
    ) -> None:
        known = manifest["decoding"]
        self.model, self.manifest, self.settings = model, manifest, {**known, **(settings or {})}
        if unknown := self.settings.keys() - known:
            raise UsageError(f"no such setting: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        if self.settings["beam"] < 1:
            raise UsageError(f"beam {self.settings['beam']}: must be at least 1")
        self.settings["n_best"] = max(1, min(self.settings["n_best"], self.settings["beam"]))
        # A decoder alone reads sentences of one length together.
        self.alone = "prompt" in manifest.get("graphs", ())
        self.is_language_model = manifest.get("architecture") == "language_model"

    def translate_ids(self, sources: Sequence[Sequence[int]], to: str = "") -> list[list[Hypothesis]]:
        """The best translations of each source, all as subwords without BOS, EOS and tags."""
        language, asked = self.language(to), dict[int, Sentence]()
        for row, ids in enumerate(sources):
            if len(ids):
                sentence = self.sentence(ids, language)
                length = len(sentence.source) - 1
                limit = int(self.settings["max_length_ratio"] * length) + self.settings["max_length_extra"]
                asked[row] = sentence._replace(limit=max(1, limit))
        found = dict(zip(asked, self.searched([*asked.values()], language), strict=True))
        return [found.get(row, []) for row in range(len(sources))]

    def continue_ids(self, prompts: Sequence[Sequence[int]], most: int) -> list[list[Hypothesis]]:
        """How a language model goes on behind each prompt, by at most so many subwords."""
        return self.searched([Sentence([], [EOS, *ids], most) for ids in prompts], None)

    def sentence(self, ids: Sequence[int], language: Language = None) -> Sentence:
        """Tokens of a source."""
        tag = None if language is None else language["source_tag"]
        head = [BOS] * self.manifest["source_bos"] + ([] if tag is None else [tag])
        first = BOS if language is None else language["first_token"]
        return Sentence([*head, *ids[: self.settings["max_source_length"]], EOS], [first], 0)

    def language(self, name: str) -> Language:
        """Tokens and number of a target language; None with one direction."""
        languages = self.manifest["languages"]
        if not languages:
            if name:
                raise UsageError(f"{name}: the model has one direction only")
            return None
        if name not in languages and (name or len(languages) > 1):
            raise UsageError(f"{name or 'no language'}: translate into one of {', '.join(languages)}")
        return languages[name or next(iter(languages))]  # type: ignore[no-any-return]

    def searched(self, sentences: Sequence[Sentence], language: Language) -> list[list[Hypothesis]]:
        """The hypotheses of each sentence; those of like length go together, the longest first."""
        results: list[list[Hypothesis]] = [[] for _ in sentences]
        tokens = max(1, self.settings["batch_tokens"] // self.settings["beam"])
        # Known tokens of the translation, and tokens of the source, of which an encoder's may differ.
        sizes = [(len(sentence.tokens), len(sentence.source)) for sentence in sentences]
        order = sorted(range(len(sentences)), key=lambda row: [-size for size in sizes[row]])
        fixed = 2 if self.alone else 1
        for _, alike in groupby(order, key=lambda row: sizes[row][:fixed]):
            waiting = list(alike)
            while waiting:
                size = max(1, tokens // max(sizes[waiting[0]]))
                rows, waiting = waiting[:size], waiting[size:]
                batch = self.search([sentences[row] for row in rows], language)
                for row, hypotheses in zip(rows, batch, strict=True):
                    results[row] = hypotheses
        return results

    def search(self, batch: Sequence[Sentence], language: Language) -> list[list[Hypothesis]]:
        """Beam search of sentences that can be read together."""
        limits = [sentence.limit for sentence in batch]
        # A language model has one piece more, a line break; inside it is BOS.
        pieces = self.manifest["target_pieces"] + self.is_language_model
        shortest = self.settings["min_length"] - (len(batch[0].tokens) - 1)
        search = Search(self.settings, limits, pieces, shortest)
        log_probs, memory, state, position = self.begin(batch, language)
        for step in range(max(limits) + 1):
            if self.is_language_model:
                log_probs = np.concatenate((log_probs[:, :, : pieces - 1], log_probs[:, :, BOS : BOS + 1]), 2)
            parents = search.advance(log_probs)
            rows = search.going_on()
            if not len(rows):
                break
            if len(rows) < len(parents):
                memory = {name: tensor[rows] for name, tensor in memory.items()}
            # The beam reorder: each hypothesis gets the state of the one that it continues.
            state = {name: tensor[rows[:, None], parents[rows]] for name, tensor in state.items()}
            tokens = search.history[:, :, -1]
            read = np.where(tokens == pieces - 1, BOS, tokens) if self.is_language_model else tokens
            log_probs, state = self.model.step(read, position + step, memory, state)
        return search.finished

    def begin(self, batch: Sequence[Sentence], language: Language) -> Begun:
        """Read the sources and what is known of the translations."""
        longest = max(len(sentence.source) for sentence in batch)
        source = np.array(
            [[*sentence.source, *[PAD] * (longest - len(sentence.source))] for sentence in batch], np.int64
        )
        tokens = np.array([sentence.tokens for sentence in batch], np.int64)
        numbers = None if language is None else np.full(len(batch), language["number"], np.int64)
        if self.alone:
            begun: Begun = self.model.read(source, tokens, numbers)
            return begun
        memory, state = self.model.start(source, numbers)
        log_probs, state = self.model.step(tokens, 0, memory, state)
        return Begun(log_probs, memory, state, 1)

    def score_ids(self, source: Sequence[int], target: Sequence[int], to: str = "") -> list[float]:
        """Log-probability of each subword of a translation, and of EOS; of a text, with an empty source."""
        language = self.language(to)
        read = Sentence([], [EOS], 0) if self.is_language_model else self.sentence(source, language)
        log_probs, memory, state, position = self.begin([read], language)
        scores = []
        for place, token in enumerate(target):
            scores.append(float(log_probs[0, 0, token]))
            log_probs, state = self.model.step(np.array([[token]]), position + place, memory, state)
        return [*scores, float(log_probs[0, 0, EOS])]


class Vocabulary:
    """The SentencePiece model of one side."""

    def __init__(self, path: Path) -> None:
        if path.suffix != ".model":
            raise UsageError(f"{path} is not a SentencePiece model; segment the text yourself, see --ids")
        try:
            import sentencepiece

            self.processor: Any = sentencepiece.SentencePieceProcessor(model_file=str(path))
        except ImportError as error:
            raise UsageError(f"text needs sentencepiece: {reason(error)}") from error
        except (OSError, RuntimeError) as error:
            raise ModelError(f"{path}: cannot be read: {reason(error)}") from error

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Subword ids of each line."""
        escaped = [line.replace(ESCAPE, f"{ESCAPE}0").replace(SPACE, f"{ESCAPE}1") for line in lines]
        ids: list[list[int]] = self.processor.encode(escaped)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of subword ids."""
        decoded: str = self.processor.decode(list(ids))
        return decoded.replace(f"{ESCAPE}1", SPACE).replace(f"{ESCAPE}0", ESCAPE)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of an exported model, which another person may have written: it names files of its folder.

    Raises:
        ModelError: There is none, or it is damaged.
    """
    path = folder / "manifest.json"
    try:
        if path.is_fifo():
            raise ValueError("it is a pipe")
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if manifest["runs"] not in RUNS:
            raise ValueError(f"runs: {manifest['runs']!r}, not one of {', '.join(RUNS)}")
        sides = (names for names in manifest["vocabulary"].values() if isinstance(names, list))
        for file in (*(graph["file"] for graph in manifest["graphs"].values()), *chain(*sides)):
            if Path(file).is_absolute() or ".." in Path(file).parts:
                raise ValueError(f"{file!r} is outside of the folder")
            if (folder / file).exists() and not (folder / file).is_file():
                raise ValueError(f"{file!r} is no file")
    except (OSError, ValueError, AttributeError, LookupError, TypeError) as error:
        raise ModelError(f"{path}: cannot read: {reason(error)}") from error
    return manifest


class Translator(SubwordTranslator):
    """Translates text with an exported folder.

    Args:
        folder: What was exported.
        settings: In the place of those stored with the model: `beam`, `n_best`, `length_penalty`, ...
        threads: Of what runs the graphs; 0: as many as there are cores.
        providers: Where onnxruntime runs.

    Raises:
        UsageError: A setting is unknown or cannot be.
        ModelError: The folder is no exported model, or is damaged.
    """

    def __init__(
        self,
        folder: str | Path,
        settings: Mapping[str, Any] | None = None,
        threads: int = 0,
        providers: Sequence[str] = ("CPUExecutionProvider",),
    ) -> None:
        self.folder = Path(folder)
        manifest = read_manifest(self.folder)
        super().__init__(GraphModel(self.folder, manifest, threads, providers), manifest, settings)

    @cached_property
    def source(self) -> Vocabulary:
        """The vocabulary of sources."""
        return Vocabulary(self.folder / self.manifest["vocabulary"]["source"][0])

    @cached_property
    def target(self) -> Vocabulary:
        """The vocabulary of translations."""
        return Vocabulary(self.folder / self.manifest["vocabulary"]["target"][0])

    def translate(self, lines: Sequence[str], to: str = "") -> list[Candidates]:
        """Translates lines of text; an empty line has an empty translation."""
        found = self.translate_ids(self.source.encode(lines), to)
        return [
            [(self.target.decode(each.ids), each.score) for each in line] or [("", 0.0)] for line in found
        ]

    def generate(self, prompts: Sequence[str], most: int | None = None) -> list[Candidates]:
        """Continues texts with a language model by at most `most` subwords, which alone are scored."""
        most = self.settings["max_length_extra"] if most is None else most
        encoded = [self.target.encode(prompt.split("\n")) for prompt in prompts]
        ids = [[token for line in lines for token in (BOS, *line)][1:] for lines in encoded]
        continuations = self.continue_ids(ids, most)
        return [
            [(self.with_continuation(prompt, prompt_ids, each.ids), each.score) for each in found]
            for prompt, prompt_ids, found in zip(prompts, ids, continuations, strict=True)
        ]

    def with_continuation(self, prompt: str, ids: Sequence[int], more: Sequence[int]) -> str:
        """The prompt with its continuation, `more`."""
        beginning, whole = self.decode_lines(ids), self.decode_lines([*ids, *more])
        return prompt + whole[len(beginning) :] if whole.startswith(beginning) else whole

    def decode_lines(self, ids: Sequence[int]) -> str:
        """The text of ids; line breaks are BOS in prompts, the id after the vocabulary in continuations."""
        lines = list[list[int]]([[]])
        for token in ids:
            if token in (BOS, self.manifest["target_pieces"]):
                lines.append([])
            else:
                lines[-1].append(token)
        texts = [self.target.decode(line) for line in lines]
        return "\n".join(" ".join(re.split("\r\n|[\n\r\0]", text)) for text in texts)


def main(folder: Path) -> None:
    """Translate standard input with the model of a folder; an error is one line and an exit code."""
    parser = argparse.ArgumentParser(description="Translate or continue text with an exported model.")
    parser.add_argument("folder", nargs="?", default=folder, help="default: that of this file")
    parser.add_argument("--ids", action="store_true", help="lines are subword ids, not text")
    parser.add_argument("--to", default="", help="target language of a multilingual model")
    parser.add_argument("--beam", type=int, help="1: greedy search")
    parser.add_argument("--n-best", type=int, help="translations of each line, with scores; at most the beam")
    parser.add_argument("--length-penalty", type=float)
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    try:
        results = translate_stdin(arguments)
    except HostError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    for each in results:
        for text, score in each or [("", 0.0)]:
            print(f"{score:.6f}\t{text}" if arguments.n_best else text)


def translate_stdin(arguments: argparse.Namespace) -> list[Candidates]:
    """Translates or continues standard input.

    Raises:
        HostError: An option, a line or the model is wrong.
    """
    chosen = {name: getattr(arguments, name) for name in ("beam", "n_best", "length_penalty")}
    settings = {name: value for name, value in chosen.items() if value is not None}
    translator = Translator(arguments.folder, settings, arguments.threads)
    translator.language(arguments.to)
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")  # type: ignore[union-attr]
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    lines = [clean_line(line, number) for number, line in enumerate(sys.stdin, 1)]
    if not arguments.ids:
        if translator.is_language_model:
            return translator.generate(lines)
        return translator.translate(lines, arguments.to)
    pieces = translator.manifest["target_pieces" if translator.is_language_model else "source_pieces"]
    ids = [parse_ids(line, number, pieces) for number, line in enumerate(lines, 1)]
    if translator.is_language_model:
        results = translator.continue_ids(ids, translator.settings["max_length_extra"])
    else:
        results = translator.translate_ids(ids, arguments.to)
    return [[(" ".join(map(str, one.ids)), one.score) for one in each] for each in results]


def clean_line(line: str, number: int) -> str:
    """A line of text without its line break, NULs and BOM, as deepwire reads it.

    Raises:
        DataError: It is not UTF-8.
    """
    line = line.removesuffix("\n").removesuffix("\r").replace("\0", " ")
    line = line.removeprefix("\ufeff") if number == 1 else line
    try:
        line.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"standard input, line {number}: is not UTF-8 at character {error.start + 1}"
        ) from error
    return line


def parse_ids(line: str, number: int, pieces: int) -> list[int]:
    """Parses a line of subword ids below `pieces`.

    Raises:
        DataError: A word is not such an id.
    """
    for word in line.split():
        if not (word.isascii() and word.isdecimal() and int(word) < pieces):
            raise DataError(
                f"standard input, line {number}: {word} is not a subword id; ids are 0 to {pieces - 1}"
            )
    return [int(word) for word in line.split()]


if __name__ == "__main__":
    main(Path(__file__).resolve().parent)
