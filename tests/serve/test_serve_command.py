from __future__ import annotations

import http.client
import json
import os
import signal
import urllib.request
from pathlib import Path

import pytest
from forked import Piped

import deepwire
import deepwire.serve.server
from deepwire.cli.main import main

TEXT = "der hund läuft"


def test_the_command_serves_until_it_is_told_to_stop(one_direction: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-long-enough-secret\n")
    token.chmod(0o600)
    options = ["--port", "0", "--token-file", str(token), "--beam", "1", "--limit", "texts=2"]
    command = Piped("serve", str(one_direction), *options, "--device", "cpu", "--precision", "fp32")
    said = command.stderr.readline().decode()
    assert said.startswith("serving <img src=x onerror=alert(1)> at http://127.0.0.1:"), said
    address = said.split()[-1]
    request = urllib.request.Request(
        f"{address}/translate",
        json.dumps({"text": TEXT}).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer a-long-enough-secret"},
    )
    answer = json.loads(urllib.request.urlopen(request, timeout=60).read())
    expected = deepwire.load(one_direction, "cpu", "fp32", settings={"beam": 1}).translate([TEXT])
    assert [one["text"] for one in answer["translations"]] == expected
    idle = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    idle.request("GET", "/readyz")
    assert idle.getresponse().status == 200
    command.terminate()
    assert command.wait(60) == 0
    log = command.stderr.read().decode()
    assert " POST /translate 200 " in log
    assert "GET /readyz 200" in log
    assert not any(word in log for word in ("hund", "secret", "Traceback"))


def test_an_interrupt_ends_it_in_good_order_too(one_direction: Path) -> None:
    command = Piped("serve", str(one_direction), "--port", "0", "--quiet", "--device", "cpu")
    assert command.stderr.readline().startswith(b"serving ")
    os.kill(command._child, signal.SIGINT)
    assert command.wait(60) == 130
    assert command.stderr.read() == b"interrupted\n"


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--host", "0.0.0.0"], 2, "0.0.0.0 can be reached from other machines, and there is no token"),
        (
            ["--host", "192.0.2.1"],
            2,
            "192.0.2.1:0: Cannot assign requested address",
        ),
        (["--token-file", "none"], 2, "none: cannot read: No such file"),
        (["--token-file", "long", "--insecure"], 2, "--insecure serves without a token, and there is one"),
        (["--token-file", "short"], 2, "short: not a token"),
        (["--limit", "texts"], 2, "--limit: 'texts' is not key=value, such as texts=32"),
        ([], 4, "no such"),
    ],
)
def test_wrong_commands_are_one_clear_line(
    options: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("secret")
    (tmp_path / "long").write_text("a-long-enough-secret")
    assert main(["serve", "no-model", "--port", "0", *options]) == code
    error = capsys.readouterr().err
    assert "error: " in error
    assert said in error
    assert "Traceback" not in error


def test_a_port_in_use_is_said_before_the_model_is_loaded(server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "no-model", "--port", str(server.port)]) == 2
    assert f"127.0.0.1:{server.port}: Address already in use" in capsys.readouterr().err


def test_without_its_packages_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("deepwire.cli.serve.find_spec", lambda name: None)
    assert main(["serve", "no-model"]) == 2
    said = capsys.readouterr().err
    assert "starlette, uvicorn, prometheus-client" in said
    assert "pip install 'deepwire[serve]'" in said
