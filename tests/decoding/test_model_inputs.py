"""Batches of sentences: made by length, compacted, decoded several at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepwire.data.text.language_profiles import LanguageProfiles
from deepwire.decoding.model_inputs import (
    Cancelled,
    SourceLanguage,
    batch_compaction,
    batches_by_length,
    ordered_map,
)

CPU = torch.device("cpu")


@given(lengths=st.lists(st.integers(1, 60), max_size=80), tokens=st.integers(1, 300))
def test_every_sentence_once_and_no_batch_too_large(lengths, tokens):
    batches = batches_by_length(lengths, tokens)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert batch
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= tokens


def test_batches_hold_neighbours_in_length():
    lengths = [3, 50, 4, 49, 3, 51]
    assert batches_by_length(lengths, 160) == [[5, 1, 3], [2, 0, 4]]


def flags(size: int, ended: int) -> list[bool]:
    return [True] * ended + [False] * (size - ended)


@given(st.lists(st.booleans(), min_size=1, max_size=300))
def test_only_ended_sentences_leave_and_all_others_stay_in_order(ended: list[bool]) -> None:
    leaving, staying = batch_compaction(ended)
    assert sorted([*leaving, *staying]) == list(range(len(ended)))
    assert staying == sorted(staying)
    assert all(ended[place] for place in leaving)


def test_few_leave_together_with_others_later() -> None:
    assert batch_compaction(flags(64, 7))[0] == []
    assert batch_compaction(flags(64, 8))[0] == list(range(8))
    assert batch_compaction(flags(3, 1))[0] == [0]
    assert batch_compaction(flags(0, 0)) == ([], [])


def test_batches_come_in_few_sizes() -> None:
    sizes = {len(batch_compaction(flags(64, ended))[1]) for ended in range(64)}
    assert sizes == {64, 56, 48, 40, 32, 28, 24, 20, 16, 14, 12, 10, 8, 7, 6, 5, 4, 3, 2, 1}


@pytest.fixture(autouse=True)
def _threads_as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@settings(max_examples=20, deadline=None)
@given(items=st.lists(st.integers(), max_size=12), threads=st.integers(1, 5))
def test_results_come_in_the_order_of_the_items(items, threads):
    torch.set_num_threads(threads)
    assert ordered_map(lambda item, _: item * 2, items, CPU) == [item * 2 for item in items]
    assert torch.get_num_threads() == threads


def test_items_share_the_threads_and_run_at_the_same_time():
    torch.set_num_threads(5)
    together = threading.Barrier(2, timeout=60)

    def work(item, _stop):
        together.wait()
        return item, torch.get_num_threads()

    assert ordered_map(work, ["a", "b"], CPU) == [("a", 2), ("b", 2)]
    beginning = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    seen: list[int] = []
    beginning.start()
    beginning.join()
    assert seen == [5]


@pytest.mark.parametrize(("threads", "device"), [(1, "cpu"), (4, "cuda")])
def test_one_thread_or_a_gpu_takes_one_item_after_the_other(threads, device):
    torch.set_num_threads(threads)
    here = threading.get_ident()
    assert ordered_map(lambda *_: threading.get_ident(), [1, 2], torch.device(device)) == [here, here]


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
        raise Cancelled

    with pytest.raises(type(error)):
        ordered_map(work, range(50), CPU)
    assert len(begun) < 50
    assert torch.get_num_threads() == 2


WARNING = "the text looks like 'en', but the model translates from 'de'"


def warnings(language: str, parts: Iterable[Sequence[str]], other: str = "en") -> list[str]:
    said: list[str] = []
    check = SourceLanguage(language, [other], said.append)
    for lines in parts:
        check.look(lines)
    return said


@pytest.mark.parametrize("window", [1, 7, 1000])
def test_the_other_language_is_said_once(multi30k: Mapping[str, Sequence[str]], window: int) -> None:
    lines = multi30k["en"][:1000]
    parts = [lines[first : first + window] for first in range(0, len(lines), window)]
    assert warnings("de", parts) == [WARNING]


@pytest.mark.parametrize("language", ["de", "en"])
def test_nothing_is_said_of_real_text_cut_anywhere(
    multi30k: Mapping[str, Sequence[str]], language: str
) -> None:
    lines = multi30k[language]
    for first in range(0, 2000, 20):
        assert warnings(language, [lines[first : first + 20]], {"de": "en", "en": "de"}[language]) == []


def test_nothing_is_said_of_short_text(multi30k: Mapping[str, Sequence[str]]) -> None:
    for line in multi30k["en"][:200]:
        if len(line.split()) < 20:
            assert warnings("de", [[line]]) == []
    assert warnings("de", [["New York Times", "Star Wars", "The Beatles", "iPhone 15 Pro Max"]]) == []


@pytest.mark.parametrize("language", ["source", "qaa", "src", ""])
def test_nothing_is_said_where_the_language_is_not_known(
    multi30k: Mapping[str, Sequence[str]], language: str
) -> None:
    assert warnings(language, [multi30k["en"][:100]], "target") == []


def test_scripts_tell_languages_without_frequent_words(multi30k: Mapping[str, Sequence[str]]) -> None:
    japanese = ["老人は川のそばに座っていたが、三日間魚が一匹も釣れなかった。"]
    assert warnings("ja", [multi30k["en"][:20]]) == [WARNING.replace("'de'", "'ja'")]
    assert warnings("ja", [japanese]) == []
    assert warnings("en", [japanese], "de") == [
        "the text looks like 'ja', but the model translates from 'en'"
    ]


def test_mixed_text_and_the_dialect_of_the_label_are_left_alone(
    multi30k: Mapping[str, Sequence[str]],
) -> None:
    mixed = [line for pair in zip(multi30k["de"][:50], multi30k["en"][:50], strict=True) for line in pair]
    assert warnings("de", [mixed]) == []
    assert warnings("deu_Latn", [multi30k["de"][:50]], "eng_Latn") == []
    assert warnings("de-AT", [multi30k["de"][:50]]) == []


def test_profiles_of_the_model_tell_languages_that_no_table_has():
    texts = {"xx": ["szczerze ptak na drzewie szczeka"] * 4, "yy": ["aloha mahalo keiki moana pua"] * 4}
    profiles, said = LanguageProfiles.learn(texts), list[str]()
    SourceLanguage("xx", ["yy"], said.append).look(texts["yy"] * 2)
    SourceLanguage("xx", ["yy"], said.append, profiles).look(texts["xx"] * 2)
    SourceLanguage("xx", ["yy"], said.append, profiles).look(texts["yy"][:1])  # too short
    assert said == []
    SourceLanguage("xx", ["yy"], said.append, profiles).look(texts["yy"] * 2)
    assert said == ["the text looks like 'yy', but the model translates from 'xx'"]
