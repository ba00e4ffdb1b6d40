"""Long work beside the model, such as reading a large document: no client keeps the others waiting."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock, get_ident
from typing import TypeVar
from weakref import WeakValueDictionary

from deepwire.serve.disconnection import Disconnected, DisconnectedError, unless_gone

_Result = TypeVar("_Result")


class ClientThreads:
    """A few threads, of which a client has one at a time.

    Work whose client has gone away, or whose time is over, ends with a DisconnectedError at its next step in
    Python. Until then the client has no other thread.

    Args:
        most: Threads of all clients.
    """

    def __init__(self, most: int) -> None:
        self._threads = ThreadPoolExecutor(most, "client")
        self._turns = WeakValueDictionary[str, asyncio.Lock]()

    async def run(self, work: Callable[[], _Result], client: str, disconnected: Disconnected) -> _Result:
        """The result of work, in a thread.

        Args:
            work: What to do; it is begun only if it is still wanted when it is its turn.
            client: Whose turn it is.
            disconnected: Returns when the client has gone away.

        Raises:
            DisconnectedError: The client has gone away.
        """
        turn = self._turns.setdefault(client, asyncio.Lock())
        changing, thread, given_up, is_turn = Lock(), 0, False, False

        def begin() -> _Result:
            nonlocal thread
            with changing:
                if given_up:
                    raise DisconnectedError
                thread = get_ident()
            try:
                return work()
            finally:
                with changing:
                    thread = 0

        async def in_turn() -> _Result:
            nonlocal is_turn
            async with turn:
                is_turn = True
                return await asyncio.get_running_loop().run_in_executor(self._threads, begin)

        # A task of its own: it keeps the turn until the thread has ended, also when nobody waits for it.
        result = asyncio.ensure_future(in_turn())
        result.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await unless_gone(result, disconnected)
        finally:
            with changing:
                given_up = True
                if thread:  # readers of documents, some not ours, have no place to ask whether to go on
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(thread), ctypes.py_object(DisconnectedError)
                    )
            if not is_turn:
                result.cancel()
