"""Encoder-decoder, decoder-only and language models, and the four sockets of their stacks.

A stack (`stack.py`) is one loop over depth. Each socket answers one question about it, has one folder with
one file per choice, and one table in that folder's `__init__.py`:

- `mixers/`: how does a position see the others?
- `connections/`: how do the sub-layers of one layer join the stream?
- `aggregations/`: what does each layer read of the layers below?
- `fusions/`: what leaves the stack?
"""
