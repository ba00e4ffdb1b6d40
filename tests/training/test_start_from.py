from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from toy_run import JobMaker, digests, records, run_training

from deepwire.checkpoint.store import save_model
from deepwire.data.languages import Languages
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import BpeConfig, WordsConfig
from deepwire.errors import ModelError, UsageError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel
from deepwire.training.config import StartFromSection
from deepwire.training.start_from import map_rows, start_from

SHAPE = {"d_model": 8, "heads": 2, "feed_forward": 8, "encoder": {"layers": 2}, "decoder": {"layers": 1}}


def vocabularies(words: str, *, joint: bool = True) -> Vocabularies:
    return Vocabularies.learn_from_blocks(WordsConfig(joint=joint), [[Pair(1, words, words, 0)]])


def model(words: Vocabularies, seed: int = 1, **changes: object) -> TranslationModel:
    torch.manual_seed(seed)
    built = build_model(
        ModelConfig.model_validate({**SHAPE, **changes}), words.source.size, words.target.size
    )
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(torch.randn_like(parameter))
    return built


@pytest.fixture
def teacher(tmp_path: Path) -> Callable[..., str]:
    """Saves a model; gives its name."""

    def save(words: Vocabularies, **changes: Any) -> str:
        save_model(tmp_path / "teacher", model(words, **changes), words, {"source_bos": False})
        return str(tmp_path / "teacher")

    return save


def values(one: TranslationModel) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in one.named_parameters()}


WORDS = vocabularies("a b c d")


def test_everything_is_taken_over(teacher: Callable[..., str]) -> None:
    student = model(WORDS, seed=2)
    name = teacher(WORDS)
    report = start_from(StartFromSection(model=name), student, WORDS, source_bos=False)
    old = values(model(WORDS))
    assert all(torch.equal(value, old[key]) for key, value in values(student).items())
    assert report.loaded == list(old)
    assert (report.missing, report.unexpected, report.reshaped, report.changed) == ([], [], [], [])
    assert report.vocabulary == {}
    assert f"started from {name}" in report.lines()[0]


def test_a_deeper_stack_must_be_allowed_and_keeps_its_first_values(teacher: Callable[..., str]) -> None:
    name = teacher(WORDS)
    student = model(WORDS, seed=2, encoder={"layers": 3})
    before = values(student)
    with pytest.raises(
        ModelError, match=r"encoder\.layers 3, there 2; 9 missing there: encoder\.mixers\.2"
    ) as caught:
        start_from(StartFromSection(model=name), student, WORDS, source_bos=False)
    assert "training.start_from.allow_missing" in caught.value.hint
    assert all(torch.equal(value, before[key]) for key, value in values(student).items())
    allowing = StartFromSection(model=name, allow_missing="encoder.*")
    report = start_from(allowing, student, WORDS, source_bos=False)
    assert report.missing
    assert all(torch.equal(values(student)[key], before[key]) for key in report.missing)
    assert set(report.loaded) | set(report.missing) == before.keys()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feed_forward": 16}, r"feed_forward 16, there 8; 9 of another shape there: "),
        ({"heads": 4}, r"run: model\.heads 4, there 2 \(set model\.heads=2, or"),
        (
            {"encoder": {"layers": 2, "connection": "post_norm"}},
            r"model\.encoder\.connection\.type post_norm, there pre_norm",
        ),
        ({"activation": "gelu"}, r"model\.activation gelu, there relu"),
    ],
)
def test_another_architecture_is_refused_by_name(
    teacher: Callable[..., str], change: dict[str, object], message: str
) -> None:
    name = teacher(WORDS)
    with pytest.raises(ModelError, match=message):
        start_from(StartFromSection(model=name), model(WORDS, seed=2, **change), WORDS, source_bos=False)


@pytest.mark.parametrize("tie", ["all", "output", "inputs", "none"])
def test_rows_of_words_move_with_the_words(teacher: Callable[..., str], tie: str) -> None:
    new = vocabularies("d c e b f d")
    name = teacher(WORDS, embeddings={"tie": tie})
    old, student = model(WORDS, embeddings={"tie": tie}), model(new, seed=2, embeddings={"tie": tie})
    report = start_from(StartFromSection(model=name), student, new, source_bos=False)
    assert report.vocabulary == {"joint": {"taken": 3, "new": 2, "dropped": 1}}
    assert "joint vocabulary: 3 pieces keep their rows, 2 are new, 1 are dropped" in report.lines()
    before = dict(old.named_parameters(remove_duplicate=False))
    for key, parameter in student.named_parameters():
        if key.startswith(("source_embedding.table", "target_embedding.table", "head.")):
            for word in "bcd":
                row, origin = new.target.encode(word)[0], WORDS.target.encode(word)[0]
                assert torch.equal(parameter[row], before[key][origin])
            for special in range(4):
                assert torch.equal(parameter[special], before[key][special])
            # A word that the old vocabulary knows nothing of begins as the mean of all.
            torch.testing.assert_close(parameter[new.target.encode("e")[0]], before[key][4:].mean(0))


def test_new_pieces_are_made_of_old_ones() -> None:
    pairs = [Pair(1, "lower lowest low", "lower lowest low", 0)]
    small = Vocabularies.learn_from_blocks(
        BpeConfig(size=16, byte_fallback=False, character_coverage=1.0), [pairs * 20]
    )
    large = Vocabularies.learn_from_blocks(
        BpeConfig(size=20, byte_fallback=False, character_coverage=1.0), [pairs * 20]
    )
    rows = map_rows(small.source, large.source)
    assert rows.taken + rows.new == large.source.size - 4
    assert rows.taken == small.source.size - 4
    table = torch.randn(small.source.size, 3)
    made = rows.rows(table)
    for number in range(4, large.source.size):
        piece = large.source.pieces([number])[0]
        old = small.source.pieces(range(4, small.source.size))
        if piece in old:
            assert torch.equal(made[number], table[4 + old.index(piece)])
        else:
            cut = small.source.encode(large.source.decode([number]))
            assert len(cut) > 1
            torch.testing.assert_close(made[number], table[cut].mean(0))


def test_a_new_run_begins_where_the_other_ended(make_job: JobMaker) -> None:
    first = make_job("first", max_updates=40)
    run_training(first, quiet=True)
    second = make_job("second", max_updates=5, start_from=f"{first.run.path}@avg2")
    run_training(second, quiet=True)
    before, after = (records(job.run, "train") for job in (first, second))
    assert before[0]["loss"] - 0.2 > after[0]["loss"]
    report = json.loads(second.run.start_from.read_text())
    assert report["model"].endswith("first@avg2")
    assert len(report["loaded"]) == len(dict(second.build().named_parameters()))
    log = second.run.log.read_text()
    assert f"started from {first.run.path}@avg2" in log


def test_a_continued_run_does_not_read_the_model_again(make_job: JobMaker) -> None:
    first = make_job("first", max_updates=20)
    run_training(first, quiet=True)
    settings: dict[str, object] = {
        "start_from": {"model": str(first.run.path), "allow_missing": ["encoder.*"]},
        "model": {"encoder": {"layers": 2}},
        "checkpoint": {"every": 10},
        "validation": {"every": 10},
    }
    straight = make_job("straight", max_updates=20, **settings)
    run_training(straight, quiet=True)
    run_training(make_job("halved", max_updates=10, **settings), quiet=True)
    first.run.path.rename(first.run.path.with_name("gone"))
    halved = make_job("halved", max_updates=20, **settings)
    run_training(halved, quiet=True)
    assert digests(halved.run, 20) == digests(straight.run, 20)
    assert records(halved.run) == records(straight.run)
    with pytest.raises(UsageError, match=r"training\.start_from"):
        run_training(make_job("halved", max_updates=60, **{**settings, "start_from": "other"}), quiet=True)


def test_a_first_start_that_fails_leaves_everything_as_it_was(make_job: JobMaker) -> None:
    first = make_job("first", max_updates=20)
    run_training(first, quiet=True)
    wrong = make_job("wrong", model={"d_model": 32}, start_from=str(first.run.path))
    with pytest.raises(ModelError, match="does not fit this run"):
        run_training(wrong, quiet=True)
    assert not wrong.run.path.exists()
    with pytest.raises(ModelError, match="does not fit this run"):
        run_training(dataclasses.replace(wrong, run=first.run), fresh=True, quiet=True)
    assert [one.update for one in first.run.checkpoints()] == [10, 20]
    assert not first.run.path.with_name("first.1").exists()
    wrong.run.path.mkdir()
    (wrong.run.path / "notes").write_text("mine")
    with pytest.raises(ModelError, match="does not fit this run"):
        run_training(wrong, quiet=True)
    assert [path.name for path in wrong.run.path.iterdir()] == ["notes"]
    missing = make_job("missing", start_from="no-such-run@best")
    with pytest.raises(ModelError, match="no such run"):
        run_training(missing, quiet=True)


def many(*directions: str, tag: str = "source") -> Languages:
    found = Languages.from_metadata(
        {
            "directions": list(directions),
            "tag": tag,
            "languages": sorted({name for one in directions for name in one.split("-")}),
        }
    )
    assert found is not None
    return found


def test_tags_move_with_the_names_of_their_languages(tmp_path: Path) -> None:
    old, new = many("de-en", "en-de"), many("cs-de", "de-en", "en-cs")
    torch.manual_seed(1)
    size, shape = WORDS.source.size, ModelConfig.model_validate(SHAPE)
    teacher, student = (build_model(shape, size + one.tags, size + one.tags) for one in (old, new))
    save_model(tmp_path / "teacher", teacher, WORDS, {"source_bos": False, **old.to_metadata()})
    config = StartFromSection(model=str(tmp_path / "teacher"))
    report = start_from(config, student, WORDS, source_bos=False, languages=new)
    assert report.missing == report.reshaped == []
    before, after = teacher.source_embedding.table.weight, student.source_embedding.table.weight
    assert torch.equal(after[:size], before[:size])
    rows = {name: after[size + number] for number, name in enumerate(new.names)}
    assert torch.equal(rows["de"], before[size])
    assert torch.equal(rows["en"], before[size + 1])
    torch.testing.assert_close(rows["cs"], before[size : size + 2].mean(0))
    with pytest.raises(ModelError, match=r"tag target, there source; 2 of another shape there: source_emb"):
        start_from(config, student, WORDS, source_bos=False, languages=many("de-en", "en-de", tag="target"))


def test_a_model_of_one_direction_grows_tags_and_loses_them(tmp_path: Path) -> None:
    languages = many("de-en", "en-de")
    torch.manual_seed(1)
    size, shape = WORDS.source.size, ModelConfig.model_validate(SHAPE)
    plain, tagged = build_model(shape, size, size), build_model(shape, size + 2, size + 2)
    save_model(tmp_path / "plain", plain, WORDS, {})
    begin = StartFromSection(model=str(tmp_path / "plain"))
    start_from(begin, tagged, WORDS, source_bos=False, languages=languages)
    table = plain.source_embedding.table.weight
    torch.testing.assert_close(tagged.source_embedding.table.weight[size], table[4:].mean(0))
    save_model(tmp_path / "tagged", tagged, WORDS, languages.to_metadata())
    back = build_model(shape, size, size)
    start_from(StartFromSection(model=str(tmp_path / "tagged")), back, WORDS, source_bos=False)
    assert torch.equal(back.source_embedding.table.weight, table)


EVERYTHING = {"norm": True, "transform": "identity", "embedding": "both", "output_bias": True}


def test_what_a_language_has_of_its_own_moves_with_its_name(tmp_path: Path) -> None:
    old, new = many("de-en", "en-de"), many("cs-de", "de-en", "en-cs")
    config = ModelConfig.model_validate({**SHAPE, "languages": EVERYTHING, "dropout": 0})
    size = WORDS.source.size
    torch.manual_seed(1)
    teacher, student = (
        build_model(config, size + len(one.names), size + len(one.names), languages=len(one.names)).eval()
        for one in (old, new)
    )
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    save_model(tmp_path / "teacher", teacher, WORDS, {"source_bos": False, **old.to_metadata()})
    begin = StartFromSection(model=str(tmp_path / "teacher"))
    report = start_from(begin, student, WORDS, source_bos=False, languages=new)
    assert report.missing == report.reshaped == report.changed == []
    words = torch.tensor([[4, 5, 6, 2]])
    for name in ("de", "en"):
        scores = [
            one.log_probs(words, words, languages=torch.tensor([languages.names.index(name)]))[..., :size]
            for one, languages in ((teacher, old), (student, new))
        ]
        torch.testing.assert_close(*(each.log_softmax(-1) for each in scores))
    torch.testing.assert_close(student.transform.weight[0], teacher.transform.weight.mean(0))


def test_what_all_languages_share_begins_each_of_their_own(tmp_path: Path) -> None:
    languages = many("de-en", "en-de", tag="none")
    size = WORDS.source.size
    torch.manual_seed(1)
    plain = build_model(ModelConfig.model_validate({**SHAPE, "dropout": 0}), size, size).eval()
    config = {
        **SHAPE,
        "dropout": 0,
        "languages": {"norm": True, "transform": "identity", "output_bias": True},
    }
    own = build_model(ModelConfig.model_validate(config), size, size, languages=2).eval()
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    save_model(tmp_path / "plain", plain, WORDS, {})
    untold = StartFromSection(model=str(tmp_path / "plain"))
    with pytest.raises(ModelError, match=r"1 missing there: transform\.weight \("):
        start_from(untold, own, WORDS, source_bos=False, languages=languages)
    begin = StartFromSection(model=str(tmp_path / "plain"), allow_missing=["transform.weight"])
    start_from(begin, own, WORDS, source_bos=False, languages=languages)
    words = torch.tensor([[4, 5, 6, 2], [5, 4, 2, 0]])
    found = own.log_probs(words, words, languages=torch.tensor([1, 0]))
    torch.testing.assert_close(found, plain.log_probs(words, words))
