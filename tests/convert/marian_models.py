"""Folders as Marian and Bergamot write them, with random values."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from deepwire.convert.marian import MarianModel, yaml_text

Floats = NDArray[np.float32]
ENTRIES = 320
OPTIONS: Mapping[str, object] = {
    "type": "transformer",
    "dec-cell": "ssru",
    "dec-depth": 2,
    "dim-emb": 64,
    "dim-vocabs": [ENTRIES, ENTRIES],
    "enc-depth": 2,
    "tied-embeddings": False,
    "tied-embeddings-all": True,
    "tied-embeddings-src": False,
    "transformer-decoder-autoreg": "rnn",
    "transformer-decoder-dim-ffn": 0,
    "transformer-decoder-ffn-depth": 0,
    "transformer-dim-ffn": 128,
    "transformer-ffn-activation": "relu",
    "transformer-ffn-depth": 2,
    "transformer-heads": 4,
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-preprocess": "",
    "transformer-tied-layers": [],
}


def sentencepieces(path: Path, lines: Sequence[str], kind: str, size: int = ENTRIES) -> Path:
    """A SentencePiece model with Marian's numbers: EOS 0, UNK 1, no other symbols."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=(file := path.open("wb")),
        model_type=kind,
        vocab_size=size,
        character_coverage=0.99,
        bos_id=-1,
        pad_id=-1,
        eos_id=0,
        unk_id=1,
        minloglevel=5,
    )
    file.close()
    return path


def random_arrays(
    options: Mapping[str, object], entries: Sequence[int] = (ENTRIES,) * 2
) -> dict[str, Floats]:
    """Parameters by Marian's names; the words of source and target are so many."""
    draw, width = np.random.default_rng(5), int(str(options["dim-emb"]))
    arrays: dict[str, Floats] = {}

    def matrix(name: str, rows: int, columns: int, scale: float) -> None:
        arrays[name] = draw.normal(0, scale, (rows, columns)).astype(np.float32)

    def linear(place: str, name: str, rows: int, columns: int) -> None:
        matrix(f"{place}_W{name}", rows, columns, rows**-0.5)
        matrix(f"{place}_b{name}", 1, columns, 0.2)

    def norm(place: str, end: str = "") -> None:
        arrays[f"{place}_ln_scale{end}"] = draw.normal(1, 0.2, (1, width)).astype(np.float32)
        matrix(f"{place}_ln_bias{end}", 1, width, 0.2)

    for side, stack in (("encoder", "enc"), ("decoder", "dec")):
        if "n" in str(options["transformer-postprocess-emb"]):
            norm(f"{side}_emb", "_pre")
        tied = options["transformer-tied-layers"] if side == "decoder" else []
        inner = int(str(options["transformer-decoder-dim-ffn"])) if side == "decoder" else 0
        inner = inner or int(str(options["transformer-dim-ffn"]))
        for layer in {*tied} or range(1, int(str(options[f"{stack}-depth"])) + 1):  # type: ignore[misc]
            place = f"{side}_l{layer}"
            recurrent = side == "decoder" and options["transformer-decoder-autoreg"] == "rnn"
            attentions = ["self"] * (not recurrent) + ["context"] * (side == "decoder")
            if recurrent:
                linear(f"{place}_rnn", "f", width, width)
                matrix(f"{place}_rnn_W", width, width, width**-0.5)
                norm(f"{place}_rnn_ffn")
            for kind in attentions:
                for name in "qkvo":
                    linear(f"{place}_{kind}", name, width, width)
                norm(f"{place}_{kind}_Wo")
            linear(f"{place}_ffn", "1", width, inner)
            linear(f"{place}_ffn", "2", inner, width)
            norm(f"{place}_ffn_ffn")
    tables = ("Wemb",) if options["tied-embeddings-all"] else ("encoder_Wemb", "decoder_Wemb")
    for name, rows in zip(tables, entries, strict=False):
        matrix(name, rows, width, 0.5)
    if not (options["tied-embeddings-all"] or options["tied-embeddings"]):
        matrix("decoder_ff_logit_out_W", width, entries[-1], 0.5)
    matrix("decoder_ff_logit_out_b", 1, entries[-1], 0.5)
    arrays["decoder_ff_logit_out_b"][0, 0] += 6
    return arrays


def tied(arrays: Mapping[str, Floats], options: Mapping[str, object]) -> dict[str, Floats]:
    """The parameters of every decoder layer by its own number."""
    whole = dict(arrays)
    for layer, number in enumerate(options["transformer-tied-layers"], 1):  # type: ignore[arg-type, var-annotated]
        begin = f"decoder_l{number}_"
        for name in [name for name in arrays if name.startswith(begin)]:
            whole[name.replace(begin, f"decoder_l{layer}_")] = arrays[name]
    return whole


class Reference(MarianModel):
    """Marian's equations with its numbers of words, which keep the largest input of each matrix."""

    def __init__(self, arrays: Mapping[str, Floats], options: Mapping[str, object]) -> None:
        super().__init__(tied(arrays, options), dict(options))
        output = next(name for name in ("decoder_ff_logit_out_W", "Wemb", "decoder_Wemb") if name in arrays)
        # With a shortlist the output layer has no name.
        self.largest = {"none": 5.0, output: 5.0}
        # The equations of the export take 0 for padding, which is EOS in Marian: all numbers are one more.
        self.tables = {side: np.concatenate((table[:1], table)) for side, table in self.tables.items()}

    def _map(self, place: str, name: str, x: Floats) -> Floats:
        keys = [f"{place}_W{name}", *([f"{place}_W"] if place.endswith("_rnn") else [])]
        for key in keys:
            self.largest[key] = max(self.largest.get(key, 0), float(np.abs(x).max()))
        return super()._map(place, name, x)

    def log_probs(self, source: Sequence[int], target: Sequence[int]) -> Floats:
        """Of all words at every position of a translation, `[T + 1, V]`; both are given without EOS."""
        memory, state = self.start(np.array([[*source, 0]]) + 1, None)
        rows = []
        for position, word in enumerate([0, *target]):
            row, state = self.step(np.array([[word]]) + 1, position, memory, state)
            rows.append(row[0, 0])
        return np.stack(rows)


def quantised(weight: Floats) -> tuple[NDArray[np.int8], np.float32]:
    """Numbers of 8 bits, and the factor with which they were made."""
    factor = np.float32(127) / np.abs(weight).max()
    return np.rint(weight * factor).astype(np.int8), factor


def dequantised(weight: Floats) -> Floats:
    """The numbers that are left of a matrix."""
    numbers, factor = quantised(weight)
    return numbers * (1 / factor)


def is_quantised(name: str) -> bool:
    """Whether `marian-conv --gemm-type intgemm8` quantises the parameter."""
    return "Wemb" in name or "_W" in (name[-3:-1], name[-2:])


def write_int8(path: Path, arrays: Mapping[str, Floats], options: bytes, inputs: Mapping[str, float]) -> None:
    """Bergamot's binary form: matrices quantised and the other way round, the largest inputs beside them."""
    items: list[tuple[str, int, tuple[int, ...], bytes]] = []
    for name, value in arrays.items():
        if is_quantised(name):
            numbers, factor = quantised(value)
            stored = numbers if "Wemb" in name else numbers.T
            items.append((name, 0x4101, value.shape, stored.tobytes() + struct.pack("<f", factor)))
        else:
            items.append((name, 0x404, value.shape, value.tobytes()))
    for name, largest in inputs.items():
        items.append((f"{name}_QuantMultA", 0x404, (1, 1), struct.pack("<f", 127 / largest)))
    items.append(("special:model.yml", 0x101, (len(options),), options))
    contents = [content + bytes(-len(content) % 256) for *_, content in items]
    header = struct.pack("<2Q", 1, len(items))
    for (name, kind, shape, _), content in zip(items, contents, strict=True):
        header += struct.pack("<4Q", len(name) + 1, kind, len(shape), len(content))
    header += b"".join(name.encode() + b"\0" for name, *_ in items)
    header += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items)
    gap = -(len(header) + 8) % 256
    path.write_bytes(header + struct.pack("<Q", gap) + bytes(gap) + b"".join(contents))


def option_bytes(options: Mapping[str, object]) -> bytes:
    """The options as they lie in a model."""
    return yaml_text(options).encode() + b"\0"


def binary_shortlist(path: Path, first: int, lists: Sequence[Sequence[int]]) -> Path:
    """A shortlist as Bergamot's `lex.50.50.deen.s2t.bin`."""
    offsets = np.cumsum([0, *map(len, lists)]).astype("<u8")
    words = np.array([word for each in lists for word in sorted(each)], "<u4")
    body = struct.pack("<4Q", first, 9, len(offsets), len(words)) + offsets.tobytes() + words.tobytes()
    path.write_bytes(struct.pack("<2Q", 0xF11A48D5013417F5, checksum(body)) + body)
    return path


def checksum(content: bytes) -> int:
    """The checksum of a shortlist: that of the whole words of 8 bytes."""
    value = 0
    for number in np.frombuffer(content[: len(content) // 8 * 8], "<u8").tolist():
        value ^= (number + 0x9E3779B9 + (value << 6) + (value >> 2)) & (1 << 64) - 1
        value &= (1 << 64) - 1
    return value
