"""Decoding with several target languages: tags, mixed batches, what is refused."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path

import pytest
import torch

from deepwire.data.languages import Direction, Languages
from deepwire.data.vocabulary import BOS, EOS, PAD
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.translation_io import Request, column_requests, format_json, json_requests
from deepwire.decoding.translator import Translator
from deepwire.errors import DataError, UsageError

PIECES = 12
DIRECTIONS = tuple(map(Direction.parse, ["en-de", "de-en", "en-fr", "fr-en"]))
INDEX = {"de": 0, "en": 1, "fr": 2}
TEXTS = ["abc", "hgfe", "", "aa", "cdefgh", "b", "bcd"]
INTO = ["fr", "de", "de", "en", "fr", "fr", "en"]
SEARCHES = [{"beam": 1}, {"beam": 3, "n_best": 2}, {"n_best": 2, "sampling": {"seed": 4}}]


@pytest.fixture(scope="session")
def multilingual(toys):
    """A model of three languages with tags: its memory depends on the language of the row as well."""

    class Multilingual(toys.Model):  # type: ignore[name-defined]  # the class comes with a fixture
        def __init__(self, favoured: int | None = None) -> None:
            super().__init__(size=PIECES + len(INDEX))
            generator = torch.Generator().manual_seed(7)
            self.by_language = torch.randn(3, 8, generator=generator, dtype=torch.float64)
            self.encoded: list[list[int]] = []
            self.first: list[object] = []
            self.favoured = favoured

        def start(self, source, *, languages=None, prompt=None):
            assert languages.shape == source.shape[:1]
            self.encoded += [[int(one) for one in row if one != PAD] for row in source]
            self.first.append(None)
            memory = super().start(source).memory + self.by_language[languages]
            return type(super().start(source))(memory, memory.tanh())

        def step(self, tokens, state):
            if self.first[-1] is None:
                self.first[-1] = tokens.tolist()
            log_probs, state = super().step(tokens, state)
            if self.favoured is not None:
                log_probs[:, self.favoured] = 0.0
            return log_probs, state

    return Multilingual


def translator(toys, model, tag="source", warnings=None, **settings):
    config = {"max_length_ratio": 1, "max_length_extra": 4, **settings}
    return Translator(
        [model],
        toys.vocabularies(PIECES),
        DecodingConfig.model_validate(config),
        languages=Languages(DIRECTIONS, tag),
        warn=([] if warnings is None else warnings).append,
    )


@pytest.mark.parametrize("tag", ["source", "target", "both", "none"])
@pytest.mark.parametrize("settings", SEARCHES)
def test_mixed_batches_give_what_batches_of_one_language_give(toys, multilingual, tag, settings):
    tool = translator(toys, multilingual(), tag, **settings)
    requests = [Request(text, to=to) for text, to in zip(TEXTS, INTO, strict=True)]
    mixed = list(tool.translations(requests))
    alone = {to: list(tool.translations(TEXTS, to=to)) for to in INDEX}
    for row, (to, answer) in enumerate(zip(INTO, mixed, strict=True)):
        assert answer.candidates == alone[to][row].candidates
    assert tool.translate(TEXTS, to=INTO) == [answer.text for answer in mixed]
    assert len({alone[to][0].text for to in INDEX}) > 1, "the language must make a difference"
    # Sampling draws by line, so only searches can be put in another order.
    if "sampling" not in settings:
        order = random.Random(1).sample(range(len(TEXTS)), len(TEXTS))
        found = tool.translations([requests[row] for row in order], window=3)
        assert [one.candidates for one in found] == [mixed[row].candidates for row in order]


@pytest.mark.parametrize(
    ("tag", "on_source", "on_target"),
    [("source", True, False), ("target", False, True), ("both", True, True), ("none", False, False)],
)
def test_the_model_reads_the_tags(toys, multilingual, tag, on_source, on_target):
    model = multilingual()
    tool = translator(toys, model, tag, batch_tokens=1)
    tool.translate(["ab", "c"], to="fr")
    fr = PIECES + INDEX["fr"]
    assert sorted(model.encoded) == [[*([fr] if on_source else []), *text, EOS] for text in ([4, 5], [6])]
    assert model.first == [[fr if on_target else BOS]] * 2


@pytest.mark.parametrize("settings", SEARCHES)
def test_tags_are_never_put_out(toys, multilingual, settings):
    tool = translator(toys, multilingual(favoured=PIECES + 1), **settings)
    for answer in tool.translations(TEXTS, to="de"):
        assert all(set(candidate.text) <= set("abcdefgh⁇") for candidate in answer.candidates)


def test_a_language_for_each_line_can_go_with_prefixes(toys, multilingual):
    tool = translator(toys, multilingual())
    found = tool.translate(["ab", "cd"], ["a", "b"], to=["fr", "de"])
    assert [text[0] for text in found] == ["a", "b"]
    assert found[1] == tool.translate(["cd"], ["b"], to="de")[0]
    with pytest.raises(UsageError, match="to: 1 for 2 texts"):
        tool.translate(["ab", "cd"], to=["fr"])


def test_what_the_model_cannot_do_is_refused_by_name(toys, multilingual):
    tool = translator(toys, multilingual())
    with pytest.raises(
        UsageError, match=r"does not know the language 'it' \(it translates into de, en, fr\)"
    ):
        tool.translate(["a"], to="it")
    with pytest.raises(UsageError, match=r"does not know the language 'it' \(it knows de, en, fr\)"):
        tool.translate(["a"], to="de", from_="it")
    with pytest.raises(UsageError, match="say which language to translate into"):
        tool.translate(["a"])
    with pytest.raises(UsageError, match=r"line 3: the model does not know the language 'xx'"):
        tool.translate([]) or list(tool.translations([Request("a", to="de"), "", Request("a", to="xx")]))
    with pytest.raises(UsageError, match="say which language to translate into"):
        tool.score([("a", "b")])


def test_a_model_of_one_direction_cannot_be_told_a_language(toys):
    tool = Translator([toys.Model(size=PIECES)], toys.vocabularies(PIECES), DecodingConfig())
    for ask in (
        lambda: tool.translate(["a"], to="de"),
        lambda: tool.translate(["a"], from_="de"),
        lambda: tool.score([("a", "b")], to="de"),
        lambda: list(tool.translations([Request("a", to="de")])),
    ):
        with pytest.raises(UsageError, match="one direction only and cannot be told 'de'"):
            ask()


def test_a_direction_that_was_not_trained_is_said_once(toys, multilingual):
    warnings: list[str] = []
    tool = translator(toys, multilingual(), warnings=warnings)
    tool.translate(["a", "b"], to="fr", from_="de")
    tool.translate(["a"], to="fr", from_="de")
    tool.translate(["a"], to="fr", from_="en")
    assert warnings == ["the model was not trained from de to fr (zero-shot)"]


def test_languages_in_a_column(tmp_path: Path):
    path = tmp_path / "text.tsv"
    path.write_text("fr\tone\n\nde\ttwo\tand more\nen\t\n", encoding="utf-8")
    found = [(one.to, one.text) for one in column_requests(path, 1, print)]
    assert found == [("fr", "one"), ("", ""), ("de", "two\tand more"), ("en", "")]
    path.write_text("one\tfr\ntwo\tand more\tde\n", encoding="utf-8")
    assert [(one.to, one.text) for one in column_requests(path, 2, print)] == [
        ("fr", "one"),
        ("de", "two\tand more"),
    ]
    path.write_text("fr\tone\nno language\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"text\.tsv:2: no column 1 with a language"):
        list(column_requests(path, 1, print))


def test_languages_in_json_lines(tmp_path: Path, toys, multilingual):
    path = tmp_path / "text.jsonl"
    path.write_text('{"text": "ab", "to": "fr", "from": "en", "id": 7}\n', encoding="utf-8")
    (request,) = json_requests(path, print)
    assert (request.text, request.to, request.from_) == ("ab", "fr", "en")
    (answer,) = translator(toys, multilingual()).translations([request])
    assert json.loads(format_json(answer))["to"] == "fr"
    assert json.loads(format_json(answer))["id"] == 7
    path.write_text('{"text": "ab", "to": 3}\n', encoding="utf-8")
    with pytest.raises(UsageError, match=r"text\.jsonl:1: say which language to translate into"):
        list(translator(toys, multilingual()).translations(json_requests(path, print)))


@pytest.mark.parametrize(
    ("text", "read", "message"),
    [
        ("fr\tab\nxx\tab\n", partial(column_requests, column=1), "does not know the language 'xx'"),
        ('{"text": "ab", "to": "fr"}\n{"text": "", "to": "xx"}\n', json_requests, "does not know the lan"),
        ('{"text": "ab", "to": "fr"}\n{"text": "a", "to": "fr", "from": "xx"}\n', json_requests, "'xx'"),
    ],
)
def test_a_wrong_language_in_a_file_is_named_with_its_line(
    tmp_path: Path, toys, multilingual, text, read, message
):
    path = tmp_path / "text"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=rf"text:2: the model .*{message}"):
        list(translator(toys, multilingual()).translations(read(path, warn=print)))
