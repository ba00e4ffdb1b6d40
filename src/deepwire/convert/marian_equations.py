"""Marian's Transformer by its own equations, computed with numpy: what an export is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepwire.data.vocabulary import PAD

Array = NDArray[Any]
Floats = NDArray[np.float32]
Tensors = dict[str, Array]
_EPSILON = 1e-6
_HIDDEN = -99999999.0


class MarianModel:
    """Encoder and decoder steps for the search of exports: states `[N, W, ...]`, memory `[N, ...]`.

    Args:
        arrays, options: As in an `.npz` file.
    """

    def __init__(self, arrays: dict[str, Floats], options: dict[str, Any]) -> None:
        self.arrays, self.options = arrays, options
        self.heads, self.dim = options["transformer-heads"], options["dim-emb"]
        self.recurrent = options["transformer-decoder-autoreg"] == "rnn"
        self.places = {
            side: [f"{side}_l{layer + 1}" for layer in range(options[f"{side[:3]}-depth"])]
            for side in ("encoder", "decoder")
        }
        shared = options["tied-embeddings-all"] or options["tied-embeddings-src"]
        self.tables = {side: arrays["Wemb" if shared else f"{side}_Wemb"] for side in self.places}
        tied = options["tied-embeddings-all"] or options["tied-embeddings"]
        self.projection = self.tables["decoder"].T if tied else arrays["decoder_ff_logit_out_W"]

    def start(self, source: Array, languages: Array | None) -> tuple[Tensors, Tensors]:
        """Memory and first state of sentences `[N, S]`, padded with PAD."""
        mask = np.where(source == PAD, _HIDDEN, 0.0)[:, None, None, None].astype(np.float32)
        x = self._embed("encoder", self.tables["encoder"][source], np.arange(source.shape[1]))[:, None]
        for place in self.places["encoder"]:
            x = self._attend(f"{place}_self", x, *self._keys(f"{place}_self", x), mask)
            x = self._feed_forward(f"{place}_ffn", x)
        memory: Tensors = {"mask": mask}
        state: Tensors = {}
        for place in self.places["decoder"]:
            memory[f"{place}_k"], memory[f"{place}_v"] = self._keys(f"{place}_context", x)
            empty = np.zeros((len(source), 1, *([] if self.recurrent else [0]), self.dim), np.float32)
            state |= {place: empty} if self.recurrent else {f"{place}_k": empty, f"{place}_v": empty}
        return memory, state

    def step(self, tokens: Array, position: int, memory: Tensors, state: Tensors) -> tuple[Floats, Tensors]:
        """Log-probabilities `[N, W, V]` of what follows the tokens `[N, W]`, and the next state."""
        words = self.tables["decoder"][tokens] if position else np.zeros((*tokens.shape, self.dim))
        x = self._embed("decoder", words, np.full(1, position))[:, :, None]
        new: Tensors = {}
        for place in self.places["decoder"]:
            if self.recurrent:
                x, new[place] = self._ssru(f"{place}_rnn", x, state[place])
            else:
                for name, each in zip("kv", self._keys(f"{place}_self", x), strict=True):
                    new[f"{place}_{name}"] = np.concatenate((state[f"{place}_{name}"], each), 2)
                x = self._attend(f"{place}_self", x, new[f"{place}_k"], new[f"{place}_v"], None)
            context = memory[f"{place}_k"], memory[f"{place}_v"]
            x = self._attend(f"{place}_context", x, *context, memory["mask"])
            x = self._feed_forward(f"{place}_ffn", x)
        logits = x[:, :, 0] @ self.projection + self.arrays["decoder_ff_logit_out_b"][0]
        logits -= logits.max(-1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True)), new

    def _embed(self, side: str, words: Array, positions: Array) -> Floats:
        """Scaled words and sinusoids, normalised where Marian's options say so."""
        half = self.dim // 2
        angles = positions[:, None] * np.exp(-np.log(10000.0) * np.arange(half) / (half - 1))
        signal = np.concatenate((np.sin(angles), np.cos(angles)), 1)
        x = (words * self.dim**0.5 + signal).astype(np.float32)
        return (
            self._norm(f"{side}_emb", x, "_pre") if "n" in self.options["transformer-postprocess-emb"] else x
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
        query, key, value = (
            each.reshape(*each.shape[:-1], self.heads, -1).swapaxes(-2, -3)
            for each in (self._map(place, "q", x), keys, values)
        )
        scores = query @ key.swapaxes(-1, -2) / np.sqrt(np.float32(key.shape[-1]))
        scores = scores if mask is None else scores + mask
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True)) @ value
        joined = mixed.swapaxes(-2, -3).reshape(x.shape)
        return self._norm(f"{place}_Wo", x + self._map(place, "o", joined))

    def _feed_forward(self, place: str, x: Floats) -> Floats:
        inner = self._map(place, "1", x)
        swish = self.options["transformer-ffn-activation"] == "swish"
        inner = inner / (1 + np.exp(-inner)) if swish else np.maximum(inner, 0)
        return self._norm(f"{place}_ffn", x + self._map(place, "2", inner))

    def _ssru(self, place: str, x: Floats, cell: Array) -> tuple[Floats, Array]:
        forget = 1 / (1 + np.exp(-self._map(place, "f", x)[:, :, 0]))
        new = forget * cell + (1 - forget) * (x[:, :, 0] @ self.arrays[f"{place}_W"])
        return self._norm(f"{place}_ffn", x + np.maximum(new, 0)[:, :, None]), new
