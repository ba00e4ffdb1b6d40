"""Choices of other packages: found by entry point, registration and place; recorded, allowed, refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import pytest
import torch
from pydantic import Field, ValidationError
from torch import nn
from torch.nn.utils import parametrizations

import deepwire
from deepwire import plugins
from deepwire.checkpoint.store import CONFIG, load_model, model_parameters, save_model
from deepwire.cli.main import main
from deepwire.config import choice
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.errors import ModelError, UsageError
from deepwire.evaluation.metric import Floats
from deepwire.evaluation.metric_choice import ChrfMetric, MetricOptions, corpus_score
from deepwire.model.config import ModelConfig
from deepwire.model.connections.connection import Connection
from deepwire.model.connections.residual import PreNorm, PreNormConfig
from deepwire.model.meta_init import meta_model
from deepwire.model.stack_spec import StackSpec
from deepwire.model.translation_model import TranslationModel
from deepwire.runfile import LoadedRunFile, load_run_file

EXAMPLE = Path(__file__).parents[1] / "examples" / "plugin"
PLACE = "deepwire_example.highway.HighwayConfig"
SHAPE = {"d_model": 8, "heads": 2, "feed_forward": 16, "decoder": {"layers": 1}}
RUN = """
data: {source: de, target: en, train: corpus, vocabulary: {type: bpe, size: 40}}
model:
  d_model: 16
  heads: 2
  encoder:
    layers: 1
    connection: CONNECTION
"""
Install = Callable[..., None]


def forget() -> None:
    """Be as a new process, which has imported no plugin."""
    plugins._registered.clear()
    plugins._allowed.clear()
    plugins._announced.cache_clear()
    plugins._distributions.cache_clear()
    for table in choice._TABLES.values():
        table.others.clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "deepwire_example"]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test begins without plugins, and leaves none behind."""
    monkeypatch.setenv("DEEPWIRE_PLUGINS", "")  # one that was not there would not be taken away again
    forget()
    yield
    forget()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs the example package, as pip would, without copying it; on the path it is in any case."""

    def make(version: str = "0.1.0", package: str = "deepwire_example", **names: str) -> None:
        site = tmp_path / "site"
        folder = site / f"{package}.dist-info"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        (folder / "top_level.txt").write_text(f"{package}\n")
        lines = "".join(f"{name} = {place}\n" for name, place in names.items())
        (folder / "entry_points.txt").write_text(f"[{plugins.GROUP}]\n{lines}")
        monkeypatch.syspath_prepend(str(site))
        plugins._announced.cache_clear()
        plugins._distributions.cache_clear()

    return make


@pytest.fixture
def installed(install: Install) -> None:
    """The example package with the entry points of its pyproject.toml."""
    names = {
        "connection.highway": "deepwire_example.highway:HighwayConfig",
        "mixer.causal_convolution": "deepwire_example.causal_convolution:CausalConvolutionConfig",
        "optimizer.lion": "deepwire_example.lion:LionConfig",
        "schedule.polynomial": "deepwire_example.polynomial:PolynomialConfig",
    }
    text = (EXAMPLE / "pyproject.toml").read_text()
    assert all(f'"{name}" = "{place}"' in text for name, place in names.items())
    install(**names)


@pytest.fixture
def stored(installed: None, tmp_path: Path) -> Path:
    """A model with a highway encoder, that nobody has read yet."""
    vocabularies = Vocabularies.learn_from_blocks(WordsConfig(), [[Pair(1, "ein Haus", "a house", 0)]])
    settings = {**SHAPE, "encoder": {"layers": 1, "connection": "highway"}}
    model = deepwire.build(settings, (vocabularies.source.size, vocabularies.target.size))
    save_model(tmp_path / "model", model, vocabularies, {})
    forget()
    return tmp_path / "model"


def uninstall(tmp_path: Path) -> None:
    (tmp_path / "site" / "deepwire_example.dist-info" / "entry_points.txt").unlink()
    (tmp_path / "site" / "deepwire_example.dist-info" / "METADATA").unlink()
    (tmp_path / "site" / "deepwire_example.dist-info").rename(tmp_path / "site" / "gone")
    plugins._announced.cache_clear()
    plugins._distributions.cache_clear()


def place_of(section: object) -> str:
    return f"{type(section).__module__}.{type(section).__qualname__}"


def run_file(tmp_path: Path, connection: str) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(RUN.replace("CONNECTION", connection))
    return path


class OwnConfig(PreNormConfig):
    """A connection that nobody has registered."""

    type: Literal["own"] = "own"  # type: ignore[assignment]


def refusal(path: Path) -> str:
    return refused(path).message


def refused(path: Path) -> UsageError:
    with pytest.raises(UsageError) as raised:
        load_run_file(path, trusted=True)
    return raised.value


@pytest.mark.usefixtures("installed")
def test_an_installed_choice_is_checked_as_ours_are(tmp_path: Path) -> None:
    """By name, with its own settings; a list imports nothing; errors have file, line and suggestion."""
    assert plugins.names("connection") == ("highway",)
    assert [str(plugin) for plugin in plugins.known()] == [
        "connection highway of package deepwire_example 0.1.0",
        "mixer causal_convolution of package deepwire_example 0.1.0",
        "optimizer lion of package deepwire_example 0.1.0",
        "schedule polynomial of package deepwire_example 0.1.0",
    ]
    assert "deepwire_example" not in sys.modules
    config = load_run_file(run_file(tmp_path, "{type: highway, bias: -2}")).config
    assert config.model.encoder.connection.model_dump() == {"type": "highway", "bias": -2.0}
    assert refusal(run_file(tmp_path, "highwai")).endswith("(did you mean highway?)")
    assert refusal(run_file(tmp_path, "{type: highway, bia: 1}")) == (
        f"{tmp_path}/run.yaml:8: model.encoder.connection.bia: unknown key "
        "(did you mean model.encoder.connection.bias?)"
    )
    assert refusal(run_file(tmp_path, "{type: highway, bias: wide}")) == (
        f"{tmp_path}/run.yaml:8: model.encoder.connection.bias: must be a number, not 'wide'"
    )


def test_a_place_in_a_run_file_is_imported(tmp_path: Path) -> None:
    """It stays as it was written, and another process makes the same of it."""
    loaded = load_run_file(run_file(tmp_path, f"{{type: {PLACE}, bias: -3}}"), trusted=True)
    connection = loaded.config.model.encoder.connection
    assert connection.model_dump() == {"type": PLACE, "bias": -3.0}
    assert type(connection).__name__ == "HighwayConfig"
    assert [plugin.to_json() for plugin in choice.plugins_of(loaded.config.model)] == [
        {"kind": "connection", "name": PLACE, "package": "deepwire_example", "version": "", "place": PLACE}
    ]
    record = json.loads(json.dumps(loaded.to_json()))
    forget()
    again = LoadedRunFile.from_json(record).config.model
    assert again.model_dump() == loaded.config.model.model_dump()


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("no_such_package.Thing", "no_such_package cannot be imported: No module named"),
        ("os.path", "os.path is no connection"),
    ],
)
def test_a_wrong_place_is_one_line_with_the_line_of_the_file(
    tmp_path: Path, place: str, message: str
) -> None:
    text = refusal(run_file(tmp_path, place))
    assert text.startswith(f"{tmp_path}/run.yaml:8: model.encoder.connection: ")
    assert message in text
    assert "\n" not in text


def test_a_recorded_place_imports_nothing() -> None:
    """Only what the user wrote does: settings from anywhere else name packages in vain."""
    with pytest.raises(ValidationError, match="is not imported because a file names it"):
        ModelConfig.model_validate({"encoder": {"connection": PLACE}})
    assert "deepwire_example" not in sys.modules
    plugins.allow("deepwire_example")
    assert ModelConfig.model_validate({"encoder": {"connection": PLACE}}).encoder.connection.type == PLACE


def test_a_model_says_what_it_needs(stored: Path) -> None:
    record = json.loads((stored / CONFIG).read_text())
    assert record["plugins"] == [
        {
            "kind": "connection",
            "name": "highway",
            "package": "deepwire_example",
            "version": "0.1.0",
            "place": PLACE,
        }
    ]
    assert load_model(stored).model.config.encoder.connection.type == "highway"


def test_a_model_whose_package_is_not_allowed_imports_nothing(stored: Path, tmp_path: Path) -> None:
    """The package can be imported, but nobody installed it for deepwire or named it."""
    uninstall(tmp_path)
    with pytest.raises(ModelError, match=r"connection highway of package deepwire_example 0\.1\.0") as raised:
        load_model(stored)
    assert "because a model names it" in raised.value.message
    assert "--plugin deepwire_example" in raised.value.hint
    assert raised.value.exit_code == 4
    assert "deepwire_example" not in sys.modules
    plugins.use("deepwire_example")
    assert load_model(stored).model.config.encoder.connection.type == "highway"


def test_a_model_whose_package_is_missing_names_it(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uninstall(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(EXAMPLE)])
    with pytest.raises(ModelError, match=r"package deepwire_example 0\.1\.0, which is not") as raised:
        load_model(stored)
    assert raised.value.exit_code == 4


@pytest.mark.usefixtures("installed")
def test_optimizer_and_schedule_train_a_model_that_needs_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for language, text in (("de", "ein Haus\n"), ("en", "a house\n")):
        Path(f"corpus.{language}").write_text(text * 8)
    settings = [
        str(run_file(tmp_path, "pre_norm")),
        "data.vocabulary=words",
        "run=run",
        "training.device=cpu",
    ]
    settings += ["training.optimizer={type: lion, weight_decay: 0.1}", "training.schedule=polynomial"]
    settings += ["training.schedule.warmup=2"]
    for updates in (4, 6):
        assert main(["train", *settings, f"training.max_updates={updates}"]) == 0, capsys.readouterr().err
    assert "u 6 ep 6.00" in Path("run/log.txt").read_text()
    assert main(["train", *settings, "training.max_updates=2"]) == 2
    assert "schedule polynomial needs a max_updates beyond its warmup of 2" in capsys.readouterr().err
    assert main(["train", *settings, "training.optimizer.betas=3"]) == 2
    assert "training.optimizer.betas: must be" in capsys.readouterr().err
    uninstall(tmp_path)
    forget()
    assert main(["train", *settings, "training.max_updates=8"]) == 2
    assert "training.optimizer: must be adam, adamw or muon, not 'lion'" in capsys.readouterr().err
    Path("text").write_text("ein Haus\n")
    assert main(["translate", "run", "--input", "text"]) == 0


def test_a_name_of_two_packages_is_not_guessed(
    stored: Path, install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run file must say which; a model keeps the package that it was made with."""
    (tmp_path / "deepwire_rival.py").write_text(
        "from typing import Literal\n"
        "from deepwire.model.connections.residual import PreNormConfig\n"
        "class OtherConfig(PreNormConfig):\n"
        "    type: Literal['highway'] = 'highway'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    install(package="deepwire_rival", **{"connection.highway": "deepwire_rival:OtherConfig"})
    assert "both deepwire_example.highway.HighwayConfig and deepwire_rival" in refusal(
        run_file(tmp_path, "highway")
    )
    loaded = load_run_file(run_file(tmp_path, PLACE), trusted=True)
    assert loaded.config.model.encoder.connection.type == PLACE
    assert place_of(load_model(stored).model.config.encoder.connection) == PLACE


def test_registration() -> None:
    """A class is known by its type from then on, here as a decorator."""

    @deepwire.register_connection
    class OwnConfig(PreNormConfig):
        type: Literal["own"] = "own"  # type: ignore[assignment]
        size: int = Field(3, description="nothing")

    config = ModelConfig.model_validate({"encoder": {"connection": {"type": "own", "size": 5}}})
    assert isinstance(config.encoder.connection, OwnConfig)
    assert config.encoder.connection.size == 5
    assert ModelConfig.model_validate(config.model_dump(mode="json")) == config
    deepwire.register_connection(OwnConfig)
    other = type("OwnConfig", (OwnConfig,), {"__module__": "elsewhere"})
    with pytest.raises(UsageError, match=r"connection own: both .*OwnConfig and elsewhere\..*OwnConfig have"):
        deepwire.register_connection(other)


def test_what_cannot_be_registered() -> None:
    class Nameless(PreNormConfig):
        type: str  # type: ignore[assignment]

    with pytest.raises(UsageError, match="a connection needs settings with a type of their own"):
        deepwire.register_connection(Nameless)
    with pytest.raises(UsageError, match="deepwire has a connection of this name"):
        deepwire.register_connection(PreNormConfig)
    with pytest.raises(UsageError, match="small letters"):
        deepwire.register_metric("my metric", ChrfMetric)


def test_a_plugin_that_fails_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deepwire_broken.py").write_text("x = 1\nraise ValueError('boom')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    why = rf"deepwire_broken cannot be imported: ValueError: boom \({tmp_path}/deepwire_broken.py:2\)"
    with pytest.raises(UsageError, match=why):
        plugins.use("deepwire_broken")


class LookingConfig(PreNormConfig):
    """A connection that looks at values while it is built."""

    type: Literal["looking"] = "looking"  # type: ignore[assignment]

    def build(self, spec: StackSpec) -> Connection:
        part = PreNorm(self, spec)
        part.turn = parametrizations.orthogonal(nn.Linear(spec.dim, spec.dim))
        part.scale = torch.linspace(0, 1, spec.dim).max().item()  # type: ignore[assignment]
        return part


def saved_model(folder: Path, connection: object) -> TranslationModel:
    vocabularies = Vocabularies.learn_from_blocks(WordsConfig(), [[Pair(1, "ein Haus", "a house", 0)]])
    settings = {**SHAPE, "encoder": {"layers": 1, "connection": connection}}
    model = deepwire.build(settings, (vocabularies.source.size, vocabularies.target.size))
    save_model(folder, model, vocabularies, {})
    return model


def test_a_part_may_look_at_values_while_it_is_built(tmp_path: Path) -> None:
    """There are none on the meta device, where models are built of which only the shapes are wanted."""
    deepwire.register_connection(LookingConfig)
    model = saved_model(tmp_path / "model", "looking")
    state = torch.random.get_rng_state()
    loaded = load_model(tmp_path / "model").model
    assert torch.equal(torch.random.get_rng_state(), state)
    expected = model_parameters(model)
    assert all(torch.equal(value, expected[name]) for name, value in model_parameters(loaded).items())
    shapes = meta_model(model.config, model.source_vocabulary, model.target_vocabulary)
    assert all(value.is_meta for value in shapes.parameters())
    assert [name for name, _ in shapes.named_parameters()] == [name for name, _ in model.named_parameters()]


def test_a_registered_metric_is_a_metric() -> None:
    with pytest.raises(UsageError, match="unknown metric 'own'"):
        corpus_score("own", ["a house"], ["a house"])

    def make(options: MetricOptions) -> ChrfMetric:
        return ChrfMetric(lowercase=options.lowercase)

    deepwire.register_metric("own", make)
    assert corpus_score("own", ["a house"], ["a house"]).value == 100
    with pytest.raises(UsageError) as raised:
        corpus_score("owns", ["a house"], ["a house"])
    assert raised.value.hint.endswith("multi-bleu, spbleu, spbleu-101, own")
    with pytest.raises(UsageError, match="deepwire has a metric of this name"):
        deepwire.register_metric("bleu", make)


class CopiedMetric(ChrfMetric):
    """chrF of what the source has, so that it reads all three texts."""

    needs_source = True

    def _count_with_source(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], source: Sequence[str] | None
    ) -> Floats:
        assert source is not None
        return self._count(source, [hypotheses])


def test_validation_scores_by_the_metric_of_another_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its name or its place; it chooses nothing, and is asked for at the start."""
    (tmp_path / "scoring_module.py").write_text(
        "import deepwire\nfrom test_plugins import CopiedMetric\n"
        "def make(options): return CopiedMetric()\ndef wrong(options): return 1\n"
        "def lost(options): raise deepwire.errors.UsageError('tokenizer of its own: missing')\n"
        "deepwire.register_metric('copied', make)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.chdir(tmp_path)
    for language, text in (("de", "ein Haus\n"), ("en", "a house\n")):
        (tmp_path / f"corpus.{language}").write_text(text * 8)
    path = run_file(tmp_path, "pre_norm")
    train = ["train", str(path), "data.vocabulary=words", "data.valid=corpus", "training.max_updates=1", "-q"]
    for metric, message in {
        "copied": "training.validation.metrics.0: must be bleu, chrf, chrf++ or ter, not 'copied'",
        "scoring_module.none": "training.validation.metrics.0: scoring_module has no none",
        "scoring_module.wrong": "training.validation.metrics: plugin metric scoring_module.wrong: gave int",
        "scoring_module.lost": "training.validation.metrics: tokenizer of its own: missing",
    }.items():
        assert main([*train, f"training.validation.metrics=[{metric}]"]) == 2
        assert message in capsys.readouterr().err
    chosen = [*train, "training.validation.metrics=[chrF, scoring_module.make]"]
    assert main([*chosen, "training.validation.metric=scoring_module.make"]) == 2
    assert main([*chosen, "--plugin", "scoring_module"]) == 0
    assert main([*train, "run=named", "training.validation.metrics=[copied]"]) == 0
    for run, name in (("runs/run", "scoring_module.make"), ("named", "copied")):
        *_, record = map(json.loads, (tmp_path / run / "metrics.jsonl").read_text().splitlines())
        (translations,) = (tmp_path / run / "valid").iterdir()
        copies = ChrfMetric().score(["ein Haus"] * 8, translations.read_text().splitlines()).value
        assert record[name] == copies


@pytest.mark.usefixtures("installed")
def test_commands_list_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    table = capsys.readouterr().out.splitlines()[-4:]
    assert [line.split() for line in table] == [
        ["highway", "connection", "deepwire_example", "0.1.0"],
        ["causal_convolution", "mixer", "deepwire_example", "0.1.0"],
        ["lion", "optimizer", "deepwire_example", "0.1.0"],
        ["polynomial", "schedule", "deepwire_example", "0.1.0"],
    ]
    path = run_file(tmp_path, "highway")
    assert main(["inspect", str(path)]) == 0
    assert "plugin: connection highway of package deepwire_example 0.1.0\n" in capsys.readouterr().out
    assert main(["inspect", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plugins"][0]["place"] == PLACE


def test_the_option_allows_a_package(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In front of the command, behind it, and for the commands that it starts."""
    uninstall(tmp_path)
    assert main(["inspect", str(stored)]) == 4
    assert "--plugin deepwire_example" in capsys.readouterr().err
    for arguments in (["inspect", str(stored), "--plugin", "deepwire_example"], ["inspect", str(stored)]):
        assert main(arguments) == 0
        assert os.environ["DEEPWIRE_PLUGINS"] == "deepwire_example"
    monkeypatch.setenv("DEEPWIRE_PLUGINS", "deepwire_example, deepwire_example.highway")
    assert main(["inspect", str(stored)]) == 0
    assert main(["--plugin=no_such_package", "inspect", str(stored)]) == 2
    assert "plugin no_such_package cannot be imported" in capsys.readouterr().err
    assert main(["inspect", str(stored), "--plugin"]) == 2
    assert "--plugin needs the name of a package" in capsys.readouterr().err


def test_nothing_heavy_is_imported() -> None:
    """Neither torch nor pydantic for a registration."""
    code = (
        "import sys, deepwire\n"
        "deepwire.register_metric('own', print)\n"
        "try:\n    deepwire.register_metric('bleu', print)\n"
        "except deepwire.errors.UsageError as error:\n    print(error.message)\n"
        "sys.exit(bool({'torch', 'numpy', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "plugin metric bleu: deepwire has a metric of this name\n")


@pytest.mark.parametrize("arguments", [["inspect"], ["prepare"]])
@pytest.mark.parametrize(
    "settings",
    [
        "model: {encoder: {connection: {type: PLACE}}}",
        "model: {initialization: PLACE}",
        "training: {schedule: {type: PLACE}}",
        "training: {validation: {metrics: [PLACE]}}",
    ],
)
def test_reading_a_run_file_imports_nothing(
    settings: str,
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "strange.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "run.yaml"
    data = "data: {source: de, target: en, train: x, valid: x}"
    path.write_text(f"{data}\n{settings.replace('PLACE', 'strange.Config')}\n")
    assert main([*arguments, str(path)]) != 0
    assert not (tmp_path / "ran").exists()
    assert "--plugin strange" in capsys.readouterr().err
