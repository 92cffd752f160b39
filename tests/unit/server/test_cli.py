"""`headwater serve`, `keys` and `token`: what they refuse, what they print, and that they work together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.cli.app import run
from headwater.errors import AccessError
from headwater.runtime.channel.websocket import WebSocket
from headwater.server.operation.keys import Keyring
from headwater.server.server import check_safe
from tests.unit.runtime.kit import Rig
from tests.unit.runtime.kit import run as play

pytestmark = pytest.mark.thorough

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*words: object) -> tuple[int, str, str]:
        code = run([str(word) for word in words])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out.strip(), captured.err.strip()

    return call


def test_a_key_is_made_and_signs_a_token_that_a_server_accepts(cli: Call, tmp_path: Path) -> None:
    assert cli("keys", "list", tmp_path)[1].startswith(f"{tmp_path} has no keys yet")
    code, out, _ = cli("keys", "new", tmp_path)
    assert code == 0
    id = out.split()[2]
    assert cli("keys", "list", tmp_path)[1] == id
    assert json.loads(cli("keys", "list", tmp_path, "--json")[1]) == [id]
    code, token, _ = cli("token", tmp_path, "--user", "ann", "--ttl", 60)
    assert code == 0
    assert Keyring(tmp_path).principal(token).user == "ann"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("token", "{}", "--user", "ann"), "there is no private key in"),
        (("token", "{}", "--user", "ann"), "headwater keys new"),
        (("token", "{}", "--user", "*"), "means all users"),
        (("token", "{}", "--user", ""), "cannot be a user"),
        (("serve", "{}"), "--insecure-local"),
        (("serve", "{}", "--host", "0.0.0.0", "--insecure-local"), "could do anything"),
        (("serve", "{}", "--host", "localhost", "--insecure-local"), "could do anything"),
        (("serve", "{}", "--host", "::", "--insecure-local"), "could do anything"),
        (("serve", "{}", "--port", "99999", "--insecure-local"), "cannot listen on 127.0.0.1:99999"),
        (("serve", "{}", "--port=-1", "--insecure-local"), "cannot listen on 127.0.0.1:-1"),
        (("serve", "{}", "--host", "::1%none", "--port", "0", "--insecure-local"), "cannot listen on ::1%none"),
    ],
)
def test_what_is_not_safe_or_not_there_is_refused_with_what_to_do(
    cli: Call, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    code, _, err = cli(*(word.replace("{}", str(tmp_path)) for word in words))
    assert code == 1
    assert said in err


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "127.8.8.8"])
def test_without_keys_loopback_is_fine_if_asked_for(tmp_path: Path, host: str) -> None:
    check_safe(tmp_path, host, insecure_local=True)
    with pytest.raises(AccessError):
        check_safe(tmp_path, host, insecure_local=False)


def test_with_keys_any_address_is_fine_and_everybody_needs_a_token(cli: Call, tmp_path: Path) -> None:
    cli("keys", "new", tmp_path)
    check_safe(tmp_path, "0.0.0.0", insecure_local=False)
    check_safe(tmp_path, "127.0.0.1", insecure_local=True)


def test_a_missing_extra_is_named_with_what_installs_it(
    cli: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("headwater.server", "jwt"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jwt", None)
    code, _, err = cli("keys", "new", tmp_path)
    assert code == 1
    assert "pip install 'headwater[server]'" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_served_directory_is_there_until_the_signal_and_ends_in_order(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-m", "headwater.cli", "serve", str(tmp_path), "--port", "0", "--insecure-local"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stderr is not None
        first = json.loads(process.stderr.readline())
        assert first["event"] == "listening"

        async def story() -> None:
            rig = Rig(WebSocket(f"ws://127.0.0.1:{first['port']}"), lambda work: None)
            await rig.client("ann").create("d", {"n": 1})
            await rig.close()

        play(story)
        again = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
        assert again.returncode == 1
        assert f"is owned by process {process.pid}" in again.stderr
        process.send_signal(number)
        assert process.wait(20) == 0
        lines = [json.loads(line) for line in process.stderr]
    assert lines[-1]["event"] == "stopped"
