"""Marian's Transformer by its own equations, computed with numpy from its `.npz` file.

For the comparison of an export: the parameters, options and vocabulary that Marian would read, and nothing
else. Prefixes of parameters and the order of operations are Marian's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepwire.convert.marian_files import read_npz
from deepwire.data.vocabulary import PAD

Array = NDArray[Any]
Floats = NDArray[np.float32]
Tensors = dict[str, Array]
_EPSILON = 1e-6
_HIDDEN = -99999999.0


class MarianModel:
    """Encoder and decoder steps for the search of exports: states `[N, W, ...]`, memory `[N, ...]`."""

    def __init__(self, path: Path) -> None:
        self.arrays, self.options = read_npz(path)
        self.heads = int(str(self.options["transformer-heads"]))
        self.dim = int(str(self.options["dim-emb"]))
        self.recurrent = self.options["transformer-decoder-autoreg"] == "rnn"

    def start(self, source: Array, languages: Array | None) -> tuple[Tensors, Tensors]:
        """Memory and first state of sentences `[N, S]`, padded with PAD."""
        mask = np.where(source == PAD, _HIDDEN, 0.0)[:, None, None, None].astype(np.float32)
        x = self._embed("encoder", self._table("encoder")[source], np.arange(source.shape[1]))[:, None]
        for layer in range(1, self._depth("enc") + 1):
            place = f"encoder_l{layer}"
            x = self._attend(f"{place}_self", x, *self._keys(f"{place}_self", x), mask)
            x = self._feed_forward(f"{place}_ffn", x)
        memory: Tensors = {"mask": mask}
        state: Tensors = {}
        for layer in range(1, self._depth("dec") + 1):
            place = f"decoder_l{layer}"
            memory[f"{place}_k"], memory[f"{place}_v"] = self._keys(f"{place}_context", x)
            if self.recurrent:
                state[place] = np.zeros((len(source), 1, self.dim), np.float32)
            else:
                state |= {
                    f"{place}_{name}": np.zeros((len(source), 1, 0, self.dim), np.float32) for name in "kv"
                }
        return memory, state

    def step(self, tokens: Array, position: int, memory: Tensors, state: Tensors) -> tuple[Floats, Tensors]:
        """Log-probabilities `[N, W, V]` of what follows the tokens `[N, W]`, and the next state."""
        words = self._table("decoder")[tokens] if position else np.zeros((*tokens.shape, self.dim))
        x = self._embed("decoder", words, np.full(1, position))[:, :, None]
        new: Tensors = {}
        for layer in range(1, self._depth("dec") + 1):
            place = f"decoder_l{layer}"
            if self.recurrent:
                x, new[place] = self._ssru(f"{place}_rnn", x, state[place])
            else:
                fresh = self._keys(f"{place}_self", x)
                for name, each in zip("kv", fresh, strict=True):
                    new[f"{place}_{name}"] = np.concatenate((state[f"{place}_{name}"], each), 2)
                x = self._attend(f"{place}_self", x, new[f"{place}_k"], new[f"{place}_v"], None)
            context = memory[f"{place}_k"], memory[f"{place}_v"]
            x = self._attend(f"{place}_context", x, *context, memory["mask"])
            x = self._feed_forward(f"{place}_ffn", x)
        logits = x[:, :, 0] @ self._projection() + self.arrays["decoder_ff_logit_out_b"][0]
        logits -= logits.max(-1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True)), new

    def _depth(self, side: str) -> int:
        return int(str(self.options[f"{side}-depth"]))

    def _table(self, side: str) -> Floats:
        shared = self.options["tied-embeddings-all"] or self.options["tied-embeddings-src"]
        return self.arrays["Wemb" if shared else f"{side}_Wemb"]

    def _projection(self) -> Floats:
        tied = self.options["tied-embeddings-all"] or self.options["tied-embeddings"]
        return self._table("decoder").T if tied else self.arrays["decoder_ff_logit_out_W"]

    def _embed(self, side: str, words: Array, positions: Array) -> Floats:
        """Scaled words and sinusoids, normalised where Marian's options say so."""
        half = self.dim // 2
        angles = positions[:, None] * np.exp(-np.log(10000.0) * np.arange(half) / (half - 1))
        signal = np.concatenate((np.sin(angles), np.cos(angles)), 1)
        x = (words * self.dim**0.5 + signal).astype(np.float32)
        return (
            self._norm(f"{side}_emb", x, "_pre")
            if "n" in str(self.options["transformer-postprocess-emb"])
            else x
        )

    def _norm(self, place: str, x: Floats, suffix: str = "") -> Floats:
        centred = x - x.mean(-1, keepdims=True)
        gain, bias = (self.arrays[f"{place}_ln_{name}{suffix}"][0] for name in ("scale", "bias"))
        normed: Floats = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + _EPSILON) * gain + bias
        return normed

    def _map(self, place: str, name: str, x: Floats) -> Floats:
        mapped: Floats = x @ self.arrays[f"{place}_W{name}"] + self.arrays[f"{place}_b{name}"][0]
        return mapped

    def _keys(self, place: str, x: Floats) -> tuple[Floats, Floats]:
        return self._map(place, "k", x), self._map(place, "v", x)

    def _attend(self, place: str, x: Floats, keys: Array, values: Array, mask: Array | None) -> Floats:
        """Attend from `[N, W, T, d]` to keys and values `[N, W or 1, S, d]`; mask `[N, 1, 1, 1, S]`."""
        query, key, value = (self._split(each) for each in (self._map(place, "q", x), keys, values))
        scores = query @ key.swapaxes(-1, -2) / np.sqrt(np.float32(key.shape[-1]))
        scores = scores if mask is None else scores + mask
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True)) @ value
        joined = mixed.swapaxes(-2, -3).reshape(x.shape)
        return self._norm(f"{place}_Wo", x + self._map(place, "o", joined))

    def _split(self, x: Array) -> Array:
        return x.reshape(*x.shape[:-1], self.heads, -1).swapaxes(-2, -3)

    def _feed_forward(self, place: str, x: Floats) -> Floats:
        inner = self._map(place, "1", x)
        swish = self.options["transformer-ffn-activation"] == "swish"
        inner = inner / (1 + np.exp(-inner)) if swish else np.maximum(inner, 0)
        return self._norm(f"{place}_ffn", x + self._map(place, "2", inner))

    def _ssru(self, place: str, x: Floats, cell: Array) -> tuple[Floats, Array]:
        forget = 1 / (1 + np.exp(-self._map(place, "f", x)[:, :, 0]))
        new = forget * cell + (1 - forget) * (x[:, :, 0] @ self.arrays[f"{place}_W"])
        return self._norm(f"{place}_ffn", x + np.maximum(new, 0)[:, :, None]), new
