"""A deepwire vocabulary as a tokenizer of transformers."""

from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizer

from deepwire.data.vocabulary import BOS, EOS, Vocabularies


class DeepwireTokenizer(PreTrainedTokenizer):
    """Segments as deepwire does: sources end with EOS, and begin with BOS where the model was trained so."""

    vocab_files_names = {"vocabulary_file": "vocabulary/vocabulary.json"}  # noqa: RUF012
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012

    def __init__(self, vocabulary_file: str, source_bos: bool = False, **settings: Any) -> None:
        self.vocabularies = Vocabularies.load(Path(vocabulary_file).parent)
        self.side, self.source_bos = self.vocabularies.source, source_bos
        self.begins_with_bos = source_bos  # both sides may be one vocabulary
        symbols = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
        given = {**symbols, **settings, "split_special_tokens": True, "source_bos": source_bos}
        super().__init__(**given)

    @property
    def vocab_size(self) -> int:
        """Entries of the source vocabulary."""
        return self.vocabularies.source.size

    def get_vocab(self) -> dict[str, int]:
        """The number of each piece of the side in use."""
        return {piece: number for number, piece in enumerate(self.side.pieces(range(self.side.size)))}

    def _tokenize(self, text: str, **_: object) -> list[str]:
        # Numbers, since a piece may look like a symbol.
        return [f"#{number}" for number in self.side.encode(text)]

    def _convert_token_to_id(self, token: str) -> int:
        if token.startswith("#") and token[1:].isdecimal():
            return int(token[1:])
        return self.get_vocab().get(token, 3)

    def _convert_id_to_token(self, index: int) -> str:
        return self.side.pieces([index])[0]

    def build_inputs_with_special_tokens(
        self, first: list[int], second: list[int] | None = None
    ) -> list[int]:
        """A source, or as `text_target` a target, as the model reads it."""
        begin = [BOS] if self.begins_with_bos else []
        return [*begin, *first, *(second or []), EOS]

    def _switch_to_input_mode(self) -> None:
        self.side, self.begins_with_bos = self.vocabularies.source, self.source_bos

    def _switch_to_target_mode(self) -> None:
        self.side, self.begins_with_bos = self.vocabularies.target, False

    def _decode(self, token_ids: Any, *_: Any, **__: Any) -> str:
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        begun = ids[1:] if ids and ids[0] not in range(2, self.vocabularies.target.size) else ids
        return self.vocabularies.target.decode(begun)

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        """Write the folder `vocabulary`."""
        folder = Path(save_directory) / "vocabulary"
        self.vocabularies.save(folder)
        return (str(folder / "vocabulary.json"),)
