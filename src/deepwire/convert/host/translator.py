"""Subwords in, subwords out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .errors import ModelError, UsageError, reason
from .graphs import RUNS, Begun, GraphModel
from .search import BOS, EOS, PAD, Hypothesis, Search

Language = Mapping[str, Any] | None
Context = tuple[Sequence[int], Sequence[int]]
"""What stands in front of a source, and in front of its translation."""
NO_CONTEXT: Context = ((), ())
SETTINGS = (
    *("beam", "n_best", "length_penalty", "length_penalty_form", "stop", "batch_tokens"),
    *("max_length_ratio", "max_length_extra", "min_length", "max_source_length"),
    *("no_repeat_ngram", "unknown_penalty"),
)
"""Settings of a search."""


class Sentence(NamedTuple):
    """Tokens of a sentence, the first of its translation, and the most that may follow."""

    source: list[int]
    tokens: list[int]
    limit: int


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest in the folder of an exported model.

    Raises:
        ModelError: There is none, or it is damaged.
    """
    path = folder / "manifest.json"
    try:
        if path.is_fifo():
            raise ValueError("it is a pipe")
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if not {"graphs", "decoding"} <= manifest.keys():
            raise ValueError("it describes no graphs")
        if manifest.get("runs", RUNS[0]) not in RUNS:
            raise ValueError(f"runs: {manifest['runs']!r}, not one of {', '.join(RUNS)}")
        sides = (names for names in manifest.get("vocabulary", {}).values() if isinstance(names, list))
        for file in (*(graph["file"] for graph in manifest["graphs"].values()), *chain(*sides)):
            if Path(file).is_absolute() or ".." in Path(file).parts:
                raise ValueError(f"{file!r} is outside of the folder")
            if (folder / file).exists() and not (folder / file).is_file():
                raise ValueError(f"{file!r} is no file")
    except OSError as error:
        raise ModelError(
            f"{path}: cannot read: {error.strerror}", "give the folder that deepwire export wrote"
        ) from error
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise ModelError(f"{path}: is damaged: {reason(error)}", "copy or export the folder anew") from error
    return manifest  # type: ignore[no-any-return]


def check_search(settings: Mapping[str, Any], beam: int, prefix: str = "") -> None:
    """Check that chosen settings can be searched with; `prefix` stands before their names in messages.

    Raises:
        UsageError: The beam or the number of translations is less than 1, or there are more of them than the
            beam finds.
    """
    labels = {name: f"{prefix}{name.replace('_', '-') if prefix else name}" for name in ("beam", "n_best")}
    for name, label in labels.items():
        if settings.get(name, 1) < 1:
            raise UsageError(f"{label} {settings[name]}: must be at least 1", "give a larger number")
    most = settings.get("n_best", 1)
    if most > beam:
        raise UsageError(
            f"{labels['n_best']} {most}: must be at most the beam, which is {beam}",
            f"also give {labels['beam']} {most}",
        )


class SubwordTranslator:
    """A model with its settings.

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
        self.manifest = read_manifest(self.folder)
        known, chosen = self.manifest["decoding"], settings or {}
        if unknown := set(chosen) - set(known):
            raise UsageError(
                f"no such setting: {', '.join(sorted(unknown))}", f"there are {', '.join(known)}"
            )
        self.settings = {**known, **chosen}
        check_search(chosen, self.settings["beam"])
        # Those stored with the model may be more than a smaller beam finds.
        self.settings["n_best"] = min(self.settings["n_best"], self.settings["beam"])
        self.model = GraphModel(self.folder, self.manifest, threads, providers)

    @property
    def alone(self) -> bool:
        """Whether the model is a decoder alone, which reads sentences of one length together."""
        return "prompt" in self.manifest.get("graphs", ())

    @property
    def writes(self) -> bool:
        """Whether it is a language model."""
        return bool(self.manifest.get("architecture") == "language_model")

    def translate_ids(
        self, sources: Sequence[Sequence[int]], to: str = "", contexts: Sequence[Context] | None = None
    ) -> list[list[Hypothesis]]:
        """The best translations of each source, all as subwords without BOS, EOS and tags.

        `contexts` are of models that read documents; without, sentences stand alone.
        """
        language, asked = self.language(to), dict[int, Sentence]()
        for row, ids in enumerate(sources):
            if len(ids):
                context = contexts[row] if contexts else NO_CONTEXT
                sentence = self.sentence(ids, language, context)
                length = len(sentence.source) - 1 - len(context[0])
                limit = int(self.settings["max_length_ratio"] * length) + self.settings["max_length_extra"]
                asked[row] = sentence._replace(limit=max(1, limit))
        found = dict(zip(asked, self.searched([*asked.values()], language), strict=True))
        return [found.get(row, []) for row in range(len(sources))]

    def continue_ids(self, prompts: Sequence[Sequence[int]], most: int) -> list[list[Hypothesis]]:
        """How a language model goes on behind each prompt, by at most so many subwords."""
        return self.searched([Sentence([], [EOS, *ids], most) for ids in prompts], None)

    def sentence(
        self, ids: Sequence[int], language: Language = None, context: Context = NO_CONTEXT
    ) -> Sentence:
        """Tokens of a source."""
        tag = None if language is None else language["source_tag"]
        head = [BOS] * self.manifest["source_bos"] + ([] if tag is None else [tag])
        first = BOS if language is None else language["first_token"]
        subwords = ids[: self.settings["max_source_length"]]
        return Sentence([*head, *context[0], *subwords, EOS], [first, *context[1]], 0)

    def language(self, name: str) -> Language:
        """Tokens and number of a target language; None with one direction."""
        languages = self.manifest["languages"]
        if not languages:
            if name:
                raise UsageError(f"{name}: the model has one direction only", "leave the language out")
            return None
        if name not in languages and (name or len(languages) > 1):
            raise UsageError(
                f"{name}: the model does not translate into it" if name else "several target languages",
                f"say which language to translate into, one of {', '.join(languages)}",
            )
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
        pieces = self.manifest["target_pieces"] + self.writes
        shown = np.array([sentence.tokens[1:] for sentence in batch], np.int64)
        before = np.where(shown == BOS, pieces - 1, shown) if self.writes else None
        search = Search(self.settings, limits, pieces, before)
        log_probs, memory, state, position = self.begin(batch, language)
        for step in range(max(limits) + 1):
            if self.writes:
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
            read = np.where(tokens == pieces - 1, BOS, tokens) if self.writes else tokens
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
            return self.model.read(source, tokens, numbers)
        memory, state = self.model.start(source, numbers)
        for position in range(tokens.shape[1]):
            log_probs, state = self.model.step(tokens[:, position : position + 1], position, memory, state)
        return Begun(log_probs, memory, state, tokens.shape[1])

    def score_ids(
        self, source: Sequence[int], target: Sequence[int], to: str = "", context: Context = NO_CONTEXT
    ) -> list[float]:
        """Log-probability of each subword of a translation, and of EOS; of a text, with an empty source."""
        language = self.language(to)
        read = Sentence([], [EOS], 0) if self.writes else self.sentence(source, language, context)
        log_probs, memory, state, position = self.begin([read], language)
        scores = [float(log_probs[0, 0, [*target, EOS][0]])]
        for place, token in enumerate(target):
            following = target[place + 1] if place + 1 < len(target) else EOS
            log_probs, state = self.model.step(np.array([[token]]), position + place, memory, state)
            scores.append(float(log_probs[0, 0, following]))
        return scores
