"""Workers in processes of their own, through a server; one is killed. And an operator with the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from textwrap import dedent
from typing import IO, Any

import pytest

from headwater.cli.app import run

SHOP = """
import asyncio, os
from headwater import Backoff, Cell, Delivery, Piece, Refused, Topic, cell, handler, reaction, topic

class Cart(Piece):
    receipts: Cell[tuple[str, ...]] = cell(default=())
    placed: Topic[int] = topic()

    @handler
    def checkout(self, cents: int) -> None:
        self.placed.emit(cents)

    @handler
    def paid(self, receipt: str) -> None:
        self.receipts.push(receipt)

    @reaction(on=placed, then=paid, max_retries=5, backoff=Backoff.fixed(base_ms=50))
    async def charge(self, cents: int, delivery: Delivery) -> str:
        print("charges", cents, delivery.attempt, flush=True)
        if cents == 13 and not os.path.exists(os.environ["MENDED"]):
            raise Refused("no card pays 13")
        if os.environ.get("SLOW"):
            await asyncio.sleep(60)
        return f"paid {cents}"
"""

CLIENT = """
import asyncio, sys
import headwater
from shop import Cart

async def main() -> None:
    async with headwater.connect(sys.argv[1], token="") as rt:
        space = rt.space("shop")
        for said in sys.argv[2:]:
            name, cents = said.split("=")
            await (await space.open(Cart, name)).checkout.send(int(cents))
        await rt.reactions.drained(space="shop")
        for name in sorted({said.split("=")[0] for said in sys.argv[2:]}):
            print(name, *await (await space.open(Cart, name)).receipts.pull(), flush=True)

headwater.run(main)
"""


class Shop:
    """A server and the files of an application."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "shop.py").write_text(dedent(SHOP))
        (folder / "client.py").write_text(dedent(CLIENT))
        self.mended = folder / "mended"
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
            "MENDED": str(self.mended),
            "PYTHONUNBUFFERED": "1",
        }
        self.url = ""

    @contextmanager
    def process(self, *command: str, **more: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**self.environment, **more},
            cwd=self.folder,
        ) as made:
            try:
                yield made
            finally:
                made.send_signal(signal.SIGTERM)
                try:
                    made.wait(60)
                finally:
                    made.kill()  # If it did not end by itself, the test fails instead of waiting for it.

    def worker(self, **more: str) -> AbstractContextManager[subprocess.Popen[str]]:
        flags = ("--url", self.url, "--space", "shop", "--lease-ms", "1000")
        return self.process("-m", "headwater.cli", "worker", "shop.py", *flags, **more)

    def client(self, *sends: str) -> str:
        command = [sys.executable, "client.py", self.url, *sends]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.environment, cwd=self.folder, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def asked(self, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
        assert run(["reactions", self.url, "shop", *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)


def out(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    flags = ("--insecure-local", "--port", "0")
    with made.process("-m", "headwater.cli", "serve", str(tmp_path / "data"), *flags) as server:
        made.url = f"http://127.0.0.1:{json.loads(out(server).readline())['port']}"
        yield made


def test_a_worker_that_is_killed_is_replaced_by_another_process(shop: Shop) -> None:
    with ExitStack() as stack:
        slow = stack.enter_context(shop.worker(SLOW="1"))
        assert out(slow).readline().startswith("working for shop")
        client = stack.enter_context(shop.process("client.py", shop.url, "ann=450"))
        assert out(slow).readline().split() == ["charges", "450", "0"]
        slow.send_signal(signal.SIGKILL)
        other = stack.enter_context(shop.worker())
        assert out(other).readline().startswith("working for shop")
        assert out(other).readline().split() == ["charges", "450", "1"]
        assert out(client).readline().split() == ["ann", "paid", "450"]


def test_an_operator_finds_what_blocks_mends_it_and_has_it_tried_again(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    with shop.worker():
        assert shop.client("ann=13", "ann=14", "bob=15") == "ann\nbob paid 15\n"
        (state,) = shop.asked(capsys)
        assert (state["name"], state["blocked"], state["due"]) == ("shop.Cart.charge", 1, 0)
        with urllib.request.urlopen(f"{shop.url}/metrics") as page:
            assert b'headwater_reaction_blocked{reaction="shop.Cart.charge"} 1.0' in page.read()
        failures = shop.asked(capsys, "failures", "charge", "--key", "ann")
        assert failures["attempts"][0]["message"] == "no card pays 13"
        groups = shop.asked(capsys, "groups", "charge")
        fingerprint = groups["groups"][0]["fingerprint"]
        shop.mended.write_text("")
        told = shop.asked(capsys, "unblock", "charge", "--fingerprint", fingerprint)
        assert told == {"reaction": "shop.Cart.charge", "does": "unblock", "count": 1}
        assert shop.client("ann=16") == "ann paid 13 paid 14 paid 16\n"


def test_a_worker_that_may_not_work_there_ends_with_an_error(tmp_path: Path) -> None:
    """A supervisor sees that, and does not take it for one that has nothing to do."""
    shop = Shop(tmp_path)
    data = str(tmp_path / "data")
    assert run(["keys", "new", data]) == 0
    with shop.process("-m", "headwater.cli", "serve", data, "--port", "0") as server:
        shop.url = f"http://127.0.0.1:{json.loads(out(server).readline())['port']}"
        with shop.worker(HEADWATER_TOKEN="nonsense") as worker:
            assert worker.wait(60) != 0
