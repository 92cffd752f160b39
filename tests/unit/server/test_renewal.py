"""An access token is renewed on a live connection, or the connection ends when its time is over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    peer = await raw(server)
    await peer.say(Hello((1,), (), token), Open(SPACE, key, "", "t"))
    assert isinstance(await peer.hear(), Welcome)
    assert isinstance(await peer.hear(), Opened)
    return peer


def test_a_renewed_token_keeps_the_connection_and_one_that_is_not_ends_it(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        soon = new_token(tmp_path, "ann", ttl_s=2)
        renewed = await greeted(server, soon, "renewed")
        await renewed.say(Renew(new_token(tmp_path, "ann", ttl_s=60)))
        assert await renewed.hear() == Renewed()
        forgotten = await greeted(server, soon, "forgotten")
        problem = await forgotten.problem()
        assert problem == Problem(
            "access", "the token is over. Renew it before that, or connect again with a new one.", True
        )
        await renewed.say(Query(1, "space", "d"))  # the other one's time was over after its own
        assert (await renewed.hear()).id == 1

    with_keys(tmp_path, tell)


def test_a_token_that_was_renewed_by_a_short_one_ends_with_that(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        peer = await greeted(server, new_token(tmp_path, "ann", ttl_s=60))
        await peer.say(Renew(new_token(tmp_path, "ann", ttl_s=2)))
        assert await peer.hear() == Renewed()
        assert (await peer.problem()).message.startswith("the token is over")

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
        assert (await peer.problem()) == Problem("access", "this is no token of this server", True)

    with_keys(tmp_path, tell)


def test_nothing_is_renewed_before_hello(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        peer = await raw(server)
        await peer.say(Renew(new_token(tmp_path, "ann")))
        assert (await peer.problem()) == Problem("protocol", "the first message is Hello", True)

    with_keys(tmp_path, tell)
