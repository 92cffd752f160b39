"""An access token is renewed on a live connection, or the connection ends when its time is over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.protocol.messages import Hello, Open, Opened, Problem, Query, Renew, Renewed, Welcome
from headwater.server.operation.keys import new_key, new_token
from headwater.server.server import Server
from tests.unit.runtime.kit import SPACE, run, serving
from tests.unit.server.test_connection import Raw, close_all, raw


def with_keys(folder: Path, tell: Callable[[Server], Any]) -> None:
    async def play() -> None:
        new_key(folder)
        async with serving(folder, anyone_founds=True) as server:
            await tell(server)
            await close_all()

    run(play)


async def greeted(server: Server, token: str, key: str = "s") -> Raw:
    peer = await greeted_in_time(server, token, key)
    assert peer is not None
    return peer


async def greeted_in_time(server: Server, token: str, key: str = "s") -> Raw | None:
    """A connection with an open session. None: the token is over already."""
    peer = await raw(server)
    await peer.say(Hello((1,), (), token), Open(SPACE, key, "", "t"))
    for expected in (Welcome, Opened):
        answer = await peer.hear()
        if isinstance(answer, Problem):
            assert "token is over" in answer.message
            return None
        assert isinstance(answer, expected)
    return peer


async def with_short_tokens(attempt: Callable[[int], Awaitable[bool]]) -> None:
    """Make an attempt with tokens that end soon. False: one was over before it was used, as on a busy machine."""
    for ttl_s in (2, 8, 32):
        if await attempt(ttl_s):
            return
    pytest.fail("a token of 32 s was over before it was used")


def test_renewed_token_keeps_the_connection_and_one_that_is_not_renewed_ends_it(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        async def attempt(ttl_s: int) -> bool:
            soon = new_token(tmp_path, "ann", ttl_s=ttl_s)
            renewed = await greeted_in_time(server, soon, f"renewed {ttl_s}")
            if renewed is None:
                return False
            await renewed.say(Renew(new_token(tmp_path, "ann", ttl_s=60)))
            if await renewed.hear() != Renewed():
                return False
            forgotten = await greeted_in_time(server, soon, f"forgotten {ttl_s}")
            if forgotten is None:
                return False
            problem = await forgotten.problem()
            assert problem == Problem(
                "access", "the token is over. Renew it before that, or connect again with a new one.", True
            )
            await renewed.say(Query(1, "space", "d"))  # The time of the other connection was over after its own.
            assert (await renewed.hear()).id == 1
            return True

        await with_short_tokens(attempt)

    with_keys(tmp_path, tell)


def test_token_that_was_renewed_by_a_short_one_ends_with_that(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        async def attempt(ttl_s: int) -> bool:
            peer = await greeted(server, new_token(tmp_path, "ann", ttl_s=60), f"short {ttl_s}")
            await peer.say(Renew(new_token(tmp_path, "ann", ttl_s=ttl_s)))
            if await peer.hear() != Renewed():
                return False
            assert (await peer.problem()).message.startswith("the token is over")
            return True

        await with_short_tokens(attempt)

    with_keys(tmp_path, tell)


def test_a_token_of_somebody_else_renews_nothing_and_ends_the_connection(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        peer = await greeted(server, new_token(tmp_path, "ann"))
        await peer.say(Renew(new_token(tmp_path, "bob")))
        problem = await peer.problem()
        assert problem == Problem(
            "access", "this connection is of 'ann', the token is of 'bob'. Make another connection.", True
        )

    with_keys(tmp_path, tell)


def test_a_token_that_is_none_is_refused_like_the_first(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        peer = await greeted(server, new_token(tmp_path, "ann"))
        await peer.say(Renew("rubbish"))
        assert (await peer.problem()) == Problem("access", "this is not a token of this server", True)

    with_keys(tmp_path, tell)


def test_nothing_is_renewed_before_hello(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        peer = await raw(server)
        await peer.say(Renew(new_token(tmp_path, "ann")))
        assert (await peer.problem()) == Problem("protocol", "the first message is Hello", True)

    with_keys(tmp_path, tell)
