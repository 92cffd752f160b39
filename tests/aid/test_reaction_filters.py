"""Commands that change reactions honour their filters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import Piece, Refused, Topic, handler, reaction, topic
from headwater.cli.app import run
from headwater.errors import AbsentError

IS_DOWN = [True]


class Shop(Piece):
    placed: Topic[str] = topic()

    @handler
    def place(self, order: str) -> None:
        self.placed.emit(order)

    @reaction(on=placed)
    async def charge(self, order: str) -> None:
        if IS_DOWN[0]:
            raise Refused(f"no card pays {order}")


Command = Callable[..., Any]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with two blocked targets, ann and bob, with two records each."""

    async def main() -> None:
        IS_DOWN[0] = True
        async with headwater.open(tmp_path) as rt:
            for name in ("ann", "bob"):
                piece = await rt.space("s").open(Shop, name)
                await piece.place.send("1")
                await piece.place.send("2")
            await rt.reactions.drained()

    asyncio.run(main())
    return tmp_path


@pytest.fixture
def ask(data: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `headwater reactions`, which must succeed."""

    def command(*words: str) -> Any:
        capsys.readouterr()
        code = run(["reactions", str(data), "s", *words, "--json"])
        told = capsys.readouterr()
        assert code == 0, told.err
        return json.loads(told.out)

    return command


@pytest.fixture
def refuse(data: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `headwater reactions`, which must fail, and return its message."""

    def command(*words: str) -> str:
        capsys.readouterr()
        assert run(["reactions", str(data), "s", *words]) != 0, words
        return capsys.readouterr().err

    return command


def standing(ask: Command) -> Any:
    """All that a command may change."""
    return (
        [(each["state"], each["blocked"], each["parked"], each["due"]) for each in ask("list")],
        [
            (each["key"], each["state"], each["position"], each["attempt"])
            for each in ask("targets", "charge")["targets"]
        ],
        [(each["key"], each["seq"], each["how"]) for each in ask("failures", "charge")["parked"]],
    )


def blocked(ask: Command) -> list[str]:
    return [each["key"] for each in ask("targets", "charge", "--state", "blocked")["targets"]]


def record_of(ask: Command, key: str) -> str:
    """The record that a blocked target failed at."""
    (failed,) = ask("failures", "charge", "--key", key)["attempts"]
    return f"{failed['seq']}.{failed['ordinal']}"


def test_filter_that_an_action_cannot_honour_is_an_error(refuse: Command, ask: Command) -> None:
    before = standing(ask)
    for action in ("pause", "retire", "resume"):
        for option in ("key", "record", "fingerprint"):
            told = refuse(action, "charge", f"--{option}=1")
            assert f"is for the whole reaction and ignores a {option}: leave it out" in told
    for action, option in (
        ("pause", "state"),
        ("unblock", "record"),
        ("unblock", "after"),
        ("unblock", "limit"),
        ("reset", "record"),
        ("reset", "state"),
        ("reset", "limit"),
    ):
        assert option in refuse(action, "charge", f"--{option}={'blocked' if option == 'state' else '1'}")
    assert standing(ask) == before


def test_key_or_fingerprint_that_matches_nothing_is_an_error(refuse: Command, ask: Command) -> None:
    before = standing(ask)
    for action in ("unblock", "skip", "replay", "reset"):
        assert "with key 'carl'" in refuse(action, "charge", "--key", "carl")
    for action in ("unblock", "replay", "reset"):
        assert "with fingerprint 'abc'" in refuse(action, "charge", "--fingerprint", "abc")
    assert standing(ask) == before


def test_empty_fingerprint_is_an_error_and_not_that_of_targets_without_a_failure(refuse: Command, ask: Command) -> None:
    ask("skip", "charge", "--key", "ann", "--record", record_of(ask, "ann"))
    before = standing(ask)
    for action in ("unblock", "skip", "replay", "reset"):
        assert "selects by an empty fingerprint" in refuse(action, "charge", "--key", "ann", "--fingerprint", "")
        assert "selects by an empty fingerprint" in refuse(action, "charge", "--fingerprint", "")
    assert standing(ask) == before


def test_record_that_matches_nothing_is_an_error(refuse: Command, ask: Command) -> None:
    before = standing(ask)
    first, _ = blocked(ask)
    assert "and record 999.0" in refuse("skip", "charge", "--key", first, "--record", "999.0")
    assert "with record 999.0" in refuse("replay", "charge", "--record", "999.0")
    assert standing(ask) == before


def test_actions_change_only_the_targets_that_their_filters_name(ask: Command) -> None:
    first, second = blocked(ask)
    at = record_of(ask, first)
    assert ask("skip", "charge", "--key", first, "--record", at)["count"] == 1
    assert [each["key"] for each in ask("failures", "charge")["parked"]] == [first]
    assert blocked(ask) == [second]
    assert ask("replay", "charge", "--key", first, "--record", at)["count"] == 1
    assert ask("replay", "charge", "--record", at)["count"] == 0, "it matches and waits to be tried again already"
    assert ask("unblock", "charge", "--key", second)["count"] == 1
    assert ask("unblock", "charge", "--key", second)["count"] == 0, "the key matches a target that is not blocked"
    assert ask("reset", "charge", "--key", second)["reaction"].endswith("Shop.charge")


def test_skip_of_a_record_that_the_target_has_passed_is_an_error(refuse: Command, ask: Command) -> None:
    first, _ = blocked(ask)
    at = record_of(ask, first)
    assert ask("skip", "charge", "--key", first, "--record", at)["count"] == 1
    assert f"record {at}" in refuse("skip", "charge", "--key", first, "--record", at)


def test_runtime_raises_where_a_filter_matches_nothing(data: Path) -> None:
    async def main() -> None:
        async with headwater.open(data) as rt:
            await rt.space("s").open(Shop, "ann")
            (charge,) = await rt.reactions.list()
            for operate in (rt.reactions.unblock, rt.reactions.replay, rt.reactions.reset):
                with pytest.raises(AbsentError, match="with key 'carl'"):
                    await operate(charge.name, key="carl")
            with pytest.raises(AbsentError, match="with key 'carl'"):
                await rt.reactions.skip(charge.name, "carl")
            first, second = await rt.reactions.targets(charge.name, state="blocked")
            (failed,) = (await rt.reactions.failures(charge.name, key=first.key)).attempts
            with pytest.raises(AbsentError, match=r"and record 999\.0"):
                await rt.reactions.skip(charge.name, first.key, record=(999, 0))
            await rt.reactions.pause(charge.name)
            assert await rt.reactions.skip(charge.name, first.key, record=(failed.seq, failed.ordinal)) == 1
            assert [each.key for each in await rt.reactions.targets(charge.name, state="blocked")] == [second.key]

    asyncio.run(main())
