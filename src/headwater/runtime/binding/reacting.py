"""Reacting: the reactions of pieces, bound to a runtime that delivers to them.

A class's reactions are declared to a space before its first handler there can emit anything, so that no record is
missed. A runtime that reacts serves those that its space knows and whose classes are imported. A reaction's function is
called outside any run, on the loop or, if it is a plain function, in a thread; what it returns goes to its handler in
the transaction that acknowledges the record. What is due, and for whom, is said elsewhere.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.data.ids import derive, event_id
from headwater.data.value import freeze
from headwater.errors import HeadwaterError, LoadError, PreconditionFailedError, ReactionBlockedError
from headwater.pieces.declarations import HandlerMember, ReactionMember, TopicMember
from headwater.pieces.handles import Delivery
from headwater.pieces.names import SEPARATOR
from headwater.protocol.commit import Delivered
from headwater.protocol.reactions import Delivering, Delivers, Granted, QueryReactions, Since
from headwater.protocol.reactions import Reactions as ReactionStates
from headwater.reactions.drain import Drain, Pace, subscribe
from headwater.reactions.port import Batch, LeaseLostError
from headwater.reactions.rules import Rules
from headwater.reactions.traces import Attempt, Hears, Traced
from headwater.runtime.binding.contexts import EPOCH
from headwater.runtime.binding.events import Event
from headwater.runtime.binding.records import classes
from headwater.runtime.binding.stored import Unavailable
from headwater.runtime.effort import Effort

if TYPE_CHECKING:
    from headwater.pieces.piece import Piece
    from headwater.runtime.attached import Attached
    from headwater.runtime.binding.home import Home
    from headwater.runtime.binding.pieces import Pieces
    from headwater.runtime.space import LocalSpace


def topic_name(cls: type[Piece], topic: TopicMember) -> str:
    """What subscriptions call a topic: its class and the member."""
    return f"{cls.__outline__.name}.{topic.stored}"


def reaction_name(cls: type[Piece], member: ReactionMember) -> str:
    return f"{cls.__outline__.name}.{member.stored}"


def reactions_of(cls: type[Piece]) -> Iterator[ReactionMember]:
    return (each for each in cls.__outline__.members.values() if isinstance(each, ReactionMember))


class SpaceDesk:
    """Asks the engine of a space over the runtime's own session."""

    __slots__ = ("_channel",)

    def __init__(self, channel: Attached) -> None:
        self._channel = channel

    async def ask(self, question: Delivers) -> Delivering:
        driver = self._channel.driver
        await driver.opened()
        reply = driver.expected()

        def answered(answer: Delivering | LoadError) -> None:
            if not reply.done():
                if isinstance(answer, LoadError):
                    reply.set_exception(answer)
                else:
                    reply.set_result(answer)

        driver.session.queries.deliver(question, answered)
        driver.flush()
        answer: Delivering = await reply
        return answer


class BoundReaction:
    """One reaction of a class, in one space."""

    __slots__ = ("_cls", "_is_async", "_member", "_pieces", "_space", "_wants_delivery", "name", "rules", "topic")

    def __init__(self, pieces: Pieces, space: LocalSpace, cls: type[Piece], member: ReactionMember) -> None:
        self._pieces = pieces
        self._space = space
        self._cls = cls
        self._member = member
        self._is_async = inspect.iscoroutinefunction(member.fn)
        self._wants_delivery = len(member.parameters()) > 1
        assert isinstance(member.on, TopicMember)
        self.name = reaction_name(cls, member)
        self.topic = topic_name(cls, member.on)
        self.rules = Rules(
            max_retries=member.max_retries,
            backoff=member.backoff,
            on_exhausted=member.on_exhausted,
            budget_ms=member.budget_ms,
            errors=member.errors,
        )

    @property
    def since(self) -> Since:
        return self._member.since

    @property
    def lane(self) -> str:
        return self._member.lane

    @property
    def priority(self) -> int:
        return self._member.priority

    @property
    def batch(self) -> int:
        return self._member.batch

    @property
    def lands(self) -> bool:
        return self._member.then is not None

    async def run(self, batch: Batch) -> Any:
        """Call the function of the author's, outside any run."""
        member = self._member
        source = batch.records[0].source
        home = self._pieces.known(self._space.name, source) or await self._home(source)
        codec = home.outline.codec(member.on)
        values = tuple([codec.decode(record.payload) for record in batch.records])
        arguments: list[Any] = [values if member.batch > 1 else values[0]]
        if self._wants_delivery:
            arguments.append(self._delivery(batch.records[0], batch.attempt))
        piece = home.facet("space").piece
        if self._is_async:
            return await member.fn(piece, *arguments)
        return await asyncio.get_running_loop().run_in_executor(None, partial(member.fn, piece, *arguments))

    def _delivery(self, record: Granted, attempt: int) -> Delivery:
        id = derive("delivery", self._space.name, self.name, record.seq, record.ordinal)
        return Delivery(id=id, attempt=attempt, emitted_at=EPOCH + timedelta(microseconds=record.emitted_us))

    async def _home(self, id: str) -> Home:
        """The piece that emitted a record."""
        known = self._pieces.known(self._space.name, id)
        if known is not None:
            return known
        if SEPARATOR in id:
            raise Unavailable(f"{self._space.name}/{id} is part of a piece that is not open here")
        document = self._pieces.records.cell(self._space, id).document
        await self._pieces.core.loaded(document)
        try:
            return self._pieces.records.found(self._space, id)
        finally:
            self._space.let_be(document)

    async def land(self, batch: Batch, result: Any) -> None:
        """Have the handler named by `then` commit together with the position."""
        member, last = self._member.then, batch.records[-1]
        assert isinstance(member, HandlerMember)
        home = await self._home(batch.records[0].source)
        stream = home.place(member)
        # Of one claim: what is delivered anew, as after a reset, is handled anew. Only the lease makes it once.
        delivery = derive("delivery", self.name, last.seq, last.ordinal, batch.hold.token)
        event = Event(
            id=event_id(delivery, stream, 0, last.emitted_us),
            home=home,
            member=member,
            stream=stream,
            payload=freeze(home.outline.signature(member).encode((result,), {})),
            user="",
            session="",
            minted_us=self._pieces.core.clock.now_us(),
            effort=Effort(member.retries),
            delivers=(
                batch.hold,
                Delivered(batch.hold.reaction, batch.hold.key, last.seq, last.ordinal, not batch.is_last),
            ),
        )
        try:
            await self._pieces.handling.sent(event)
        except PreconditionFailedError as error:
            raise LeaseLostError from error


class Reacting:
    """The reactions of one runtime."""

    __slots__ = ("_declared", "_hears", "_pace", "_pieces", "_serving", "is_on")

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._serving: dict[str, Serving] = {}
        self._declared: set[tuple[str, type[Piece]]] = set()
        self.is_on = False
        self._pace = Pace()
        self._hears: list[Hears] = []

    def use(self, pace: Pace | None) -> None:
        """Deliver in this runtime."""
        self.is_on = True
        self._pace = pace or self._pace

    def listen(self, hears: Hears) -> None:
        """Hear of every attempt."""
        self._hears.append(hears)
        for serving in self._serving.values():
            serving.drain.is_terse = False

    def attend(self, channel: Attached, space: LocalSpace) -> None:
        """A space is opened."""
        if self.is_on and space.name not in self._serving:
            serving = Serving(self._pieces, space, channel, self._pace, self._heard)
            serving.drain.is_terse = not self._hears
            self._serving[space.name] = serving

    def drain(self, space: str) -> Drain | None:
        serving = self._serving.get(space)
        return None if serving is None else serving.drain

    async def declare(self, home: Home) -> None:
        """Before a handler of a class is called: its reactions hear of what it emits."""
        key = (home.space.name, home.cls)
        if key in self._declared:
            return
        channel = self._pieces.runtime.channel(home.space.name)
        if channel is None or not channel.is_up():
            return  # Nobody delivers what is kept nowhere but here; without a connection it is declared the next time.
        desk = SpaceDesk(channel)
        for member in reactions_of(home.cls):
            reaction = BoundReaction(self._pieces, home.space, home.cls, member)
            try:
                await subscribe(desk, reaction)
            except LoadError:
                if not channel.is_up():
                    return  # The next handling asks again.
                break  # Whoever may not write the space cannot emit there either.
            serving = self._serving.get(home.space.name)
            if serving is not None:
                serving.drain.serve(reaction)
        self._declared.add(key)

    def _heard(self, what: Traced) -> None:
        for hears in self._hears:
            hears(what)
        if isinstance(what, Attempt) and what.how == "failed" and what.then != "retry":
            stopped = {"block": "is blocked", "park": "was parked", "skip": "was skipped"}[what.then]
            error = ReactionBlockedError(
                f"{what.reaction} for {what.key!r} {stopped} after attempt {what.attempt}: {what.error}. "
                "`headwater reactions failures` says more."
            )
            self._pieces.core.report(what.reaction, error)

    @property
    def is_busy(self) -> bool:
        """Whether something is being delivered, claimed or told."""
        return any(serving.drain.is_busy for serving in self._serving.values())

    def kill(self) -> None:
        """End at once, as a process does that dies."""
        for serving in self._serving.values():
            serving.drain.kill()

    async def stop(self) -> None:
        """Let what runs come to its end for a while, and give the rest back."""
        for serving in tuple(self._serving.values()):
            await serving.drain.stop()


class Serving:
    """The worker of one space."""

    __slots__ = ("_channel", "_desk", "_line", "_number", "_pieces", "_space", "drain")

    def __init__(self, pieces: Pieces, space: LocalSpace, channel: Attached, pace: Pace, hears: Hears) -> None:
        self._pieces = pieces
        self._space = space
        self._channel = channel
        self._desk = SpaceDesk(channel)
        self._line = -1  # the connection on which it was told what there is,
        self._number = -1  # and how many new reactions there were
        worker = f"{pieces.origin[:8]}"
        self.drain = Drain(self._desk, (), clock=pieces.core.clock, worker=worker, pace=pace, hears=hears)
        channel.driver.session.queries.watch_targets(self._heard)

    def _heard(self, number: int | LoadError) -> None:
        """There may be something to claim; the first time on each connection, whatever there is."""
        if isinstance(number, LoadError):
            return  # Whoever may not write the space delivers nothing of it.
        line = self._channel.driver.reconnects
        if (line, number) != (self._line, self._number):
            self._line, self._number = line, number
            self._pieces.runtime.tasks.begin(self._look(), f"reactions of {self._space.name}")
        self.drain.notify()

    async def _look(self) -> None:
        """Serve what the space knows, and whose class is imported."""
        try:
            answer = await self._desk.ask(QueryReactions(0))
        except HeadwaterError:
            return  # The next connection is told again.
        assert isinstance(answer, ReactionStates)
        wanted = {state.name for state in answer.reactions if state.state != "retired"}
        for cls in classes():
            for member in reactions_of(cls):
                if reaction_name(cls, member) in wanted:
                    self.drain.serve(BoundReaction(self._pieces, self._space, cls, member))
        self.drain.notify()
