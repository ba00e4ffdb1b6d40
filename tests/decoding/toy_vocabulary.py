"""A vocabulary of letters, for tests that need no learned one."""

from __future__ import annotations

from deepwire.data.vocabulary import UNK, Vocabularies, Vocabulary


class ToyVocabulary(Vocabulary):
    """One number for each of the letters a, b, c ...; other characters are UNK, spaces are left out."""

    def __init__(self, size: int) -> None:
        self._size = size

    @property
    def size(self) -> int:
        return self._size

    def encode(self, text: str) -> list[int]:
        known = range(4, self._size)
        ids = [ord(letter) - ord("a") + 4 for letter in text if not letter.isspace()]
        return [number if number in known else UNK for number in ids]

    def sample(self, text: str, seed: int, strength: float) -> list[int]:
        return self.encode(text)

    def _decode_ids(self, ids: list[int]) -> str:
        return "".join(map(self._piece, ids))

    def _piece(self, number: int) -> str:
        return chr(ord("a") + number - 4)

    def files(self, name: str) -> dict[str, bytes]:
        return {f"{name}.txt": str(self._size).encode()}


def toy_vocabularies(size: int) -> Vocabularies:
    one = ToyVocabulary(size)
    return Vocabularies(one, one, joint=True, type="words")
