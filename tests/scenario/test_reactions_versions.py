"""A program that changes between two runs: its reactions are renamed, moved, new, or for another topic.

Each version is a process of its own, on the same directory: two classes of one name in one process are no two versions.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent

HEAD = """
import asyncio
import headwater
from headwater import Backoff, Piece, Topic, handler, reaction, topic
from headwater.runtime import Runtime
"""
MAIN = """
async def main() -> None:
    async with Runtime("data") as rt:
        rt.on_error(lambda error: print("told", type(error).__name__))
        failed = asyncio.Event()
        rt.reactions.on_attempt(lambda attempt: failed.set() if attempt.how == "failed" else None)
        space = rt.space("s")
        try:
            {does}
            await {until}
        except headwater.HeadwaterError as error:
            print("refused", error)
        print(*[f"{{each.name}}={{each.due}}" for each in await rt.reactions.list()])

headwater.run(main)
"""
DOWN = 'raise ConnectionError("nobody there")'


def cart(reactions: str, *, cls: str = "", placed: str = "placed: Topic[str] = topic()", name: str = "placed") -> str:
    body = dedent(
        f"""
        {placed}
        other: Topic[str] = topic()

        @handler
        def go(self, text: str) -> None:
            self.{name}.emit(text)
            self.other.emit("other " + text)
        """
    )
    return f"class Cart(Piece{cls}):\n" + indent(body + dedent(reactions), "    ")


def charge(*, on: str = "placed", name: str = "charge", options: str = "", does: str = "pass", also: str = "") -> str:
    return f"""
@reaction(on={on}{options})
async def {name}(self, text: str) -> None:
    print("{name}", text)
    {does}
{also}
"""


GO = 'await (await space.open(Cart, "a")).go.send("{text}")'


class Shop:
    """A directory, and a program that has one version after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, program: str, does: str = "pass", *, until: str = "rt.reactions.drained()") -> list[str]:
        """Run the program until nothing is left to deliver, or until another event, and return the lines it printed."""
        (self.folder / "app.py").write_text(HEAD + program + MAIN.format(does=does, until=until))
        done = subprocess.run(
            [sys.executable, "app.py"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def run_until_failed(self, reaction: str) -> None:
        """Run a program whose reaction fails. On a busy machine it is tried more than once before the program ends."""
        down = charge(does=DOWN, options=", max_retries=99, backoff=Backoff.fixed(base_ms=1_500)", name=reaction)
        lines = self.run(cart(down), GO.format(text="1"), until="failed.wait()")
        assert set(lines) == {f"{reaction} 1", f"app.Cart.{reaction}=1"}, lines


def test_a_reaction_that_is_new_is_declared_by_whoever_has_it_and_back_filled_without_any_traffic(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path)
    assert shop.run(cart(""), GO.format(text="1")) == [""]
    new = charge(options=', since="beginning"')
    assert shop.run(cart(new)) == ["charge 1", "app.Cart.charge=0"], (
        "its topic has records: nobody has to open anything"
    )


def test_a_reaction_that_is_renamed_with_was_goes_on_with_what_it_has_not_delivered(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.run_until_failed("charge")
    renamed = charge(name="bill", options=', was="charge"')
    assert shop.run(cart(renamed), GO.format(text="2")) == ["bill 1", "bill 2", "app.Cart.charge=0"]


def test_a_class_that_moved_with_was_goes_on_with_what_it_has_not_delivered(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.run_until_failed("charge")
    moved = cart(charge(), cls=', name="shop.Basket", was="app.Cart"')
    assert shop.run(moved, GO.format(text="2")) == ["charge 1", "charge 2", "app.Cart.charge=0"]


def test_a_reaction_that_is_for_another_topic_under_its_name_is_refused_and_gets_nobody_elses_records(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path)
    shop.run_until_failed("charge")
    also = charge(on="placed", name="mail", options=', since="beginning"')
    said = shop.run(cart(charge(on="other", also=also)), GO.format(text="2"))
    refused = next(line for line in said if line.startswith("refused"))
    assert "app.Cart.charge cannot be declared to s" in refused
    assert "is for the records of 'app.Cart.placed', not of 'app.Cart.other'" in refused
    assert "told AuthoringError" in said
    assert not any(line.startswith("charge") for line in said), "it would be called with another type"


def test_a_class_whose_reactions_have_no_name_that_is_possible_is_refused_where_it_is_made(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(HEAD + cart(charge(), cls=', name="shop:Cart"'))
    done = subprocess.run(
        [sys.executable, "app.py"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert "a reaction is known as 'shop:Cart.charge', which has at most 256 characters and no colon" in done.stderr
