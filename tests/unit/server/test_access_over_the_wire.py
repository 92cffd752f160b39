"""Who may do what on a server, seen from outside: over real sockets, with real tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.data.address import DocKey
from headwater.data.patch import append, replace
from headwater.engine.admission.access import ACCESS
from headwater.errors import AccessError, HeadwaterError, LoadError, RuleRefusedError, SessionExpiredError
from headwater.protocol.messages import FromEngine, Hello, Open, Opened, Problem, Query, Welcome
from headwater.runtime.channel.websocket import WebSocket
from headwater.server.operation.keys import new_key, new_token
from headwater.server.server import Server
from tests.unit.runtime.kit import SPACE, Client, Rig, address, doc, refused, run, serving
from tests.unit.server.test_connection import close_all, raw


class Town(Rig):
    """A server with keys, and its users."""

    folder: Path
    server: Server

    async def take_up(self, name: str, resume: str) -> FromEngine:
        """The answer to somebody who takes up the session of a user with a token of that session."""
        peer = await raw(self.server)
        token = new_token(self.folder, name)
        await peer.say(Hello((1,), (), token), Open(SPACE, f"{name}'s", resume, "another"))
        assert isinstance(await peer.hear(), Welcome)
        answer: FromEngine = await peer.hear()
        return answer

    def user(self, name: str, key: str = "", **options: Any) -> Client:
        return self.client(key or f"{name}'s", token=new_token(self.folder, name), **options)


@asynccontextmanager
async def town(folder: Path) -> AsyncIterator[Town]:
    new_key(folder)
    async with serving(folder, anyone_founds=True) as server:
        made = Town(WebSocket(address(server)), lambda work: None)
        made.folder, made.server = folder, server
        try:
            yield made
        finally:
            await made.close()
            await close_all()


async def founded(there: Town) -> Client:
    """A space whose owner is Ann, with Will as a writer and Rita as a reader."""
    ann = there.user("ann")
    await ann.create("d", {"n": 0, "l": []})
    await ann.driver.loaded(ACCESS)
    assert ann.replica.visible(ACCESS) == {"owners": ("ann",), "writers": (), "readers": ()}

    def grant(transaction: Any) -> None:
        transaction.write(ACCESS, append(("writers",), ["will"]), append(("readers",), ["rita"]))

    await ann.writer.transact(grant)
    return ann


async def told(client: Client) -> HeadwaterError:
    """The first error that the client hears of, or the one that ends its driver."""
    try:
        await client.driver.until(lambda: bool(client.errors))
    except HeadwaterError as error:
        return error
    return client.errors[0]


async def is_shut_out(client: Client) -> str:
    """The session never opens, and says why."""
    error = await told(client)
    assert not client.replica.confirmed.docs()
    await client.driver.close()
    return str(error)


def story(tell: Callable[[Town], Any], folder: Path) -> None:
    async def play() -> None:
        async with town(folder) as there:
            await tell(there)

    run(play)


def test_the_first_to_commit_owns_the_space_and_can_let_others_in(tmp_path: Path) -> None:
    async def tell(there: Town) -> None:
        ann = await founded(there)
        will = there.user("will")
        await will.count_up("d")
        await ann.driver.until(lambda: ann.replica.is_here(doc()) and ann.shown("d")["n"] == 1)

    story(tell, tmp_path)


def test_a_reader_reads_and_cannot_write(tmp_path: Path) -> None:
    async def tell(there: Town) -> None:
        ann = await founded(there)
        rita = there.user("rita")
        await rita.driver.loaded(doc())
        error = await refused(rita.count_up("d"))
        assert isinstance(error, RuleRefusedError)
        assert "may read this space, but not write" in str(error)
        await ann.add_up("d")
        await rita.driver.until(lambda: rita.shown("d")["n"] == 1)  # its own try was taken back
        assert rita.writer.attempts == 1

    story(tell, tmp_path)


def test_a_stranger_cannot_read_or_write_or_ask(tmp_path: Path) -> None:
    async def tell(there: Town) -> None:
        await founded(there)
        sid = there.user("sid")
        sid.driver.watch([doc()])
        assert "may not read this space" in await is_shut_out(sid)

    story(tell, tmp_path)


def test_a_writer_cannot_change_who_has_access(tmp_path: Path) -> None:
    async def tell(there: Town) -> None:
        await founded(there)
        will = there.user("will")
        await will.driver.loaded(ACCESS)

        def seize(transaction: Any) -> None:
            transaction.write(ACCESS, append(("owners",), ["will"]))

        error = await refused(will.writer.transact(seize))
        assert isinstance(error, RuleRefusedError)
        assert "only an owner" in str(error)

    story(tell, tmp_path)


def test_whoever_loses_access_hears_nothing_more(tmp_path: Path) -> None:
    async def tell(there: Town) -> None:
        ann = await founded(there)
        rita = there.user("rita")
        await rita.driver.loaded(doc())
        heard: list[object] = []
        rita.replica.feed.subscribe(heard.append)

        def withdraw(transaction: Any) -> None:
            transaction.write(ACCESS, replace(("readers",), []))

        await ann.writer.transact(withdraw)
        await ann.add_up("d")
        await told(rita)
        assert not heard

    story(tell, tmp_path)


@pytest.mark.parametrize("scope", ["user:ann", "session:ann's"])
def test_a_user_s_and_a_session_s_documents_are_theirs_alone(tmp_path: Path, scope: str) -> None:
    async def tell(there: Town) -> None:
        ann = await founded(there)
        mine = DocKey(scope, "settings")
        await ann.writer.transact(lambda t: t.write(mine, replace((), {"theme": "dark"})))
        will = there.user("will")
        for attempt in (
            will.driver.loaded(mine),
            will.driver.query(Query(0, scope, "settings")),
            will.driver.query(Query(0, scope)),
        ):
            error = await refused(attempt)
            assert isinstance(error, LoadError)
            assert "is not for 'will'" in str(error)
        # Nor by a link that leads there.
        from headwater.data.address import Link  # noqa: PLC0415 (only this story needs it)

        await will.create("bait", {"to": Link(scope=scope, id="settings")})
        await will.driver.loaded(doc("bait"), follow=True)
        assert not will.replica.is_here(mine)

    story(tell, tmp_path)


def test_a_session_belongs_to_the_user_who_made_it(tmp_path: Path) -> None:
    async def tell(there: Town) -> None:
        await founded(there)
        will = there.user("will", key="ann's")
        assert "is not yours" in await is_shut_out(will)

    story(tell, tmp_path)


def test_a_stolen_session_token_does_not_work_twice(tmp_path: Path) -> None:
    async def tell(there: Town) -> None:
        await founded(there)
        tokens = iter(["t1", "t2", "t3"])
        will = there.user("will", new_token=tokens.__next__)
        await will.driver.opened()
        assert isinstance(await there.take_up("will", "t1"), Opened)
        for key in ("t1", ""):
            answer = await there.take_up("will", key)
            assert isinstance(answer, Problem)
            assert answer.code == "stale_token"
        # The one who was robbed notices, instead of writing on beside the thief.
        assert isinstance(await refused(will.driver.until(lambda: False)), SessionExpiredError)

    story(tell, tmp_path)


@pytest.mark.parametrize("token", ["", "nonsense", "a.b.c"])
def test_without_a_good_token_nothing_opens_and_the_driver_gives_up(tmp_path: Path, token: str) -> None:
    async def tell(there: Town) -> None:
        client = there.client("x", token=token)
        error = await refused(client.driver.opened())
        assert isinstance(error, AccessError)
        assert client.link.connects == 1

    story(tell, tmp_path)


def test_a_token_that_ends_ends_its_connection(tmp_path: Path) -> None:
    async def tell(there: Town) -> None:
        ann = there.client("ann's", token=new_token(there.folder, "ann", ttl_s=1))
        error = await refused(ann.driver.until(lambda: False))  # at once, or when its second is over
        assert isinstance(error, HeadwaterError)
        assert "token is over" in str(error)

    story(tell, tmp_path)


def test_a_user_cannot_take_the_name_that_founds_spaces(tmp_path: Path) -> None:
    """Session keys that the engine uses itself are not for users, before and after."""

    async def tell(there: Town) -> None:
        for key in ("founding of the space", "merge of main"):
            await is_shut_out(there.user("sid", key=key))
        ann = await founded(there)
        await ann.add_up("d")

    story(tell, tmp_path)
