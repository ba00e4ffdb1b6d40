"""Settings of a deepwire model for transformers."""

from typing import Any

from transformers import PretrainedConfig


class DeepwireConfig(PretrainedConfig):
    """Settings that a model is built from.

    Attributes:
        model: The `model` section of its run file.
        source_size, target_size: Entries of both vocabularies, tags of languages included.
        languages: What the model says about its directions; none of one direction.
        own_parameters: How many target languages have parameters of their own.
        source_bos: Whether sources begin with BOS.
        decoding: The `decoding` section, with which `generate` searches.
        plugins: Parts of other packages that the model is made of, as deepwire records them.
        to: The target language where a call names none, of a model of several directions.
    """

    model_type = "deepwire"
    is_encoder_decoder = True

    def __init__(
        self,
        model: dict[str, object] | None = None,
        source_size: int = 0,
        target_size: int = 0,
        languages: dict[str, object] | None = None,
        own_parameters: int = 0,
        source_bos: bool = False,
        decoding: dict[str, object] | None = None,
        plugins: list[dict[str, str]] | None = None,
        to: str = "",
        **settings: Any,
    ) -> None:
        self.model, self.decoding = model or {}, decoding or {}
        self.source_size, self.target_size = source_size, target_size
        self.languages, self.own_parameters, self.source_bos = languages, own_parameters, source_bos
        self.plugins, self.to = plugins or [], to
        self.vocab_size = target_size
        symbols: dict[str, Any] = {
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        }
        super().__init__(**{**symbols, "is_encoder_decoder": True, **settings})
