"""Every shipped recipe loads, builds, and has the size that was published."""

from __future__ import annotations

from functools import cache

import pytest

from deepwire import recipes
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.connections.depth_lstm import DepthLSTMConfig
from deepwire.model.connections.runge_kutta import RungeKuttaConfig
from deepwire.model.meta_init import meta_init
from deepwire.recipes.notes import read_note
from deepwire.runfile import LoadedRunFile, load_run_file
from deepwire.training.optimizers.optimizer import AdamConfig

WITHOUT_SIZE = 1000


@cache
def loaded(name: str) -> LoadedRunFile:
    """Each recipe is read once."""
    return load_run_file(name)


@cache
def parameters(model: ModelConfig, source: int, target: int, languages: int) -> int:
    """The count of each architecture, built once, without memory for the values."""
    with meta_init():
        built = build_model(model, source, target, languages=languages)
    return sum(parameter.numel() for parameter in built.parameters())


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_loads_and_builds(name: str) -> None:
    config = loaded(name).config
    assert config.recipe is not None
    size = config.recipe.size
    languages = config.data.languages
    count = len(languages.names) if languages else 0
    found = parameters(
        config.model, *(size.vocabularies if size else config.vocabulary_sizes(WITHOUT_SIZE)), count
    )
    if size is None:
        return
    # A reason for a difference must not outlive the difference.
    assert size.verdict(found) == ("known" if size.differs else "fits")


def test_recipes_of_papers_name_their_rows() -> None:
    for name in recipes.names():
        note = read_note(name)
        if name.count("/") == 2:  # papers/<paper>/<row>
            assert note.paper, name
            assert note.row, name


def test_no_two_recipes_of_a_paper_are_the_same_run() -> None:
    seen: dict[str, str] = {}
    for name in recipes.names():
        if name.count("/") == 2:
            settings = loaded(name).resolved.items()
            paper = name.rpartition("/")[0]
            key = paper + str({section: value for section, value in settings if section != "recipe"})
            assert key not in seen, f"{name} and {seen[key]}"
            seen[key] = name


def test_the_preprint_of_the_depth_wise_lstm_has_gelu_where_the_paper_has_glu() -> None:
    found = {}
    for name in recipes.below("papers/depth-lstm-2020"):
        model, row = loaded(name).config.model, name.rpartition("/")[2]
        if row.startswith("depth-lstm"):
            connections = model.encoder.connection, model.decoder.connection
            (hidden,) = {side.hidden for side in connections if isinstance(side, DepthLSTMConfig)}
            found[row] = hidden
    assert len(found) == 10
    assert found.pop("depth-lstm-6-6-one-layer") == "one_layer"
    assert set(found.values()) == {"gelu"}


def test_rows_of_released_code_follow_it() -> None:
    """Their published scores were made by it, and not by the equations."""
    for name in ("papers/depth-lstm-2024/ode-24-6", "papers/depth-lstm-2024/ode-big-12-6"):
        connection = loaded(name).config.model.encoder.connection
        assert isinstance(connection, RungeKuttaConfig)
        assert connection.function == "layer"


def test_rare_tokens_are_left_out_where_the_paper_says_so() -> None:
    """DLCL paper, footnote 8: tokens of the shared English-German vocabulary with frequencies below 5."""
    least = {
        name: config.data.vocabulary.min_count
        for name in recipes.names()
        if (config := loaded(name).config).data.vocabulary.type == "subword_nmt"
    }
    assert least["papers/dlcl-2019/dlcl-pre-30-6"] == 5
    assert {least[name] for name in least if "zh-en" in name or "gtrans-2022" in name} == {1}


@pytest.mark.parametrize("name", [name for name in recipes.names() if name.startswith("papers/")])
def test_a_paper_leaves_out_the_pairs_that_it_says(name: str) -> None:
    """Xu et al. keep at most 256 subwords, or 80 for two decoders; others what fits into positions."""
    config = loaded(name).config
    filters, training = config.data.filters, config.training
    assert not filters.drop_duplicates
    assert min(filters.max_characters, filters.max_ratio) >= 1_000_000
    recurrent = name.rpartition("/")[2] in {"atr-6-6", "ln-lstm-6-6"}
    if training.label_smoothing_form == "uniform_wrong" or name.endswith("luna-6-6"):  # Xu et al.
        assert filters.max_length == (80 if recurrent else 256)
    else:
        assert filters.max_length == (509 if config.model.max_length == 512 else 1023)


@pytest.mark.parametrize("name", [name for name in recipes.names() if name.startswith("papers/")])
def test_fairseq_starts_with_the_end_symbol_and_has_whole_batches(name: str) -> None:
    config = loaded(name).config
    if isinstance(config.training.optimizer, AdamConfig) and config.training.optimizer.eps_form == "fairseq":
        assert config.model.embeddings.start == "eos"
        assert config.training.batch_tokens % 1024 == 0  # 1,024 or 4,096 on each device


@pytest.mark.parametrize(
    "name", [*recipes.below("papers/dlcl-2019"), *recipes.below("papers/depth-lstm-2024")]
)
def test_papers_before_half_precision_train_without_it(name: str) -> None:
    wanted = "bf16" if name.endswith("transformer-ott-big-6-6") else "fp32"
    assert loaded(name).config.training.precision == wanted


def test_gtrans_trains_for_the_epochs_of_the_paper() -> None:
    """At least 80 for two languages, 15 for several; its quoted row is by others."""
    for name in recipes.below("papers/gtrans-2022"):
        training = loaded(name).config.training
        if name.endswith("opus100-laln-lalt-24-24"):
            continue
        several = "iwslt17" in name or "opus100" in name
        assert training.max_updates is None
        assert str(training.stop_after) == ("15e" if several else "80e")


def test_printed_numbers_beside_scores_are_published() -> None:
    lines = {"depth-lstm-2020/transformer-6-6": 26.42, "depth-lstm-2020/depth-lstm-6-6": 19.87}
    for name, score in lines.items():
        published = read_note(f"papers/{name}").published
        assert len([key for key in published if key.endswith("linear")]) == 12
        assert published["en-de newstest2014, decoder layer 6 linear"] == score
    speeds = [key for name in recipes.names() for key in read_note(name).published if "/s on" in key]
    assert len(speeds) == 36
