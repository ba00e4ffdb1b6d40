"""The graphs of an exported model, run by onnxruntime or by torch; and errors that a user can cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Tensors = dict[str, Array]
Run = Callable[[Tensors], Sequence[Array]]
RUNS = ("onnxruntime", "torch_export")
"""The names of what runs graphs."""


class HostError(ValueError):
    """Base of errors that end the program without a traceback; exit codes are those of deepwire."""

    exit_code = 1


class UsageError(HostError):
    """An option or setting is wrong."""

    exit_code = 2


class DataError(HostError):
    """A line of the input is wrong."""

    exit_code = 3


class ModelError(HostError):
    """The folder is no exported model, or a file of it is missing or damaged."""

    exit_code = 4


def reason(error: Exception) -> str:
    """The first line of what a library says."""
    return (str(error).splitlines() or [type(error).__name__])[0]


class Begun(NamedTuple):
    """A decoder after the first tokens: log-probabilities of the next, `[N, 1, V]`, and the state."""

    log_probs: Array
    memory: Tensors
    state: Tensors
    position: int


def _onnx(path: Path, outputs: Sequence[str], threads: int, providers: Sequence[str]) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), sess_options=options, providers=list(providers))
    return lambda tensors: session.run(list(outputs), tensors)


def _torch(path: Path, threads: int) -> Run:
    import torch

    if threads:
        torch.set_num_threads(threads)
    program = torch.export.load(path).module()

    def run(tensors: Tensors) -> list[Array]:
        with torch.no_grad():
            results = program(*(torch.from_numpy(np.asarray(each, order="C")) for each in tensors.values()))
        return [each.numpy() for each in results]

    return run


class GraphModel:
    """The graphs: encoder, start and step; or prompt and step of a decoder alone.

    Args:
        folder: With the graphs.
        manifest: What there is.
        threads: Of what runs them; 0: as many as there are cores.
        providers: Where onnxruntime runs.

    Raises:
        UsageError: What runs the graphs is not installed.
        ModelError: A file is missing or damaged.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Mapping[str, Any],
        threads: int = 0,
        providers: Sequence[str] = ("CPUExecutionProvider",),
    ) -> None:
        graphs = manifest["graphs"]
        self.names = {name: [leaf["name"] for leaf in graph["outputs"]] for name, graph in graphs.items()}
        self.inputs = {name: [leaf["name"] for leaf in graph["inputs"]] for name, graph in graphs.items()}
        self.sessions: dict[str, Run] = {}
        for name, graph in graphs.items():
            path = folder / graph["file"]
            try:
                if manifest.get("runs") == "torch_export":
                    self.sessions[name] = _torch(path, threads)
                else:
                    self.sessions[name] = _onnx(path, self.names[name], threads, providers)
            except ImportError as error:
                raise UsageError(f"{path.name} cannot be run: {reason(error)}; install it") from error
            except Exception as error:  # libraries raise all kinds of them
                raise ModelError(f"{path}: cannot be read: {reason(error)}; export the model anew") from error
        first = self.names["prompt" if "prompt" in graphs else "start"]
        self.memory = {name for name in first if name.startswith("memory")}

    def run(self, graph: str, tensors: Tensors) -> Tensors:
        """The results of a graph by name; of `tensors` those that it reads."""
        inputs = {name: tensors[name] for name in self.inputs[graph]}
        return dict(zip(self.names[graph], self.sessions[graph](inputs), strict=True))

    def start(self, source: Array, languages: Array | None) -> tuple[Tensors, Tensors]:
        """Memory and first state of sentences `[N, S]`, padded with 0; state tensors are `[N, 1, ...]`."""
        given = {} if languages is None else {"languages": languages}
        started = self.run("start", {**self.run("encoder", {"source": source, **given}), **given})
        state = {name: tensor for name, tensor in started.items() if name not in self.memory}
        return {**{name: started[name] for name in self.memory}, **given}, state

    def read(self, source: Array, tokens: Array, languages: Array | None) -> Begun:
        """Read sources `[N, S]` and target tokens `[N, P]` in one pass, without padding."""
        given = {} if languages is None else {"languages": languages}
        state = self.run("prompt", {"source": source, "tokens": tokens, **given})
        return Begun(state.pop("log_probs"), given, state, source.shape[1] + tokens.shape[1])

    def step(self, tokens: Array, position: int, memory: Tensors, state: Tensors) -> tuple[Array, Tensors]:
        """Log-probabilities `[N, W, V]` of what follows the tokens `[N, W]`, and the next state."""
        given = {"tokens": tokens, "position": np.array(position), **memory, **state}
        log_probs, *new = self.run("step", given).values()
        return log_probs, dict(zip(state, new, strict=True))
