"""A model from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from deepwire.errors import UsageError
from deepwire.model.config import ModelConfig, StackConfig
from deepwire.model.connections.connection import ConnectionSection, Sublayer
from deepwire.model.context import Side, StackContext
from deepwire.model.embedding import Embedding, TokenEmbedding
from deepwire.model.encoder_decoder import TranslationModel
from deepwire.model.feed_forward import FeedForward
from deepwire.model.fusions.fusion import FusionSection
from deepwire.model.head import OutputHead
from deepwire.model.initializations.apply import initialize
from deepwire.model.languages import LanguageEmbedding, LanguageTransform, TargetLanguages
from deepwire.model.mixers.mixer import MixerSection, TokenMixer
from deepwire.model.stack import Stack

# Ids of every vocabulary (deepwire.data).
PAD_ID, BOS_ID, EOS_ID = 0, 1, 2


def build_model(
    config: ModelConfig,
    source_vocabulary: int,
    target_vocabulary: int,
    *,
    languages: int = 0,
    pad_id: int = PAD_ID,
) -> TranslationModel:
    """Build and initialise a model.

    Args:
        config: The model section of a run file.
        source_vocabulary, target_vocabulary: Entries of each side's vocabulary.
        languages: Number of target languages; those of one language pair need no number.
        pad_id: Id of padding.

    Raises:
        UsageError: Source and target are to share one matrix but differ in size; or parameters of each
            target language are asked for without a number of languages.
    """
    if config.languages.used and languages < 1:
        raise UsageError(
            "model.languages asks for parameters of each target language, but no languages are named",
            "list them in data.directions, or leave model.languages out",
        )
    targets = TargetLanguages(languages) if config.languages.used else None
    tie = config.embeddings.tie
    if tie in ("all", "inputs") and source_vocabulary != target_vocabulary:
        raise UsageError(
            f"embeddings.tie: {tie} needs one vocabulary for both sides, not {source_vocabulary} and "
            f"{target_vocabulary} entries",
            "set data.vocabulary.joint=true, or model.embeddings.tie=output",
        )
    contexts = config.contexts(targets)
    encoder, decoder = build_stacks(config, contexts)
    source_dim, target_dim = contexts["encoder"].dim, contexts["decoder"].dim
    source_table = TokenEmbedding(source_vocabulary, source_dim, pad_id)
    shared = tie in ("all", "inputs")
    target_table = source_table if shared else TokenEmbedding(target_vocabulary, target_dim, pad_id)
    width = decoder.connection.result_width(target_dim)
    tied = tie in ("all", "output")
    output_table = target_table if tied else TokenEmbedding(target_vocabulary, width, pad_id)
    language = _language_embeddings(config, targets)
    biases = languages if config.languages.output_bias else 0
    model = TranslationModel(
        config,
        _embedding(config, source_table, contexts["encoder"], language["encoder"]),
        encoder,
        _embedding(config, target_table, contexts["decoder"], language["decoder"]),
        decoder,
        OutputHead(output_table, bias=config.bias.output, fusion=decoder.fusion, languages=biases),
        targets,
        _transform(config, targets, encoder.connection.result_width(source_dim)),
    )
    initialize(model, config.initialization)
    return model


def build_stacks(config: ModelConfig, contexts: Mapping[Side, StackContext]) -> tuple[Stack, Stack]:
    """Build encoder and decoder; `ValueError` where a socket does not fit the others."""
    encoder = _stack(config.encoder, contexts["encoder"])
    decoder = _stack(config.decoder, contexts["decoder"])
    source_dim, dim = contexts["encoder"].dim, contexts["decoder"].dim
    given, wanted = encoder.connection.result_width(source_dim), decoder.connection.memory_width(source_dim)
    if given != wanted:
        raise ValueError(
            f"encoder.connection {config.encoder.connection.type} gives vectors of width {given}, "
            f"and decoder.connection {config.decoder.connection.type} reads width {wanted}"
        )
    readers = len(decoder.crosses) or len(decoder.mixers)
    if config.encoder.fusion.per_decoder_layer and readers < config.decoder.layers:
        raise ValueError(
            f"encoder.fusion {config.encoder.fusion.type} has a result for each decoder layer, but with "
            f"decoder.connection {config.decoder.connection.type} only {readers} of {config.decoder.layers} "
            "decoder layers read the encoder"
        )
    width = decoder.connection.result_width(dim)
    if width != dim and config.embeddings.tie in ("all", "output"):
        raise ValueError(
            f"embeddings.tie: with decoder.connection {config.decoder.connection.type} the output projection "
            f"reads width {width}, so it cannot be the embedding of width {dim}; tie inputs or none"
        )
    return encoder, decoder


def _stack(config: StackConfig, context: StackContext) -> Stack:
    for socket in ("mixer", "connection", "fusion"):
        section: MixerSection | ConnectionSection | FusionSection = getattr(config, socket)
        if context.side not in section.sides:
            raise ValueError(f"{context.side}.{socket}: {section.type} does not work in the {context.side}")
    kinds = config.sublayers(context.side)
    connection = config.connection.build(context, kinds)
    context = replace(context, norm_style=connection.norm_style)

    def layers(kind: Sublayer) -> list[int]:
        return sorted({call.layer for call in connection.calls if call.kind == kind})

    if config.inner_feed_forward and not layers("inner_feed_forward"):
        lacks = "needs a cross-attention after it"
        unfit = f"does not work with connection {config.connection.type}"
        raise ValueError(f"{context.side}.inner_feed_forward {unfit if 'cross' in kinds else lacks}")
    return Stack(
        connection,
        config.aggregation.build(context),
        config.fusion.build(replace(context, dim=connection.result_width(context.dim))),
        [
            _mixer(config.mixer, replace(context, mixer_input=connection.mixer_width(layer, context.dim)))
            for layer in layers("mixer")
        ],
        [config.connection.cross_attention(context) for _ in layers("cross")],
        [FeedForward(context) for _ in layers("feed_forward")],
        context.languages,
        [FeedForward(context) for _ in layers("inner_feed_forward")],
    )


def _mixer(config: MixerSection, context: StackContext) -> TokenMixer:
    if context.mixer_input != context.dim and not config.reads_any_width:
        raise ValueError(
            f"{context.side}.mixer: {config.type} reads vectors of width {context.dim} only, not "
            f"{context.mixer_input} as this connection gives it"
        )
    return config.build(context)


def _language_embeddings(
    config: ModelConfig, targets: TargetLanguages | None
) -> dict[Side, LanguageEmbedding | None]:
    """Those of either side; one for both where they share their matrix, as in Neutron."""
    wanted = config.languages.embedding
    made: dict[Side, LanguageEmbedding | None] = {"encoder": None, "decoder": None}
    if targets is not None:
        for side in made:
            if wanted in (side, "both"):
                made[side] = LanguageEmbedding(targets, config.size(side)[0])
    if wanted == "both" and config.embeddings.tie in ("all", "inputs"):
        made["decoder"] = made["encoder"]
    return made


def _transform(config: ModelConfig, targets: TargetLanguages | None, width: int) -> LanguageTransform | None:
    wanted = config.languages.transform
    return None if targets is None or wanted == "none" else LanguageTransform(targets, width, wanted)


def _embedding(
    config: ModelConfig, table: TokenEmbedding, context: StackContext, language: LanguageEmbedding | None
) -> Embedding:
    stack = config.stack(context.side)
    scaled = config.embeddings.scale if stack.scale_embedding is None else stack.scale_embedding
    starts_with_end = context.side == "decoder" and config.embeddings.start == "eos"
    return Embedding(
        table,
        (stack.positions or config.positions).build(context.dim, config.max_length),
        scale=context.dim**0.5 if scaled else 1.0,
        norm=context.norm() if config.embeddings.norm else None,
        dropout=config.dropout.embedding,
        read_as=(BOS_ID, EOS_ID) if starts_with_end else None,
        language=language,
    )
