"""Batches as tensors on the device; on a GPU they are made and copied while it computes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from deepwire.data.batching import Batch, StreamPosition, Update, UpdateStream

_AHEAD = 4
_PATIENCE = 0.1


@dataclass(frozen=True)
class DeviceBatch:
    """One forward pass on the device; int64, padded with PAD.

    Attributes:
        source: ``[B, S]``.
        target_input: ``[B, T]``.
        target_output: ``[B, T]``.
    """

    source: Tensor
    target_input: Tensor
    target_output: Tensor


@dataclass(frozen=True)
class DeviceUpdate:
    """One update on the device.

    Attributes:
        number: Which update this is, from 1.
        epoch: Which epoch it belongs to.
        target_tokens: Real target tokens in all batches.
        batches: The forward passes.
        lines: Indices of its sentence pairs in the store.
        after: The position of the stream after it.
    """

    number: int
    epoch: int
    target_tokens: int
    batches: tuple[DeviceBatch, ...]
    lines: tuple[np.ndarray, ...]
    after: StreamPosition


def to_device(batch: Batch, device: torch.device) -> DeviceBatch:
    """Copy a batch to ``device``, without waiting for a GPU."""
    return DeviceBatch(
        _tensor(batch.source, device), _tensor(batch.target_input, device), _tensor(batch.target_output, device)
    )


def feed(stream: UpdateStream, start: StreamPosition, device: torch.device) -> Iterator[DeviceUpdate]:
    """The updates from ``start`` on, on ``device``, without end."""
    updates = (
        DeviceUpdate(
            update.number,
            update.epoch,
            update.target_tokens,
            tuple(to_device(batch, device) for batch in update.batches),
            tuple(batch.lines for batch in update.batches),
            after,
        )
        for update, after in stream.updates(start)
    )
    return _ahead(updates) if device.type == "cuda" else updates


def _tensor(values: np.ndarray, device: torch.device) -> Tensor:
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def _ahead(updates: Iterator[DeviceUpdate]) -> Iterator[DeviceUpdate]:
    """The same updates, made by a thread a few at a time ahead; it ends when the iterator is closed."""
    ready: queue.Queue[DeviceUpdate | BaseException] = queue.Queue(_AHEAD)
    closed = threading.Event()

    def put(item: DeviceUpdate | BaseException) -> None:
        while not closed.is_set():
            try:
                ready.put(item, timeout=_PATIENCE)
            except queue.Full:
                continue
            return

    def work() -> None:
        try:
            for update in updates:
                put(update)
                if closed.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - it is raised again where the updates are used
            put(error)

    threading.Thread(target=work, name="batches", daemon=True).start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        closed.set()
