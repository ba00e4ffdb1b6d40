"""A deepwire model as a model of transformers; it computes and searches with the installed deepwire."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import GenerationConfig, PreTrainedModel
from transformers.modeling_outputs import Seq2SeqLMOutput

from deepwire.checkpoint.store import recorded_config
from deepwire.data.languages import Languages
from deepwire.data.vocabulary import BOS, EOS, PAD
from deepwire.decoding.decoding_config import DecodingConfig, with_settings
from deepwire.decoding.model_inputs import TargetLanguage, target_language_ids
from deepwire.decoding.models import as_configured
from deepwire.decoding.search import Batch, generate
from deepwire.model.build import build_model
from deepwire.model.translation_model import TranslationModel

from .configuration_deepwire import DeepwireConfig

IGNORED = -100
"""Label of a target subword that does not count."""
# What generate is asked for there, and here.
SEARCH = {
    "num_beams": "beam",
    "num_return_sequences": "n_best",
    "min_new_tokens": "min_length",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "length_penalty": "length_penalty",
}
LENGTHS = ("max_new_tokens", "max_length")
# What transformers does where nothing is asked for; versions without this have it in every configuration.
DEFAULTS: dict[str, Any] = getattr(GenerationConfig, "_get_default_generation_params", dict)()


class DeepwireForSeq2SeqLM(PreTrainedModel):
    """Any model that deepwire can build."""

    config: DeepwireConfig
    config_class = DeepwireConfig
    main_input_name = "input_ids"
    base_model_prefix = "translation"

    def __init__(self, config: DeepwireConfig) -> None:
        super().__init__(config)
        self.translation = _build(config)
        self.generation_config = GenerationConfig()
        first: dict[int, str] = {}
        named = list(self.named_parameters(remove_duplicate=False))
        self._tied_weights_keys = {
            name: first[id(value)] for name, value in named if first.setdefault(id(value), name) != name
        }
        self.post_init()

    @property
    def generation_config(self) -> GenerationConfig:
        """Settings of `generate` besides those of the model; none at first."""
        return self._generation

    @generation_config.setter
    def generation_config(self, config: GenerationConfig) -> None:
        self._generation = config
        # Seq2SeqTrainer fills these in later, with defaults that nobody asked for.
        self._open = {name for name in (*SEARCH, *LENGTHS) if getattr(config, name, None) is None}

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
        languages: Tensor | None = None,
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
            languages: `[B]` the numbers of the target languages, of a model of several directions.
            return_dict: Whatever it is, named results are returned.
            to: The target language of all, in place of `languages`.

        Raises:
            ValueError: There are no labels, or it is not told into which language.
        """
        source = _masked(input_ids, attention_mask)
        targets = self._targets(source.size(0), to, languages)
        if targets is not None:
            source = self._tagged(source, targets)
            languages = target_language_ids(targets, source.device)
        if labels is not None:
            labels = labels.masked_fill(labels == IGNORED, PAD)
            if decoder_input_ids is None:
                decoder_input_ids = functional.pad(labels, (1, -1), value=BOS)
                if targets is not None:
                    first = [target.first_token for target in targets]
                    decoder_input_ids[:, 0] = decoder_input_ids.new_tensor(first)
        if decoder_input_ids is None:
            raise ValueError("give labels or decoder_input_ids")
        model = (
            self.translation
            if self.training
            else self._configured(DecodingConfig.model_validate(self.config.decoding))
        )
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
        languages: Tensor | None = None,
        **wanted: Any,
    ) -> Tensor:
        """Translations found by deepwire's search, `[B * n, T]` beginning with BOS, padded with PAD.

        Settings are those of the model. Others may be given by the names of deepwire (`beam=8`) or by those
        of transformers (`num_beams=8`, `max_new_tokens=100`).

        Args:
            inputs: Sources `[B, S]`, also called `input_ids`.
            attention_mask: `[B, S]`, 0 at padding.
            to: The target language, of a model of several directions.
            languages: `[B]` the numbers of the target languages, in place of it.
            wanted: Settings of the search. A `generation_config` stands in for that of the model.

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
            targets = self._targets(source.size(0), to, languages)
            return self._search(source, targets, self._settings(wanted))
        finally:
            self.train(mode)

    def _settings(self, wanted: dict[str, Any]) -> DecodingConfig:
        for name in ("labels", "synced_gpus", "use_cache"):
            wanted.pop(name, None)
        given = wanted.pop("generation_config", None)
        wanted = {name: value for name, value in wanted.items() if value is not None}
        if "decoder_input_ids" in wanted:
            raise ValueError("decoder_input_ids: generate begins translations by itself; leave it out")
        asked = self._asked(self.generation_config, self._open) if given is None else self._asked(given)
        if not wanted.keys().isdisjoint(LENGTHS):
            asked = {name: value for name, value in asked.items() if name not in LENGTHS}
        renamed = {SEARCH.get(name, name): value for name, value in (asked | wanted).items()}
        longest = renamed.pop("max_new_tokens", None)
        if "max_length" in renamed:
            longest = renamed.pop("max_length") - 1
        if longest is not None:
            renamed |= {"max_length_ratio": 0.0, "max_length_extra": max(1, longest - 1)}
        return with_settings(DecodingConfig.model_validate(self.config.decoding), renamed)

    def _asked(self, config: GenerationConfig, filled: Collection[str] = ()) -> dict[str, Any]:
        """Settings that were asked for; defaults that deepwire lacks, or filled in, do not count."""
        symbols = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
        neutral = DEFAULTS | {name: getattr(self.config, name) for name in symbols}
        kept = {*SEARCH, *LENGTHS}.difference(filled)
        return {
            name: value
            for name, value in config.to_diff_dict().items()
            if value is not None
            and name not in ("transformers_version", "_from_model_config", "use_cache")
            and (name in kept or name not in neutral or value != neutral[name])
        }

    def _configured(self, config: DecodingConfig) -> TranslationModel:
        (model,) = as_configured([self.translation], config)
        assert isinstance(model, TranslationModel)
        return model

    def _search(
        self, source: Tensor, targets: Sequence[TargetLanguage] | None, config: DecodingConfig
    ) -> Tensor:
        told: dict[str, Any] = {}
        if targets is not None:
            source = self._tagged(source, targets)
            told["prompts"] = [[target.first_token] for target in targets]
            told["languages"] = target_language_ids(targets, source.device)
            told["pieces"] = self.config.target_size - self._tags
        limits = [config.output_limit(length - 1) for length in (source != PAD).sum(1).tolist()]
        batch = Batch(source, limits, range(source.size(0)), **told)
        hypotheses = generate(self._configured(config), batch, config)
        rows = [torch.tensor([BOS, *each.ids, EOS]) for sentence in hypotheses for each in sentence]
        padded: Tensor = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
        return padded.to(source.device)

    @property
    def _tags(self) -> int:
        """Entries of both vocabularies that are tags of languages."""
        languages = Languages.from_metadata(self.config.languages or {})
        return 0 if languages is None else languages.tags

    def _tagged(self, source: Tensor, targets: Sequence[TargetLanguage]) -> Tensor:
        tags = [[target.source_tag] for target in targets if target.source_tag is not None]
        at = int(self.config.source_bos)
        return torch.cat((source[:, :at], source.new_tensor(tags), source[:, at:]), 1) if tags else source

    def _targets(self, count: int, to: str, numbers: Tensor | None) -> list[TargetLanguage] | None:
        """The target language of each of so many sources; None with one direction."""
        languages, name = Languages.from_metadata(self.config.languages or {}), to or self.config.to
        if languages is None:
            if name or numbers is not None:
                raise ValueError("the model has one direction only; leave the language out")
            return None
        known = {languages.target(target): target for target in languages.targets}
        if numbers is None and not name and len(known) > 1:
            raise ValueError(
                f"give to=..., one of {', '.join(languages.targets)}; or for all calls, to from_pretrained"
            )
        if numbers is None:
            wanted = [languages.target(name or languages.targets[0])] * count
        else:
            wanted = numbers.tolist()
        if (to and numbers is not None) or len(wanted) != count or not known.keys() >= set(wanted):
            of = ", ".join(f"{number} for {target}" for number, target in known.items())
            raise ValueError(f"languages: give to=..., or one of {of} for each of the {count} sources")
        pieces = [size - self._tags for size in (self.config.source_size, self.config.target_size)]
        return [
            TargetLanguage(
                number,
                pieces[0] + number if languages.tags_source else None,
                pieces[1] + number if languages.tags_target else BOS,
            )
            for number in wanted
        ]


def _build(config: DeepwireConfig) -> TranslationModel:
    """Also where transformers wants a model without values: deepwire makes constants while it builds.

    Raises:
        ModelError: A package that the model needs is missing or not allowed.
    """
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
