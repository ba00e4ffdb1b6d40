from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepwire.decoding.side_by_side import Stoppable, Stopped, side_by_side

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _threads_as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@settings(max_examples=20, deadline=None)
@given(items=st.lists(st.integers(), max_size=12), threads=st.integers(1, 5))
def test_results_come_in_the_order_of_the_items(items, threads):
    torch.set_num_threads(threads)
    assert side_by_side(lambda item, _: item * 2, items, CPU) == [item * 2 for item in items]
    assert torch.get_num_threads() == threads


def test_items_share_the_threads_and_run_at_the_same_time():
    torch.set_num_threads(5)
    together = threading.Barrier(2, timeout=60)

    def work(item, _stop):
        together.wait()
        return item, torch.get_num_threads()

    assert side_by_side(work, ["a", "b"], CPU) == [("a", 2), ("b", 2)]
    beginning = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    seen: list[int] = []
    beginning.start()
    beginning.join()
    assert seen == [5]


@pytest.mark.parametrize(("threads", "device"), [(1, "cpu"), (4, "cuda")])
def test_one_thread_or_a_gpu_takes_one_item_after_the_other(threads, device):
    torch.set_num_threads(threads)
    here = threading.get_ident()
    assert side_by_side(lambda *_: threading.get_ident(), [1, 2], torch.device(device)) == [here, here]


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()])
def test_an_error_calls_the_others_off(error):
    torch.set_num_threads(2)
    begun = []

    def work(item, stop):
        begun.append(item)
        if item == 0:
            raise error
        if not stop.wait(60):
            pytest.fail("nobody stopped this item")
        raise Stopped

    with pytest.raises(type(error)):
        side_by_side(work, range(50), CPU)
    assert len(begun) < 50
    assert torch.get_num_threads() == 2


def test_a_model_that_is_called_off_takes_no_further_step(toys):
    stop = threading.Event()
    model = Stoppable(toys.Model(), stop)
    state = model.start(torch.tensor([[5, 6, 2]]), 4)
    _, state = model.step(torch.tensor([1]), state)
    stop.set()
    with pytest.raises(Stopped):
        model.step(torch.tensor([1]), state)
