"""`headwater intents`: what is stored of a directory that nobody serves, and what a process that runs has in hand."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Cell, Piece, cell, handler
from headwater.cli.app import run
from headwater.cli.data import commands as module
from headwater.cli.limits import CommandLimits
from tests.unit.cli.kit_app import imported, write_app
from tests.unit.cli.test_ask import TEA
from tests.unit.cli.test_run import LIMIT_S, running


class Later(Piece, name="cli.Later"):
    n: Cell[int] = cell(default=0)

    @handler
    def ring(self) -> None:
        self.n.increment()


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    with imported():
        yield


def told(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert run(["intents", *(str(word) for word in words)]) == 0
    return capsys.readouterr().out


def test_of_a_directory_it_is_what_waits_for_somebody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def store() -> None:
        async with headwater.open(tmp_path / "data") as rt:
            (await rt.space("home").open(Later, "clock")).ring.post_at(timedelta(hours=1))
            await rt.space("away").open(Later, "clock")

    asyncio.run(store())
    text = told(capsys, tmp_path / "data")
    assert "home/clock:ring" in text
    assert "stored, due 20" in text
    (row,) = json.loads(told(capsys, tmp_path / "data", "home", "--json"))
    assert (row["stream"], row["state"], row["ended_us"]) == ("home/clock:ring", "stored", None)
    assert told(capsys, tmp_path / "data", "away") == "nothing is on its way\n"
    assert json.loads(told(capsys, tmp_path / "data", "away", "--json")) == []


def test_of_a_process_that_runs_it_is_what_that_has_in_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop = write_app(tmp_path / "app")
    with running(tmp_path, str(shop), "--json", "--data", str(tmp_path / "data")) as served:
        url = served.url()
        assert run(["send", url, "shop", "ann.add", TEA, "--user", "ann"]) == 0
        assert run(["send", url, "shop", "ann.add", 'line={"sku": "tea", "cents": -1}', "--user", "ann"]) == 1
        capsys.readouterr()
        for where in (url, tmp_path / "data"):
            text = told(capsys, where, "shop")
            assert "landed" in text
            assert "Refused: a price is not negative" in text
            assert [row["state"] for row in json.loads(told(capsys, where, "--json"))] == ["landed", "refused"]
        assert run(["intents", url, "nope"]) == 1
        assert "no space 'nope'" in capsys.readouterr().err
        words = (sys.executable, "-m", "headwater.cli", "intents", url, "--follow")
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as follower:
            assert follower.stdout is not None
            lines = [follower.stdout.readline() for _ in range(2)]
            assert "shop/ann:add: landed" in lines[0]
            assert "shop/ann:add: refused (Refused: a price is not negative)" in lines[1]
            assert run(["send", url, "shop", "ann.add", TEA, "--user", "ann"]) == 0
            assert "shop/ann:add: landed" in follower.stdout.readline()
            follower.send_signal(signal.SIGINT)
            assert follower.wait(LIMIT_S) == 130
        assert served.stop()[0] == 0


def test_a_line_says_to_whom_it_lost_and_when_it_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row: dict[str, Any] = {
        "id": "e",
        "stream": "s/p:go",
        "state": "backing off",
        "sent_us": 0,
        "attempts": 3,
        "next_try_us": 1_000_000,
        "due_us": None,
        "ended_us": None,
        "conflict": "space:p:n#",
        "winner": "x (s/p:go)",
        "advice": "read less",
        "error": "",
    }
    answers = iter([[row], [row]])

    def ask(*_: object, **__: object) -> list[Any]:
        for rows in answers:
            return rows
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "ask", ask)
    with pytest.raises(KeyboardInterrupt):
        module.intents("http://nowhere", follow=True, limits=CommandLimits(follow_s=0))
    assert capsys.readouterr().out == (
        "1970-01-01 00:00:00.000+00:00 s/p:go: backing off, next try 1970-01-01 00:00:01.000+00:00, 3 attempts "
        "(lost space:p:n# to x (s/p:go); read less)\n"
    ), "and the same is not told again"
