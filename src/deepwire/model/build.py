"""A model from its configuration."""

from __future__ import annotations

from dataclasses import replace

from deepwire.errors import UsageError
from deepwire.model.config import ModelConfig, StackConfig
from deepwire.model.connections.base import Sublayer
from deepwire.model.context import StackContext
from deepwire.model.cross_attention import CrossAttention
from deepwire.model.embedding import Embedding, TokenTable
from deepwire.model.feed_forward import FeedForward
from deepwire.model.head import OutputHead
from deepwire.model.initialization import initialize
from deepwire.model.stack import Stack
from deepwire.model.translator import TranslationModel

PAD_ID = 0


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
    tied = tie in ("all", "output")
    output_table = target_table if tied else TokenTable(target_vocabulary, config.d_model, pad_id)
    contexts = config.contexts()
    encoder = build_stack(config.encoder, contexts["encoder"])
    decoder = build_stack(config.decoder, contexts["decoder"])
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


def build_stack(config: StackConfig, context: StackContext) -> Stack:
    """Build one stack; `ValueError` where a socket does not fit the others."""
    if context.side not in config.mixer.sides:
        raise ValueError(f"{context.side}.mixer: {config.mixer.type} does not work in the {context.side}")
    kinds: list[Sublayer] = ["mixer"]
    if context.side == "decoder" and not config.mixer.absorbs_cross_attention:
        kinds.append("cross")
    if config.connection.has_feed_forward:
        kinds.append("feed_forward")
    connection = config.connection.build(context, tuple(kinds))
    context = replace(context, norm_style=connection.norm_style)
    layers = range(config.layers)
    return Stack(
        connection,
        config.aggregation.build(context),
        config.fusion.build(context),
        [config.mixer.build(context) for _ in layers],
        [CrossAttention(context) for _ in layers] if "cross" in kinds else [],
        [FeedForward(context) for _ in layers] if "feed_forward" in kinds else [],
    )


def _embedding(config: ModelConfig, table: TokenTable, context: StackContext) -> Embedding:
    return Embedding(
        table,
        config.positions.build(config.d_model, config.max_length),
        scale=config.d_model**0.5 if config.embeddings.scale else 1.0,
        norm=context.norm() if config.embeddings.norm else None,
        dropout=config.dropout.embedding,
    )
