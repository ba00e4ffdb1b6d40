"""Long work of one client keeps no other waiting, and work that nobody waits for is not begun or ends."""

from __future__ import annotations

import asyncio
import threading

import pytest

from deepwire.serve.document_translation import ClientThreads
from deepwire.serve.service import Client, DisconnectedError

PATIENCE = 60


async def stays() -> None:
    """A client that does not go away."""
    await asyncio.Event().wait()


async def begins(event: threading.Event) -> None:
    """Wait until a thread says so."""
    assert await asyncio.to_thread(event.wait, PATIENCE)


class Slow:
    """Work that takes until it is let go, and notes which work was begun."""

    def __init__(self) -> None:
        self.begun, self.free = threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.free.wait(PATIENCE)
        return "slow"


@pytest.mark.parametrize("over", [False, True], ids=["in time", "time over"])
def test_work_keeps_its_client_alone_waiting(over: bool) -> None:
    async def run() -> None:
        threads, slow = ClientThreads(2), Slow()
        first = asyncio.ensure_future(threads.run(slow, Client("a", stays)))
        await begins(slow.begun)
        assert first.cancel() if over else not first.done()
        second = asyncio.ensure_future(threads.run(lambda: "of the same", Client("a", stays)))
        assert await threads.run(lambda: "of another", Client("b", stays)) == "of another"
        assert not second.done(), "a client has one thread at a time"
        slow.free.set()
        assert await second == "of the same"

    asyncio.run(run())


@pytest.mark.parametrize("leaves", [True, False], ids=["client left", "time over"])
def test_work_that_never_asks_ends_with_its_client_or_time(leaves: bool) -> None:
    async def run() -> None:
        threads, begun, gone = ClientThreads(1), threading.Event(), asyncio.Event()

        def endless() -> None:
            begun.set()
            while True:
                sum(range(100))

        async def left() -> None:
            await gone.wait()

        work = asyncio.ensure_future(threads.run(endless, Client("a", left)))
        await begins(begun)
        (gone.set if leaves else work.cancel)()
        with pytest.raises(DisconnectedError if leaves else asyncio.CancelledError):
            await work
        assert await asyncio.wait_for(threads.run(str, Client("a", stays)), PATIENCE) == ""

    asyncio.run(run())


@pytest.mark.parametrize("client", ["a", "b"], ids=["its turn is later", "no thread is free"])
def test_work_of_a_client_that_left_is_not_begun(client: str) -> None:
    async def run() -> None:
        threads, slow, begun = ClientThreads(1), Slow(), list[str]()
        first = asyncio.ensure_future(threads.run(slow, Client("a", stays)))
        await begins(slow.begun)

        async def leaves() -> None:
            await asyncio.sleep(0)

        with pytest.raises(DisconnectedError):
            await threads.run(lambda: begun.append("left"), Client(client, leaves))
        slow.free.set()
        assert await first == "slow"
        assert await threads.run(lambda: "next", Client(client, stays)) == "next"
        assert begun == []

    asyncio.run(run())
