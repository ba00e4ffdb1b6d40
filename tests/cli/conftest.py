"""What tests of commands share: a command as it is typed, and exports that are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from untrained_models import short_comparisons, vocabularies_of  # noqa: F401 - a fixture of all tests here

from deepwire.cli.main import main
from deepwire.data.vocabulary import Vocabularies


class Ended(NamedTuple):
    """Exit code and streams of a command."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs ``deepwire ...``."""

    def run(*arguments: object) -> Ended:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Ended(code, *capsys.readouterr())

    return run


@pytest.fixture
def refused(command: Command) -> Callable[..., None]:
    """Runs ``deepwire ...``, which must end with this exit code, and say nothing but what is wrong."""

    def run(code: int, said: str, *arguments: object) -> None:
        ended = command(*arguments)
        assert (ended.code, ended.out) == (code, ""), ended.err
        assert said in ended.err.partition("error: ")[2]
        assert "Traceback" not in ended.err

    return run


@pytest.fixture(scope="session")
def joint(multi30k: Mapping[str, Sequence[str]]) -> Vocabularies:
    """400 subwords of both languages."""
    return vocabularies_of(multi30k)


@pytest.fixture
def export(
    command: Command, multi30k: Mapping[str, Sequence[str]], tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[..., str]:
    """Exports a model to ``tmp_path/out``, in the `FORMAT` of the module, and compares it on six lines.

    ``export(model, ..., code=4)`` must end with that exit code; gives the errors.
    """

    def run(model: Path, *options: object, code: int = 0) -> str:
        given = ["--format", request.module.FORMAT, *options]
        if not {"--unchecked", "--text"} & {*options}:
            for option, language in (("--text", "de"), ("--reference", "en")):
                file = tmp_path / f"text.{language}"
                file.write_text("\n".join(multi30k[language][:6]))
                given += [option, file]
        ended = command("export", model, "-o", tmp_path / "out", *given)
        assert ended.code == code, ended.err
        return ended.err

    return run
