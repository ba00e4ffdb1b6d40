"""The search of OpenNMT-py and of eole, its successor: the same options in both."""

from __future__ import annotations

from peers.decoding.base import Request


def search_settings(request: Request) -> list[str]:
    """Options of the command; neither limit counts the end, and no step is spent on it at the upper one."""
    return [
        *("-beam_size", str(request.beam), "-batch_size", str(request.batch), "-batch_type", "sents"),
        *("-min_length", str(request.length), "-max_length", str(request.length), "-max_length_ratio", "0"),
        *("-length_penalty", "none"),
    ]
