"""Translate with a model that `deepwire export --format onnx` wrote. A file to copy, change and ship.

    python translate.py < source.txt > translations.txt          (SentencePiece vocabularies)
    python translate.py --ids < source.ids                        (numbers of subwords, any vocabulary)

It needs numpy and onnxruntime; text needs sentencepiece too. `Translator(folder)` is the same for programs.
The folder's `manifest.json` says which tensors the graphs read and write, and how to search.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Tensors = dict[str, Array]
Language = Mapping[str, Any] | None
PAD, BOS, EOS, UNK = 0, 1, 2, 3
NEVER = -np.inf
# SentencePiece's space, where the text itself has one.
SPACE, ESCAPE = "\u2581", "\U000f2581"


class Hypothesis(NamedTuple):
    """A translation: subwords without EOS, its log-probability, and that under the length penalty."""

    ids: list[int]
    log_probability: float
    score: float


class Model:
    """The three graphs: encoder, start and step.

    Args:
        folder: With the graphs.
        manifest: What there is.
        threads: Of onnxruntime; 0: as many as there are cores.
        providers: Where onnxruntime runs.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Mapping[str, Any],
        threads: int = 0,
        providers: Sequence[str] = ("CPUExecutionProvider",),
    ) -> None:
        import onnxruntime

        graphs, options = manifest["graphs"], onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.sessions = {
            name: onnxruntime.InferenceSession(
                str(folder / graph["file"]), sess_options=options, providers=list(providers)
            )
            for name, graph in graphs.items()
        }
        self.names = {name: [leaf["name"] for leaf in graph["outputs"]] for name, graph in graphs.items()}
        self.inputs = {name: {leaf["name"] for leaf in graph["inputs"]} for name, graph in graphs.items()}
        self.memory = self.inputs["step"] & {
            name for name in self.names["start"] if name.startswith("memory")
        }

    def run(self, graph: str, tensors: Tensors) -> Tensors:
        """The results of a graph by name; of `tensors` those that it reads."""
        inputs = {name: tensor for name, tensor in tensors.items() if name in self.inputs[graph]}
        return dict(zip(self.names[graph], self.sessions[graph].run(self.names[graph], inputs), strict=True))

    def start(self, source: Array, languages: Array | None) -> tuple[Tensors, Tensors]:
        """Memory and first state of sentences `[N, S]`, padded with PAD; state tensors are `[N, 1, ...]`."""
        given = {} if languages is None else {"languages": languages}
        started = self.run("start", {**self.run("encoder", {"source": source, **given}), **given})
        state = {name: tensor for name, tensor in started.items() if name not in self.memory}
        return {**{name: started[name] for name in self.memory}, **given}, state

    def step(self, tokens: Array, position: int, memory: Tensors, state: Tensors) -> tuple[Array, Tensors]:
        """Log-probabilities `[N, W, V]` of what follows the tokens `[N, W]`, and the next state."""
        given = {"tokens": tokens, "position": np.array(position), **memory, **state}
        log_probs, *new = self.run("step", given).values()
        return log_probs, dict(zip(state, new, strict=True))


@dataclass
class Search:
    """Beam search over a batch of sentences as deepwire does it; greedy search with a beam of 1.

    Each step looks at the best `2 * beam` continuations of a sentence. Those that end with EOS and stand
    among the first `beam` are finished, and the first `beam` that go on stay open.
    """

    settings: Mapping[str, Any]
    limits: list[int]
    pieces: int
    sums: Array = field(init=False)
    history: Array = field(init=False)
    finished: list[list[Hypothesis]] = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.limits)
        self.beam = self.settings["beam"]
        self.sums = np.zeros((count, 1), np.float32)
        self.history = np.zeros((count, 1, 0), np.int64)
        self.finished = [[] for _ in range(count)]
        self.found = [0] * count
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
        if self.settings["stop"] == "first" and self.found[number] >= self.beam:
            return
        self.found[number] += 1
        score = float(np.float32(total) / np.float32(self.divisor(len(ids) + 1)))
        best = [*self.finished[number], Hypothesis(ids, total, score)]
        self.finished[number] = sorted(best, key=lambda one: -one.score)[: self.settings["n_best"]]

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
        if best == NEVER or (self.settings["stop"] == "first" and self.found[number] >= self.beam):
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
        if settings["no_repeat_ngram"]:
            self.forbid_repeats(log_probs, settings["no_repeat_ngram"])
        end = log_probs[:, :, EOS].copy()
        if length < settings["min_length"]:
            log_probs[:, :, EOS] = NEVER
            log_probs[:, :, EOS] = np.where(log_probs.max(2) == NEVER, end, NEVER)
        over = np.array([self.limits[number] <= length for number in self.numbers])
        log_probs[over] = NEVER
        log_probs[over, :, EOS] = end[over]
        return log_probs

    def forbid_repeats(self, log_probs: Array, n: int) -> None:
        """Forbid what would complete an n-gram that a hypothesis has already."""
        length = self.history.shape[2]
        for row, hypotheses in enumerate(self.history):
            for place, ids in enumerate(hypotheses):
                for begin in range(length - n + 1):
                    if (ids[begin : begin + n - 1] == ids[length - n + 1 :]).all():
                        log_probs[row, place, ids[begin + n - 1]] = NEVER


class Translator:
    """A model with its vocabularies and settings.

    Args:
        folder: What was exported.
        settings: In the place of those stored with the model: `beam`, `n_best`, `length_penalty`, ...
        threads: Of onnxruntime; 0: as many as there are cores.
        providers: Where onnxruntime runs.
    """

    def __init__(
        self,
        folder: str | Path,
        settings: Mapping[str, Any] | None = None,
        threads: int = 0,
        providers: Sequence[str] = ("CPUExecutionProvider",),
    ) -> None:
        self.folder = Path(folder)
        self.manifest = json.loads((self.folder / "manifest.json").read_text(encoding="utf-8"))
        known = self.manifest["decoding"]
        if unknown := set(settings or {}) - set(known):
            raise ValueError(f"no such setting: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        self.settings = {**known, **(settings or {})}
        self.settings["n_best"] = min(self.settings["n_best"], self.settings["beam"])
        self.model = Model(self.folder, self.manifest, threads, providers)

    def translate_ids(self, sources: Sequence[Sequence[int]], to: str = "") -> list[list[Hypothesis]]:
        """The best translations of each source, all as subwords without BOS, EOS and tags."""
        longest, language = self.settings["max_source_length"], self.language(to)
        read = [[*self.head(language), *ids[:longest], EOS] for ids in sources]
        results: list[list[Hypothesis]] = [[] for _ in read]
        tokens = max(1, self.settings["batch_tokens"] // self.settings["beam"])
        # Sentences of like length together, the longest first.
        waiting = sorted(
            (row for row, ids in enumerate(sources) if len(ids)), key=lambda row: -len(read[row])
        )
        while waiting:
            size = max(1, tokens // len(read[waiting[0]]))
            rows, waiting = waiting[:size], waiting[size:]
            for row, found in zip(rows, self.search([read[row] for row in rows], language), strict=True):
                results[row] = found
        return results

    def head(self, language: Language) -> list[int]:
        """What the model reads in front of the subwords."""
        tag = None if language is None else language["source_tag"]
        return [BOS] * self.manifest["source_bos"] + ([] if tag is None else [tag])

    def language(self, name: str) -> Language:
        """What the model reads to translate into a language; None with one direction."""
        languages = self.manifest["languages"]
        if not languages:
            return None
        if name not in languages and (name or len(languages) > 1):
            raise ValueError(f"say which language to translate into, one of {', '.join(languages)}")
        return languages[name or next(iter(languages))]  # type: ignore[no-any-return]

    def search(self, batch: Sequence[list[int]], language: Language) -> list[list[Hypothesis]]:
        """Beam search of sources as the model reads them."""
        ratio, extra = self.settings["max_length_ratio"], self.settings["max_length_extra"]
        limits = [max(1, int(ratio * (len(ids) - 1)) + extra) for ids in batch]
        search = Search(self.settings, limits, self.manifest["target_pieces"])
        memory, state = self.start(batch, language)
        tokens = np.full((len(batch), 1), BOS if language is None else language["first_token"], np.int64)
        for position in range(max(limits) + 1):
            log_probs, state = self.model.step(tokens, position, memory, state)
            parents = search.advance(log_probs)
            rows = search.going_on()
            if not len(rows):
                break
            if len(rows) < len(parents):
                memory = {name: tensor[rows] for name, tensor in memory.items()}
            # The beam reorder: each hypothesis gets the state of the one that it continues.
            state = {name: tensor[rows[:, None], parents[rows]] for name, tensor in state.items()}
            tokens = search.history[:, :, -1]
        return search.finished

    def start(self, batch: Sequence[list[int]], language: Language) -> tuple[Tensors, Tensors]:
        """Memory and first state of sources as the model reads them."""
        longest = max(map(len, batch))
        source = np.array([ids + [PAD] * (longest - len(ids)) for ids in batch], np.int64)
        numbers = None if language is None else np.full(len(batch), language["number"], np.int64)
        return self.model.start(source, numbers)

    def score_ids(self, source: Sequence[int], target: Sequence[int], to: str = "") -> list[float]:
        """Log-probability of each subword of a translation, and of EOS."""
        language = self.language(to)
        memory, state = self.start([[*self.head(language), *source, EOS]], language)
        token, scores = BOS if language is None else language["first_token"], []
        for position, wanted in enumerate([*target, EOS]):
            log_probs, state = self.model.step(np.array([[token]]), position, memory, state)
            scores.append(float(log_probs[0, 0, wanted]))
            token = wanted
        return scores

    def translate(self, lines: Sequence[str], to: str = "") -> list[list[tuple[str, float]]]:
        """The best translations of each line of text, with their scores; an empty one of an empty line."""
        source, target = self.processor("source"), self.processor("target")
        escaped = [line.replace(ESCAPE, f"{ESCAPE}0").replace(SPACE, f"{ESCAPE}1") for line in lines]

        def text(one: Hypothesis) -> str:
            decoded: str = target.decode(one.ids)
            return decoded.replace(f"{ESCAPE}1", SPACE).replace(f"{ESCAPE}0", ESCAPE)

        found = self.translate_ids(source.encode(escaped), to)
        return [[(text(one), one.score) for one in each] or [("", 0.0)] for each in found]

    def processor(self, side: str) -> Any:
        """SentencePiece with the model of a side."""
        files = self.manifest["vocabulary"][side]
        if not files[0].endswith(".model"):
            raise ValueError(f"{files[0]} is of no SentencePiece model: cut the text up yourself, see --ids")
        import sentencepiece

        return sentencepiece.SentencePieceProcessor(model_file=str(self.folder / files[0]))


def main() -> None:
    """Translate standard input."""
    parser = argparse.ArgumentParser(description="Translate with a model exported to ONNX.")
    parser.add_argument("folder", nargs="?", default=Path(__file__).parent, help="default: that of this file")
    parser.add_argument("--ids", action="store_true", help="lines are numbers of subwords, not text")
    parser.add_argument("--to", default="", help="target language, of a model of several")
    parser.add_argument("--beam", type=int, help="1: greedy search")
    parser.add_argument("--n-best", type=int, help="translations of each line, with their scores")
    parser.add_argument("--length-penalty", type=float)
    parser.add_argument("--threads", type=int, default=0)
    given = parser.parse_args()
    chosen = {name: getattr(given, name) for name in ("beam", "n_best", "length_penalty")}
    settings = {name: value for name, value in chosen.items() if value is not None}
    translator = Translator(given.folder, settings, given.threads)
    sys.stdin.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    lines = [line.rstrip("\n") for line in sys.stdin]
    if given.ids:
        found = translator.translate_ids([[int(word) for word in line.split()] for line in lines], given.to)
        texts = [[(" ".join(map(str, one.ids)), one.score) for one in each] for each in found]
    else:
        texts = translator.translate(lines, given.to)
    for each in texts:
        for text, score in each or [("", 0.0)]:
            print(f"{score:.6f}\t{text}" if given.n_best else text)


if __name__ == "__main__":
    main()
