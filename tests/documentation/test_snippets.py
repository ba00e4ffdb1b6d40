"""The code of README and of the site runs as it stands, in order, on tiny text: shell, Python, run files."""

from __future__ import annotations

import ast
import gzip
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
import zstandard
from forked import begin, deepwire_command
from markdown_pages import ROOT, all_pages, blocks, manual_pages

import deepwire
from deepwire import runfile
from deepwire.config.settings_reader import Settings, read_settings
from deepwire.errors import UsageError
from deepwire.lab.study import plan, runner
from deepwire.lab.study.plan import StudyRun
from deepwire.lab.study.processes import NextRun
from deepwire.runfile import RunFile

TEXT = ROOT / "examples" / "multi30k"
PAGES = [
    page
    for page in (ROOT / "README.md", *manual_pages())
    if {block.language for block in blocks(page)} & {"sh", "python"} and page.name != "published-model.md"
]
SLOW = ("analyses.md", "compare-two-systems.md", "exporting.md", "languages.md", "speed.md", "training.md")
"""Pages that take too long for every day: `make test` parses their commands and imports what they import."""
ELSEWHERE = {
    r"\b(FOLDER|NAME|MODEL|RUN|HOST)\b|\.\.\.": "the reader fills it in",
    r"^(pip|pipx|uv|uvx|docker|curl) |https://|translate models/": "needs a network",
    r"--test-set": "needs a network: tests/evaluation",
    r"dist/|make release|git |docker ": "publishes a version",
    r"deepwire serve|http\.server": "goes on until it is stopped: tests/serve",
    r"torchrun": "starts several interpreters: tests/distributed",
    r"sbatch|SLURM|pieces/": "needs a cluster",
    r"deepwire study examples": "takes days: tests/lab/study",
    r"--metric-command": "starts programs of others: tests/evaluation",
    r"to_(wandb|mlflow|trackio)": "the tracker is not installed: test_trackers.py",
    r"--(install|show)-completion": "depend on the shell that is above",
    r"checkpoint.pt|checkpoint_best|opus|firefox|my-model|wmt-de": "needs a model of another toolkit",
    r"finetune": "needs a model of other text: tests/endtoend/test_finetuning.py",
    r"papers/gtrans|newstest|bi-simcut|en-fr |en-fr$": "needs text or models that are large",
    r"benchmarks/": "measures this machine",
    r"demo-(hf|code|argos)|test\.ids|from translate": "needs a model that fits that format: tests/convert",
    r"'runs/\{direction\}'": "needs a model of each direction: tests/cli/test_evaluate_directions_command.py",
    r"urllib|translate_batch|demo-int8": "needs a server, or an export: tests/serve, tests/convert",
    r"papers/dlcl-2019/dlcl|hyps/theirs": "needs the text of a paper",
}
"""What is not run here, as a pattern of a command or a block of Python, and why."""
GIVEN: Mapping[str, Mapping[str, Any]] = {
    "decoding.md": {"lines": ["Ein Hund."]},
    "evaluation.md": {
        "hypotheses": ["a dog"],
        "references": [["a dog"]],
        "base": ["a cat"],
        "new": ["a dog"],
    },
}
"""Values that a page speaks of without showing where they come from."""
PRELUDE = """set -eu
deepwire() { "$PYTHON" -IS -c '
import os, socket, sys
answer, code = os.pipe()
text = "\\0".join(sys.argv[1:]).encode()
socket.send_fds(socket.socket(fileno=int(os.environ["DOOR"])), [text], [0, 1, 2, code])
os.close(code)
sys.exit(int(os.read(answer, 9)))
' "$@"; }
"""
"""Has a shell ask the process of the test, where everything is imported already, to run a command."""

TINY = {
    "model.d_model": 16,
    "model.heads": 2,
    "model.feed_forward": 32,
    "training.batch_tokens": 300,
    "decoding.max_length_ratio": 0,
    "decoding.max_length_extra": 4,
}


def read_small(
    section: Any,
    name: Any,
    overrides: Sequence[str] = (),
    *,
    arguments: Mapping[str, Any] | None = None,
    **more: Any,
) -> Settings[Any]:
    """Stands for `read_settings`: the settings are checked as they are, and read again with small sizes."""
    asked = read_settings(section, name, overrides, arguments=arguments, **more)
    if section is not RunFile or str(name).startswith("papers/"):  # whose parameters are counted
        return asked
    config = asked.section
    sizes: dict[str, Any] = {
        key: value for key, value in TINY.items() if not any(text.startswith(f"{key}=") for text in overrides)
    }
    if config.task == "language_model":  # which translates nothing
        sizes = {key: value for key, value in sizes.items() if not key.startswith("decoding.")}
    if config.training.max_updates:
        updates = min(max(2, config.training.max_updates // 100), 6)
        sizes["training.max_updates"] = updates
        sizes["training.validation.every"] = (updates + 1) // 2
        sizes["training.checkpoint.every"] = 1
    if config.data.vocabulary.type in ("bpe", "unigram"):
        sizes["data.vocabulary.size"] = 450
    given = deepcopy(dict(arguments or {}))
    for key, value in sizes.items():
        *sections, last = key.split(".")
        place = given
        for part in sections:
            place = place.setdefault(part, {})
        place[last] = value
    return read_settings(section, name, overrides, arguments=given, **more)


def commands(text: str) -> Iterator[str]:
    """The commands of a block, each with its lines that go on and the text behind `<<`."""
    lines = iter(text.splitlines(keepends=True))
    for line in lines:
        command = line
        while command.endswith("\\\n"):
            command += next(lines)
        here = re.search(r"<<'(\w+)'$", line.rstrip())
        while here and command.rsplit("\n", 2)[-2] != here[1]:
            command += next(lines)
        yield command


def elsewhere(code: str) -> bool:
    """Whether a command or block is run in another test, or nowhere, for a reason that `ELSEWHERE` has."""
    return any(re.search(pattern, code) for pattern in ELSEWHERE)


def run_shell(text: str, desk: Path) -> str:
    """Run shell commands with bash, each `deepwire` in a process forked from this one; what they say."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    names = {"PYTHON": sys.executable, "DOOR": str(there.fileno())}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with here, there, TemporaryFile() as said:
        shell = subprocess.Popen(
            ["bash", "-c", PRELUDE + text],
            env=os.environ | names | {"PATH": path},
            pass_fds=[there.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
        while shell.poll() is None:
            if not select.select([here], [], [], 0.01)[0]:
                continue
            typed, (stdin, stdout, stderr, code), *_ = socket.recv_fds(here, 1 << 16, 4)
            child = begin(
                *typed.decode().split("\0"),
                cwd=desk,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                others=[code],
            )
            for file in (stdin, stdout, stderr):
                os.close(file)
            os.write(code, str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
            os.close(code)
        said.seek(0)
        words = said.read().decode()
        assert shell.returncode == 0, f"{text}\n{words[-2000:]}"
        return words


def imports_of_ours(text: str) -> str:
    """The lines of a block that import something of deepwire."""
    found = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
    return "\n".join(ast.unparse(node) for node in found if "deepwire" in ast.unparse(node))


MODEL = "{encoder: {layers: 2, NAME}, decoder: {layers: 2, NAME}}"
ONE_WAY = "{source: de, target: en, train: train, valid: test, test: test}"
MANY = "{directions: [{between: [en], and: [de, fr, cs]}], train: train, valid: test, test: test}"
TEXT_ALONE = "{target: en, train: train, valid: test, test: test}"
RUNS = {
    "run": f"data: {ONE_WAY}\nmodel: " + MODEL.replace("NAME", "aggregation: dwa"),
    "demo": f"data: {ONE_WAY}\nmodel: " + MODEL.replace("NAME", "connection: depth_lstm"),
    "transformer": f"data: {ONE_WAY}\nmodel: " + MODEL.replace("NAME", "connection: post_norm"),
    "dlcl": f"data: {ONE_WAY}\nmodel: " + MODEL.replace("NAME", "aggregation: dlcl"),
    "gtrans": f"data: {ONE_WAY}\ntraining: {{record: {{gradients: 1}}}}\n"
    "model: {encoder: {layers: 6, fusion: groups}, decoder: {layers: 3, fusion: groups}}",
    "mhplstm": f"data: {ONE_WAY}\nmodel: {{encoder: {{layers: 1}}, decoder: {{layers: 2, mixer: mhplstm}}}}",
    "six": f"data: {MANY}",
    "lm": f"data: {TEXT_ALONE}\ntask: language_model",
}
"""Run files of the runs that pages name."""
ALIKE = {
    "demo": ("base", "depth-lstm", "teacher"),
    "dlcl": ("a",),
    "transformer": ("b", "new", "deep", "en-de"),
}


def run_files(folder: Path) -> None:
    for name, text in RUNS.items():
        (folder / f"{name}.yaml").write_text(f"{text}\n", encoding="utf-8")


def texts(folder: Path) -> None:
    """The files that pages give to commands, made of a little text."""
    for place in ("", "corpus", "multi30k", "examples/multi30k"):
        (folder / place).mkdir(parents=True, exist_ok=True)
        for names, count in {
            ("train", "train"): 300,
            ("valid", "val"): 6,
            ("test", "test_2016_flickr"): 6,
        }.items():
            for side in ("de", "en"):
                with gzip.open(TEXT / f"{names[1]}.{side}.gz", "rt", encoding="utf-8") as lines:
                    text = "".join(islice(lines, count))
                for name in names:
                    if place.startswith("examples"):
                        (folder / place / f"{name}.{side}.gz").write_bytes(gzip.compress(text.encode()))
                        continue
                    for language in ("en", "fr", "cs") if side == "en" else ("de",):
                        (folder / place / f"{name}.{language}").write_text(text, encoding="utf-8")
    for own in ("trackers", "recipes", "plugin"):
        if (ROOT / "examples" / own).exists():
            (folder / "examples" / own).symlink_to(ROOT / "examples" / own)
    de, en = ((folder / f"test.{side}").read_text(encoding="utf-8") for side in ("de", "en"))
    pairs = list(zip(de.splitlines(), en.splitlines(), strict=True))
    for name in ("hyp.txt", "ref.txt", "base.txt", "new.txt", "hyp.tok", "ref.tok", "gold.en", "test.txt"):
        (folder / name).write_text(en, encoding="utf-8")
    for name in ("gold.de", "messages.de"):
        (folder / name).write_text(de, encoding="utf-8")
    for name in ("train.txt", "valid.txt"):
        (folder / name).write_text(en * 20, encoding="utf-8")
    (folder / "gold.align").write_text("0-0 1-1\n" * 6, encoding="utf-8")
    (folder / "terms.tsv").write_text("Mann\tman\n", encoding="utf-8")
    for name, text in (("train.de", de), ("mono.en", en), ("test.de", de)):
        (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    rows = "".join(f"{number}\t{one}\t{other}\n" for number, (one, other) in enumerate(pairs))
    (folder / "pairs.tsv.gz").write_bytes(gzip.compress(rows.encode()))
    objects = (f'{{"translation": {{"de": "{one}", "en": "{other}"}}}}\n' for one, other in pairs)
    (folder / "pairs.jsonl.zst").write_bytes(zstandard.compress("".join(objects).encode()))
    (folder / "page.html").write_text("<p>A dog.</p>", encoding="utf-8")
    (folder / "de.json").write_text(
        '{"title": "Ein Hund.", "items": [{"text": "Ein Mann."}]}', encoding="utf-8"
    )
    w = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    body = "<w:body><w:p><w:r><w:t>Ein Hund.</w:t></w:r></w:p></w:body>"
    with zipfile.ZipFile(folder / "report.docx", "w") as document:
        document.writestr("word/document.xml", f'<w:document xmlns:w="{w}">{body}</w:document>')


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, run files and the models that were asked for."""
    folder = tmp_path_factory.mktemp("models")
    texts(folder)
    run_files(folder)
    return folder


def read_small_plan(section: Any, *given: Any, **more: Any) -> Settings[Any]:
    """Stands for the `read_settings` of plans: trials are shorter than the runs of `read_small`."""
    asked = read_settings(section, *given, **more)
    if asked.section.search is None:
        return asked
    return read_settings(section, *given, arguments={"search": {"max_updates": 4}}, **more)


def train_forked(next_run: NextRun, **_: object) -> Iterator[tuple[StudyRun, None]]:
    """Stands for `train_runs`, without the seconds that an interpreter takes to start."""
    while (run := next_run()) is not None:
        ended = deepwire_command("train", run.base, *run.overrides, "--quiet", cwd=Path.cwd())
        assert ended.returncode == 0, ended.stderr
        yield run, None


@pytest.fixture
def desk(page: Path, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a page's reader, who has models where the page is none that makes them."""
    folder = tmp_path / "desk"
    shutil.copytree(models, folder, symlinks=True, ignore=shutil.ignore_patterns("runs"))
    monkeypatch.setattr(runfile, "read_settings", read_small)
    monkeypatch.setattr(plan, "read_settings", read_small_plan)
    monkeypatch.setattr(runner, "train_runs", train_forked)
    named = set(re.findall(r"\bruns/([\w-]+)", page.read_text(encoding="utf-8")))
    for name in RUNS if page.parent.name == "howto" else ():
        for alias in named & {name, *ALIKE.get(name, ())} - {"run"}:
            made = models / "runs" / name
            if not made.exists():
                done = deepwire_command(
                    "train", f"{name}.yaml", "training.max_updates=600", "--quiet", cwd=models
                )
                assert done.returncode == 0, done.stderr
            shutil.copytree(made, folder / "runs" / alias)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name in ("gains", "translate"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return folder


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, id=page.relative_to(ROOT).as_posix(), marks=pytest.mark.slow if page.name in SLOW else ()
        )
        for page in PAGES
    ],
)
def test_the_code_of_a_page_runs_in_order(page: Path, desk: Path) -> None:
    names: dict[str, Any] = {"deepwire": deepwire, **GIVEN.get(page.name, {})}
    for block in blocks(page):
        if block.language == "sh":
            run_shell("".join(one for one in commands(block.text) if not elsewhere(one)), desk)
        elif block.language == "python":
            exec(imports_of_ours(block.text) if elsewhere(block.text) else block.text, names)


def pieces(page: Path) -> list[str]:
    """Blocks of YAML that hold sections of a run file.

    Where a comment says `# or: VALUE`, the block with that value is one more.
    """
    found = [block.text for block in blocks(page) if block.language == "yaml"]
    for text in list(found):
        for other in re.finditer(r"^( *\w+: ).*# or:? ([\[{].*)$", text, re.MULTILINE):
            found.append(text.replace(other[0], other[1] + other[2]))
    return [
        text for text in found if set(RunFile.model_fields) & set(re.findall(r"^(\w+):", text, re.MULTILINE))
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if page.name in SLOW], ids=lambda page: page.name)
def test_what_slow_pages_import_is_there(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python":
            exec(imports_of_ours(block.text), {})


@pytest.mark.parametrize(
    "page",
    [page for page in all_pages() if pieces(page)],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_pieces_fit_into_a_run_file(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_files(tmp_path)
    for text in pieces(page):
        refused = {base: _refusal(text, base) for base in ("", *RUNS)}
        assert "" in refused.values(), f"{text}\n{refused}"


def _refusal(text: str, base: str) -> str:
    """Why a piece does not fit into one of the run files, or is none by itself; empty if it does."""
    Path("piece.yaml").write_text(f"extends: ./{base}.yaml\n{text}" if base else text, encoding="utf-8")
    try:
        runfile.load_run_file("piece.yaml")
    except UsageError as error:
        return error.message
    return ""
