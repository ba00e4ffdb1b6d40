"""A deepwire model, its settings and its tokenizer for transformers; this file lies in exported folders.

It computes and searches with the installed deepwire.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel, PreTrainedTokenizer
from transformers.modeling_outputs import Seq2SeqLMOutput

from deepwire.checkpoint.store import recorded_config
from deepwire.data.languages import Languages
from deepwire.data.vocabulary import BOS, EOS, PAD, UNK, Vocabularies
from deepwire.decoding.decoding_config import DecodingConfig, with_settings
from deepwire.decoding.model_inputs import TargetLanguage, target_language_ids
from deepwire.decoding.models import as_configured
from deepwire.decoding.search import Batch, generate
from deepwire.model.build import build_model
from deepwire.model.translation_model import TranslationModel

IGNORED = -100
"""Label of a target subword that does not count."""
# What `generate` is asked for there and here, and what it is there where nobody says so.
SEARCH: dict[str, tuple[str, float]] = {
    "num_beams": ("beam", 1),
    "num_return_sequences": ("n_best", 1),
    "length_penalty": ("length_penalty", 1.0),
}


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
        symbols = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
        super().__init__(**{**symbols, "decoder_start_token_id": BOS, "is_encoder_decoder": True, **settings})


class DeepwireForSeq2SeqLM(PreTrainedModel):
    """Any model that deepwire can build."""

    config: DeepwireConfig
    config_class = DeepwireConfig
    main_input_name = "input_ids"
    base_model_prefix = "translation"

    def __init__(self, config: DeepwireConfig) -> None:
        super().__init__(config)
        self.translation = _build(config)
        search = {theirs: getattr(self._search, ours) for theirs, (ours, _) in SEARCH.items()}
        self.generation_config = GenerationConfig(**search)
        first: dict[int, str] = {}
        named = list(self.named_parameters(remove_duplicate=False))
        self._tied_weights_keys = {
            name: first[id(value)] for name, value in named if first.setdefault(id(value), name) != name
        }
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        """deepwire has initialised them."""

    @classmethod
    def from_pretrained(cls, *arguments: Any, **settings: Any) -> Any:
        """As in the base class, which empties constants that are not stored."""
        loaded = super().from_pretrained(*arguments, **settings)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        stored = model.state_dict()
        with torch.no_grad(), torch.random.fork_rng():
            constants = dict(_build(model.config).named_buffers())
            for name, value in model.translation.named_buffers():
                if f"translation.{name}" not in stored:
                    value.copy_(constants[name])
        return loaded

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        to: str = "",
        **_: object,
    ) -> Seq2SeqLMOutput:
        """Log-probabilities `[B, T, V]` as logits, and with `labels` the mean loss of their subwords.

        In evaluation with the groups and rounds that the model translates with.

        Args:
            input_ids: Sources `[B, S]`, which end with EOS; tags of languages are put in front of them.
            attention_mask: `[B, S]`, 0 at padding.
            decoder_input_ids: `[B, T]`; without them the labels behind BOS or the tag of the language.
            labels: `[B, T]`, which end with EOS; -100 and padding do not count.
            return_dict: Whatever it is, named results are returned.
            to: The target language, of a model of several directions.

        Raises:
            ValueError: There are no labels, or it is not told into which language.
        """
        target = self._target(to)
        source = self._tagged(_masked(input_ids, attention_mask), target)
        if labels is not None:
            labels = labels.masked_fill(labels == IGNORED, PAD)
            if decoder_input_ids is None:
                first = BOS if target is None else target.first_token
                decoder_input_ids = functional.pad(labels, (1, -1), value=first)
        if decoder_input_ids is None:
            raise ValueError("give labels or decoder_input_ids")
        model = self.translation if self.training else self._configured(self._search)
        languages = None if target is None else target_language_ids([target] * len(source), source.device)
        log_probs = model.log_probs(source, decoder_input_ids, languages=languages)
        loss = None
        if labels is not None:
            loss = functional.nll_loss(log_probs.flatten(0, 1), labels.flatten(), ignore_index=PAD)
        return Seq2SeqLMOutput(loss=loss, logits=log_probs)

    @torch.no_grad()
    def generate(
        self,
        inputs: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        to: str = "",
        **wanted: Any,
    ) -> Tensor:
        """Translations found by deepwire's search, `[B * n, T]` beginning with BOS, padded with PAD.

        Args:
            inputs: Sources `[B, S]`, also called `input_ids`.
            attention_mask: `[B, S]`, 0 at padding.
            to: The target language, of a model of several directions.
            wanted: `num_beams`, `num_return_sequences`, `length_penalty`, `max_new_tokens` and `max_length`;
                all but the last also of a `generation_config`, which stands in for that of the model.
                Settings of deepwire (`beam=8`) can be given, too.

        Raises:
            ValueError: There are no sources, or it is not told into which language.
            UsageError: deepwire has no such setting.
        """
        inputs = wanted.pop("input_ids", inputs)
        if inputs is None:
            raise ValueError("give input_ids")
        mode = self.training
        self.eval()
        try:
            source = _masked(inputs, attention_mask)
            return self._found(source, self._target(to), self._settings(wanted))
        finally:
            self.train(mode)

    @property
    def _search(self) -> DecodingConfig:
        return DecodingConfig.model_validate(self.config.decoding)

    def _settings(self, wanted: dict[str, Any]) -> DecodingConfig:
        given = wanted.pop("generation_config", None) or self.generation_config
        # What Trainer passes on.
        ignored = ("labels", "synced_gpus", "use_cache")
        wanted = {name: value for name, value in wanted.items() if value is not None and name not in ignored}
        asked: dict[str, Any] = {}
        for theirs, (ours, usual) in SEARCH.items():
            value = wanted.pop(theirs, getattr(given, theirs, None))
            asked[ours] = usual if value is None else value
        longest = wanted.pop("max_length", 0) - 1
        longest = wanted.pop("max_new_tokens", longest if longest > 0 else given.max_new_tokens)
        if longest is not None:
            asked |= {"max_length_ratio": 0.0, "max_length_extra": max(1, longest - 1)}
        return with_settings(self._search, asked | wanted)

    def _configured(self, config: DecodingConfig) -> TranslationModel:
        (model,) = as_configured([self.translation], config)
        assert isinstance(model, TranslationModel)
        return model

    def _found(self, source: Tensor, target: TargetLanguage | None, config: DecodingConfig) -> Tensor:
        told: dict[str, Any] = {}
        if target is not None:
            source, rows = self._tagged(source, target), len(source)
            told["prompts"] = [[target.first_token]] * rows
            told["languages"] = target_language_ids([target] * rows, source.device)
            languages = Languages.from_metadata(self.config.languages or {})
            told["pieces"] = self.config.target_size - (0 if languages is None else languages.tags)
        limits = [config.output_limit(length - 1) for length in (source != PAD).sum(1).tolist()]
        batch = Batch(source, limits, range(source.size(0)), **told)
        hypotheses = generate(self._configured(config), batch, config)
        found = [torch.tensor([BOS, *each.ids, EOS]) for sentence in hypotheses for each in sentence]
        padded: Tensor = torch.nn.utils.rnn.pad_sequence(found, batch_first=True, padding_value=PAD)
        return padded.to(source.device)

    def _tagged(self, source: Tensor, target: TargetLanguage | None) -> Tensor:
        """Sources behind the tag of the target language, if the model has one."""
        if target is None or target.source_tag is None:
            return source
        at, tags = int(self.config.source_bos), source.new_full((len(source), 1), target.source_tag)
        return torch.cat((source[:, :at], tags, source[:, at:]), 1)

    def _target(self, to: str) -> TargetLanguage | None:
        languages, name = Languages.from_metadata(self.config.languages or {}), to or self.config.to
        if languages is None:
            if name:
                raise ValueError("the model has one direction only; leave the language out")
            return None
        if name not in languages.targets and (name or len(languages.targets) > 1):
            raise ValueError(
                f"give to=..., one of {', '.join(languages.targets)}; or for all calls, to from_pretrained"
            )
        number = languages.target(name or languages.targets[0])
        place = number - languages.tags
        return TargetLanguage(
            number,
            self.config.source_size + place if languages.tags_source else None,
            self.config.target_size + place if languages.tags_target else BOS,
        )


def _build(config: DeepwireConfig) -> TranslationModel:
    """Also where transformers wants a model without values: deepwire makes constants while it builds."""
    record: dict[str, object] = {"model": config.model, "plugins": config.plugins}
    with torch.device("cpu"):
        return build_model(
            recorded_config(record, Path(config.name_or_path or ".")),
            config.source_size,
            config.target_size,
            languages=config.own_parameters,
        )


def _masked(ids: Tensor, mask: Tensor | None) -> Tensor:
    return ids if mask is None else ids.masked_fill(mask == 0, PAD)


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
        return self.get_vocab().get(token, UNK)

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
