"""A model from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from deepwire.errors import UsageError
from deepwire.model.config import ModelConfig, StackConfig
from deepwire.model.connections.base import ConnectionSection, Sublayer
from deepwire.model.context import Side, StackContext
from deepwire.model.embedding import Embedding, TokenTable
from deepwire.model.feed_forward import FeedForward
from deepwire.model.fusions.base import FusionSection
from deepwire.model.head import OutputHead
from deepwire.model.initializations.apply import initialize
from deepwire.model.mixers.base import MixerSection, TokenMixer
from deepwire.model.stack import Stack
from deepwire.model.translator import TranslationModel

# Ids of every vocabulary (deepwire.data).
PAD_ID, BOS_ID, EOS_ID = 0, 1, 2


def build_model(
    config: ModelConfig, source_vocabulary: int, target_vocabulary: int, *, pad_id: int = PAD_ID
) -> TranslationModel:
    """Build and initialise a model.

    Args:
        config: The model section of a run file.
        source_vocabulary, target_vocabulary: Entries of each side's vocabulary.
        pad_id: Id of padding.

    Raises:
        UsageError: Source and target are to share one matrix but differ in size.
    """
    tie = config.embeddings.tie
    if tie in ("all", "inputs") and source_vocabulary != target_vocabulary:
        raise UsageError(
            f"embeddings.tie: {tie} needs one vocabulary for both sides, not {source_vocabulary} and "
            f"{target_vocabulary} entries",
            "set data.vocabulary.joint=true, or model.embeddings.tie=output",
        )
    source_table = TokenTable(source_vocabulary, config.d_model, pad_id)
    shared = tie in ("all", "inputs")
    target_table = source_table if shared else TokenTable(target_vocabulary, config.d_model, pad_id)
    contexts = config.contexts()
    encoder, decoder = build_stacks(config, contexts)
    width = decoder.connection.result_width(config.d_model)
    tied = tie in ("all", "output")
    output_table = target_table if tied else TokenTable(target_vocabulary, width, pad_id)
    model = TranslationModel(
        config,
        _embedding(config, source_table, contexts["encoder"]),
        encoder,
        _embedding(config, target_table, contexts["decoder"]),
        decoder,
        OutputHead(output_table, bias=config.bias.output, fusion=decoder.fusion),
    )
    initialize(model, config.initialization)
    return model


def build_stacks(config: ModelConfig, contexts: Mapping[Side, StackContext]) -> tuple[Stack, Stack]:
    """Build encoder and decoder; `ValueError` where a socket does not fit the others."""
    encoder = _stack(config.encoder, contexts["encoder"])
    decoder = _stack(config.decoder, contexts["decoder"])
    dim = config.d_model
    given, wanted = encoder.connection.result_width(dim), decoder.connection.memory_width(dim)
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
    kinds: list[Sublayer] = ["mixer"]
    if context.side == "decoder" and not config.mixer.absorbs_cross_attention:
        kinds.append("cross")
    if config.feed_forward and config.connection.has_feed_forward:
        kinds.append("feed_forward")
    connection = config.connection.build(context, tuple(kinds))
    context = replace(context, norm_style=connection.norm_style)

    def layers(kind: Sublayer) -> list[int]:
        return sorted({call.layer for call in connection.calls if call.kind == kind})

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
    )


def _mixer(config: MixerSection, context: StackContext) -> TokenMixer:
    if context.mixer_input != context.dim and not config.reads_any_width:
        raise ValueError(
            f"{context.side}.mixer: {config.type} reads vectors of width {context.dim} only, not "
            f"{context.mixer_input} as this connection gives it"
        )
    return config.build(context)


def _embedding(config: ModelConfig, table: TokenTable, context: StackContext) -> Embedding:
    stack = config.stack(context.side)
    scaled = config.embeddings.scale if stack.scale_embedding is None else stack.scale_embedding
    starts_with_end = context.side == "decoder" and config.embeddings.start == "eos"
    return Embedding(
        table,
        (stack.positions or config.positions).build(config.d_model, config.max_length),
        scale=config.d_model**0.5 if scaled else 1.0,
        norm=context.norm() if config.embeddings.norm else None,
        dropout=config.dropout.embedding,
        read_as=(BOS_ID, EOS_ID) if starts_with_end else None,
    )
