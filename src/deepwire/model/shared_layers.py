"""Encoder and decoder with one set of layers: layer i of both has the same parameters.

He et al. 2018 (Layer-Wise Coordination between Encoder and Decoder for Neural Machine Translation).
"""

from __future__ import annotations

from torch import nn

from deepwire.model.stack import Stack

_OF_LAYERS = ("mixers", "feed_forwards", "connection")


def share_layers(encoder: Stack, decoder: Stack) -> None:
    """Give the decoder's mixers, feed-forward networks and connection the parameters of the encoder's.

    Raises:
        ValueError: They do not have the same parameters.
    """
    for part in _OF_LAYERS:
        of_encoder, of_decoder = (
            dict(stack.get_submodule(part).named_parameters()) for stack in (encoder, decoder)
        )
        shapes = [
            {name: each.shape for name, each in parameters.items()} for parameters in (of_encoder, of_decoder)
        ]
        if shapes[0] != shapes[1]:
            differing = sorted(name for name, _ in shapes[0].items() ^ shapes[1].items())
            raise ValueError(
                f"share_layers: {part} of encoder and decoder do not have the same parameters, "
                f"see {differing[0]}"
            )
        for name, parameter in of_encoder.items():
            holder, _, leaf = name.rpartition(".")
            module: nn.Module = decoder.get_submodule(part).get_submodule(holder)
            setattr(module, leaf, parameter)
