"""An event that a user stored is handled for that user, with that user's rights, in whichever runtime takes it up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import headwater
from headwater import Cell, Piece, Policy, Runtime, cell, handler
from headwater.data.patch import append
from headwater.data.value import freeze
from headwater.engine import ACCESS
from headwater.protocol.commit import SentEvent
from headwater.protocol.messages import FromReplica, Problem, Query
from headwater.runtime import Backend, Heard, LocalDirectory, Lost, Transport
from headwater.server import new_key, new_token
from tests.scenario.pieces_kit import at, run, serving

SOON = Policy(grace_ms=1)
NEVER = Policy(grace_ms=1e9)
"""A runtime with this policy leaves stored events to others."""


class Book(Piece, name="principals.Book"):
    lines: Cell[tuple[str, ...]] = cell(default=())
    draft: Cell[str] = cell(default="", scope="user")

    @handler
    def write(self, text: str) -> None:
        self.lines.push(f"{text} by {self.ctx.user}")

    @handler
    def publish(self) -> None:
        self.lines.push(f"draft {self.draft.get()!r} of {self.ctx.user}")

    @handler(allow="owner")
    def seal(self) -> None:
        self.lines.push("sealed")


def row(id: str, name: str, user: str, **args: str) -> SentEvent:
    """A stored event that says for whom it is to be handled."""
    said: dict[str, Any] = {"args": args, "cls": "principals.Book", "name": "b", "user": user, "session": "", "at": 0}
    return SentEvent(id, f"s/b:{name}", freeze(said), 0)


async def put(rt: Runtime, *events: SentEvent) -> None:
    """Store events with the connection of a runtime."""
    channel = rt.channel("s")
    assert channel is not None
    await channel.land(lambda transaction: transaction.events.extend(events), node="another program")


async def shared(where: str, folder: Path, *writers: str) -> tuple[Runtime, Book]:
    """A space that ann owns, in which others may write. Her runtime leaves stored events alone."""
    ann = await headwater.connect(where, token=new_token(folder, "ann"), policy=NEVER)
    book = await ann.space("s", user="ann").open(Book, "b")
    book.draft.set("a secret")
    channel = ann.channel("s")
    assert channel is not None
    await channel.land(lambda made: made.write(ACCESS, append(("writers",), list(writers))), node="grant")
    await ann.durable()
    return ann, book


async def handled(rt: Runtime, count: int) -> list[str]:
    """Wait until a runtime has handled so many stored events; their states."""
    await rt.until(lambda: sum(each.ended_us is not None for each in rt.intents()) >= count)
    await rt.durable()
    return [each.state for each in sorted(rt.intents(), key=lambda each: each.id)]


def test_stored_event_is_handled_for_the_user_who_stored_it(tmp_path: Path) -> None:
    new_key(tmp_path)

    async def work() -> None:
        async with serving(tmp_path, insecure_local=False) as where:
            ann, book = await shared(where, tmp_path, "eve")
            eve = await headwater.connect(where, token=new_token(tmp_path, "eve"), policy=NEVER)
            eve.space("s", user="eve")
            await put(eve, row("e1", "write", "eve", text="own"), row("e2", "write", "", text="without a user"))
            await put(
                eve, row("e3", "write", "ann", text="forged"), row("e4", "publish", "ann"), row("e5", "seal", "ann")
            )
            await eve.close()
            taker = await headwater.connect(where, token=new_token(tmp_path, "ann"), policy=SOON)
            taker.space("s", user="ann")
            states = await handled(taker, 5)
            assert states == ["landed"] * 3 + [
                "failed",
                "refused",
            ]  # The draft that e4 reads is that of no user of hers.
            assert "may not send one" in next(each.error for each in taker.intents() if each.id == "e5")
            await taker.close()
            lines = await book.lines.pull()
            assert lines[:2] == ("own by eve", "without a user by eve")
            assert "ann" not in str(lines)
            assert "secret" not in str(lines)
            assert "sealed" not in lines
            await ann.close()

    run(work)


def test_follow_up_stored_by_the_handling_runtime_keeps_its_first_sender_out_of_other_scopes(tmp_path: Path) -> None:
    """Bob's runtime stores an event that says it is for eve: it is handled neither for bob nor for eve."""
    new_key(tmp_path)

    async def work() -> None:
        async with serving(tmp_path, insecure_local=False) as where:
            ann, book = await shared(where, tmp_path, "bob", "eve")
            bob = await headwater.connect(where, token=new_token(tmp_path, "bob"), policy=NEVER)
            bobs = bob.space("s", user="bob").piece(Book, "b")
            bobs.draft.set("the draft of bob")
            await bob.durable()
            await put(bob, row("e1", "write", "eve", text="one"), row("e2", "write", "eve", text="two"))
            await put(bob, row("e3", "publish", "eve"))
            await bob.close()
            taker = await headwater.connect(where, token=new_token(tmp_path, "ann"), policy=SOON)
            taker.space("s", user="ann")
            assert await handled(taker, 3) == ["landed", "landed", "failed"]
            await taker.close()
            first, second = await book.lines.pull()
            user = first.removeprefix("one by ")
            assert user not in ("", "ann", "bob", "eve")
            assert second == f"two by {user}"
            await ann.close()

    run(work)


def test_event_stored_by_the_application_is_handled_for_the_user_it_names(tmp_path: Path) -> None:
    async def work() -> None:
        async with at("embedded", tmp_path) as site:
            rt, other = site.runtime(policy=SOON), site.runtime(policy=NEVER)
            book = await rt.space("s", user="eve").open(Book, "b")
            book.draft.set("of eve")
            await rt.durable()
            other.space("s")
            await put(other, row("e1", "publish", "eve"))
            assert await handled(rt, 1) == ["landed"]
            assert await book.lines.pull() == ("draft 'of eve' of eve",)

    run(work)


class FailsOnce:
    """A backend whose first question about documents of one user is answered with a storage error."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.token = backend.token
        self.life = ""
        self.is_only = False
        self.failed: list[str] = []

    def transport(self, space: str) -> Transport:
        inner = self._backend.transport(space)
        assert inner is not None
        return _FailingTransport(self, inner)

    async def close(self) -> None:
        """Leave the backend open."""


class _FailingTransport:
    def __init__(self, owner: FailsOnce, transport: Transport) -> None:
        self._owner = owner
        self._transport = transport

    async def connect(self, heard: Heard, lost: Lost) -> _FailingConnection:
        return _FailingConnection(self._owner, heard, await self._transport.connect(heard, lost))


class _FailingConnection:
    def __init__(self, owner: FailsOnce, heard: Heard, connection: Any) -> None:
        self._failed = owner.failed
        self._heard = heard
        self._connection = connection

    def send(self, messages: Iterable[FromReplica]) -> None:
        for message in messages:
            if isinstance(message, Query) and message.scope.startswith("user:") and not self._failed:
                self._failed.append(message.scope)
                problem = Problem("storage", "the disk is full", fatal=False, id=message.id)
                asyncio.get_running_loop().call_soon(self._heard, problem)
            else:
                self._connection.send((message,))

    def close(self) -> None:
        self._connection.close()


def test_failed_read_makes_no_user_of_a_trusted_connection(tmp_path: Path) -> None:
    """The connection of an application may read the documents of every user, and is that of none of them."""
    new_key(tmp_path)

    async def work() -> None:
        async with serving(tmp_path, insecure_local=False) as where:
            ann, _ = await shared(where, tmp_path, "eve")
            eve = await headwater.connect(where, token=new_token(tmp_path, "eve"), policy=NEVER)
            eve.space("s", user="eve")
            await put(eve, row("e1", "write", "ann", text="forged"))
            await eve.close()
            await ann.close()
        async with LocalDirectory(tmp_path, synchronous="OFF") as data:
            failing = FailsOnce(data)
            async with Runtime(failing, policy=SOON) as rt, Runtime(data, policy=NEVER) as other:
                book = rt.space("s").piece(Book, "b")
                await rt.until(lambda: bool(failing.failed))
                other.space("s")
                await put(other, row("e2", "write", "bob", text="trusted"))  # Stored events are looked at again.
                assert await handled(rt, 2) == ["landed", "landed"]
                forged, trusted = sorted(await book.lines.pull())
                assert forged.removeprefix("forged by ") not in ("", "ann", "eve")
                assert trusted == "trusted by bob"

    run(work)
