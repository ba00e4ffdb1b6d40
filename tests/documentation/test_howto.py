"""The commands of the how-to pages, in order, on tiny text and models that have learned nothing (nightly)."""

from __future__ import annotations

import gzip
import io
import re
import shlex
import shutil
import sys
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from deepwire.cli.main import main

sys.path.insert(0, str(Path(__file__).parent))
from markdown_pages import DOCS, ROOT, blocks
from shell_blocks import steps

TEXT = ROOT / "examples" / "multi30k"
TINY = """
model: {d_model: 16, heads: 2, feed_forward: 32}
decoding: {max_length_ratio: 0, max_length_extra: 4}
training: {max_updates: 5, batch_tokens: 300, validation: {every: 1, max_sentences: 2}, schedule: {warmup: 1}}
"""
ONE_WAY = "{source: de, target: en, train: train, valid: test, test: test, vocabulary: {size: 500}}"
MANY = "{directions: [{between: [en], and: [de, fr, cs]}], train: train, valid: test, test: test,"
LAYERS = "model: {encoder: {layers: 2, connection: NAME}, decoder: {layers: 2, connection: NAME}}\n"
# Runs that the pages name, by what a run file says besides.
RUNS = {
    "demo": LAYERS.replace("NAME", "depth_lstm"),
    "post": LAYERS.replace("NAME", "post_norm"),
    "dlcl": "model: {encoder: {layers: 2, aggregation: dlcl}, decoder: {layers: 2, aggregation: dlcl}}\n",
    "gtrans": "training: {record: {gradients: 1}}\n"
    "model: {encoder: {layers: 6, fusion: groups}, decoder: {layers: 3, fusion: groups}}\n",
    "mhplstm": "model: {encoder: {layers: 1}, decoder: {layers: 2, mixer: mhplstm}}\n",
    "six": "",
    "lm": "",
}
ALIKE = {
    "demo": ("base", "depth-lstm", "teacher"),
    "dlcl": ("a",),
    "post": ("b", "new", "deep", "transformer", "en-de"),
    "six": ("six-directions", "ours"),
}
# What makes a command small, or names what is here; each must occur on its page.
SMALLER = {
    "analyses.md": {
        "--widths 64,128,256 --depths 3,6,12": "--widths 16,32 --depths 1,2",
        "--updates 100": "--updates 1",
        "multi30k/transformer-tiny multi30k/mhplstm-tiny": "runs/transformer runs/mhplstm",
        "demo model.initialization": "run.yaml model.initialization",
    },
    "data.md": {"zstdcat pairs.jsonl.zst": "cat pairs.jsonl"},
    "languages.md": {"< multi30k/test_2016_flickr.en": "< test.en"},
    "models.md": {"https://host/models": "shelf"},
    "recipes.md": {"NAME": "multi30k/transformer-tiny", "key.sub=value": "--help"},
    "trackers.md": {"examples/trackers/": f"{ROOT}/examples/trackers/"},
    "decoding.md": {},
    "faster-decoding.md": {},
    "synthetic-text.md": {},
    "terms.md": {},
    "documents.md": {},
    "editors.md": {},
    "evaluation.md": {},
    "language-models.md": {"runs/run": "runs/lm", "train run.yaml": "train lm.yaml run=runs/lm"},
    "training.md": {"max_updates=40k model.d_model=512": "max_updates=6"},
    "vocabulary.md": {"size=16k": "size=400"},
}
# What is not run here, and why.
ELSEWHERE = {
    r"deepwire serve": "goes on until it is stopped: tests/serve",
    r"torchrun": "several processes: tests/distributed",
    r"data download": "needs a network: tests/data",
    r"models (get|list|add)|translate models/": "in another order: tests/cli/test_models_command.py",
    r"\bpapers/|runs/big|multi30k/(six|bi)|l10n/": "needs the text of a paper, or long training",
    r"deepwire evaluate-directions|--direction en-fr": "tests/cli/test_evaluate_directions_command.py",
    r"--beside": "starts other programs: tests/lab",
    r"--metric-command": "starts another program: tests/evaluation/test_metric_command.py",
    r"--(install|show)-completion": "changes the shell: tests/cli/test_main.py",
    r"to_(wandb|mlflow|trackio)": "needs the tracker: test_trackers.py",
    r"runs/longer": "needs a long run: tests/training",
}


def corpus(folder: Path) -> None:
    for name, file, count in (("train", "train", 300), ("test", "test_2016_flickr", 6)):
        for side in ("de", "en"):
            with gzip.open(TEXT / f"{file}.{side}.gz", "rt", encoding="utf-8") as lines:
                text = "".join(islice(lines, count))
            languages = ("en", "fr", "cs") if side == "en" else ("de",)
            for language in languages:
                (folder / f"{name}.{language}").write_text(text, encoding="utf-8")


def other_files(folder: Path) -> None:
    """What the pages give to commands, made of the text."""
    de, en = ((folder / f"test.{side}").read_text(encoding="utf-8") for side in ("de", "en"))
    for name in ("hyp.txt", "ref.txt", "base.txt", "new.txt", "hyp.tok", "ref.tok", "gold.en", "test.txt"):
        (folder / name).write_text(en, encoding="utf-8")
    (folder / "gold.de").write_text(de, encoding="utf-8")
    (folder / "gold.align").write_text("0-0 1-1\n" * 6, encoding="utf-8")
    (folder / "messages.de").write_text(de, encoding="utf-8")
    (folder / "terms.tsv").write_text("Mann\tman\n", encoding="utf-8")
    for name, text in (("train.de", de), ("mono.en", en), ("test.de", de)):
        (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    pairs = list(zip(de.splitlines(), en.splitlines(), strict=True))
    rows = "".join(f"{number}\t{one}\t{other}\n" for number, (one, other) in enumerate(pairs))
    (folder / "pairs.tsv.gz").write_bytes(gzip.compress(rows.encode()))
    objects = (f'{{"translation": {{"de": "{one}", "en": "{other}"}}}}\n' for one, other in pairs)
    (folder / "pairs.jsonl").write_text("".join(objects), encoding="utf-8")
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
    """A folder with text and trained runs, which each page gets a copy of."""
    folder = tmp_path_factory.mktemp("models")
    corpus(folder)
    (folder / "tiny.yaml").write_text(TINY, encoding="utf-8")
    (folder / "run.yaml").write_text(
        f"extends: ./tiny.yaml\ndata: {ONE_WAY}\n{RUNS['demo']}", encoding="utf-8"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, more in RUNS.items():
            data = f"{MANY} vocabulary: {{size: 500}}}}" if name == "six" else ONE_WAY
            if name == "lm":
                data = "{target: en, train: train, valid: test, test: test, vocabulary: {size: 400}}"
                more = "task: language_model\n"
            (folder / f"{name}.yaml").write_text(
                f"extends: ./tiny.yaml\ndata: {data}\n{more}", encoding="utf-8"
            )
            assert main(["train", f"{name}.yaml", f"run=runs/{name}", "--quiet"]) == 0, name
            for other in ALIKE.get(name, ()):
                shutil.copytree(folder / "runs" / name, folder / "runs" / other)
    other_files(folder)
    return folder


def do(line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do one line in this process: a command of deepwire, perhaps behind a pipe or with redirection."""
    told = b""
    if " | deepwire" in line:
        first, _, line = line.partition(" | ")
        program, *words = shlex.split(first)
        told = {
            "echo": lambda: f"{words[0]}\n".encode(),
            "printf": lambda: words[0].encode().decode("unicode_escape").encode(),
            "cat": lambda: Path(words[0]).read_bytes(),
        }[program]()
    lexer = shlex.shlex(line, posix=True, punctuation_chars="<>|&;")
    lexer.whitespace_split, lexer.commenters = True, "#"
    program, *arguments = lexer
    assert program == "deepwire", line
    output = None
    for sign in ("<", ">"):
        if sign in arguments:
            where = arguments.index(sign)
            if sign == "<":
                told = Path(arguments[where + 1]).read_bytes()
            else:
                output = Path(arguments[where + 1])
            del arguments[where : where + 2]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(told), encoding="utf-8"))
    capsys.readouterr()
    code = main(arguments)
    said = capsys.readouterr()
    assert code == 0, f"{line}\nended with {code}: {said.err[-1000:]}"
    if output:
        output.write_text(said.out, encoding="utf-8")


def commands(page: str) -> Iterator[str]:
    """The lines of the page that are run here, made small."""
    text = "\n".join(block.text for block in blocks(DOCS / "howto" / page) if block.language == "sh")
    for old, new in SMALLER[page].items():
        assert old in text, old
        text = text.replace(old, new)
    for line, _ in steps(text):
        if (
            "deepwire " in line
            and not line.startswith("pip ")
            and not any(re.search(no, line) for no in ELSEWHERE)
        ):
            yield line


def test_every_reason_is_needed() -> None:
    pages = "\n".join(block.text for page in SMALLER for block in blocks(DOCS / "howto" / page))
    serving = (DOCS / "howto" / "serving.md").read_text(encoding="utf-8")
    assert [reason for reason in ELSEWHERE if not re.search(reason, pages + serving)] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", SMALLER)
def test_the_commands_of_a_page_run(
    page: str,
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    desk = tmp_path / "desk"
    shutil.copytree(models, desk)
    monkeypatch.chdir(desk)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    lines = list(commands(page))
    assert lines
    for line in lines:
        do(line, capsys, monkeypatch)
