"""Reactions of pieces, bound to a runtime that delivers records to them.

The reactions of a class are declared to a space before the first call of a handler of the class there; if a declaration
is refused, no handler of the class is called. A commit that emits to a topic whose reactions the space may not know
declares them itself, so that no record is missed. A runtime that reacts serves the reactions that its space knows and
whose classes are imported, and declares new reactions to a topic that has records. The engine decides which records are
due and for which target, `headwater.reactions.drain` claims them, and `bound.py` calls the function for a record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from headwater.errors import AuthoringError, HeadwaterError, LoadError, ProtocolError, ReactionBlockedError
from headwater.protocol.reactions import Delivering, Delivers, QueryReactions, ReactionState, TargetsDue
from headwater.protocol.reactions import ReactionList as ReactionStates
from headwater.reactions.drain import Drain, Pace, subscribe
from headwater.reactions.limits import DEFAULT_DRAIN_LIMITS
from headwater.reactions.port import DEFAULT_LANE, declaration, is_refusal
from headwater.reactions.traces import Attempt, OnTrace, Trace, Unheard
from headwater.runtime.channel.backend import RemoteServer
from headwater.runtime.pieces.classes import imported_classes
from headwater.runtime.reactions.bound import BoundReaction, reaction_name, reactions_of
from headwater.runtime.reactions.threads import Threads

if TYPE_CHECKING:
    from headwater.pieces.declarations import ReactionMember
    from headwater.pieces.piece import Piece
    from headwater.protocol.commit import Commit
    from headwater.replica.transaction import Transaction
    from headwater.runtime.channel.backend import Backend
    from headwater.runtime.core.core import Core
    from headwater.runtime.core.local_space import LocalSpace
    from headwater.runtime.core.waiting import Tasks
    from headwater.runtime.events.events import Events
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.runtime.writing.space_channel import SpaceChannel


ACCESS: Final = "access"


class SpaceDesk:
    """Asks the engine of a space over the runtime's own session."""

    __slots__ = ("_channel",)

    def __init__(self, channel: SpaceChannel) -> None:
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


class ServedReactions:
    """The reactions of one runtime."""

    __slots__ = (
        "_backend",
        "_channels",
        "_core",
        "_declared",
        "_events",
        "_hears",
        "_known",
        "_pace",
        "_pieces",
        "_serving",
        "_tasks",
        "_threads",
        "_worker",
        "is_on",
    )

    def __init__(
        self,
        core: Core,
        tasks: Tasks,
        channels: Mapping[str, SpaceChannel],
        *,
        pieces: PieceRegistry,
        events: Events,
        backend: Backend,
        origin: str,
    ) -> None:
        self._core = core
        self._tasks = tasks
        self._channels = channels  # by space; a space without an engine has none
        self._pieces = pieces  # for the reactions, which find the pieces of records in it
        self._events = events
        self._backend = backend
        # Names this runtime in claims of records; an owner of the directory ends the claims of the owners before it.
        self._worker = f"{backend.life}/{origin[:8]}" if backend.life else origin[:8]
        self._serving: dict[str, Serving] = {}
        self._declared: set[tuple[str, type[Piece]]] = set()  # by session: another one may be of an older state
        self._known: set[tuple[str, str]] = set()  # reactions that were declared by commits, by session, too
        self.is_on = False
        self._pace = Pace()
        self._hears: list[OnTrace] = []
        self._threads = Threads()

    def use(self, pace: Pace | None) -> None:
        """Deliver records in this runtime."""
        self.is_on = True
        self._pace = pace or self._pace

    def listen(self, hears: OnTrace) -> None:
        """Call `hears` with the trace of every attempt."""
        self._hears.append(hears)
        for serving in self._serving.values():
            serving.drain.is_terse = False

    def attend(self, channel: SpaceChannel, space: LocalSpace) -> None:
        """Serve a space that was opened."""
        if self.is_on and space.name not in self._serving:
            is_remote = isinstance(self._backend, RemoteServer)
            drain = Drain(
                SpaceDesk(channel),
                (),
                clock=self._core.clock,
                worker=self._worker,
                pace=self._pace,
                on_trace=self._heard,
                # A record that a commit gives to a worker costs an attempt. A worker that stands still or is cut off is
                # given none, which is known only of a worker in the engine's own process. All other workers claim.
                leaves_open=not is_remote,
            )
            serving = Serving(self._core, self._tasks, space, channel, drain, self.bound)
            serving.drain.is_terse = not self._hears
            self._serving[space.name] = serving

    def drain(self, space: str) -> Drain | None:
        serving = self._serving.get(space)
        return None if serving is None else serving.drain

    def is_declared(self, instance: PieceInstance) -> bool:
        """Return whether the reactions of a class are declared, so that `declare` would do nothing."""
        channel = self._channels.get(instance.space.name)
        if channel is None:
            return True
        declared = (channel.driver.session.key, instance.cls)
        if declared not in self._declared and not any(True for _ in reactions_of(instance.cls)):
            self._declared.add(declared)
        return declared in self._declared

    async def declare(self, instance: PieceInstance) -> None:
        """Declare the reactions of a class before one of its handlers is called, so that they get its records."""
        channel = self._channels.get(instance.space.name)
        if channel is None:
            return  # Records of a space without an engine are not delivered.
        session = channel.driver.session.key
        if (session, instance.cls) in self._declared:
            return
        serving = self._serving.get(instance.space.name)
        for member in reactions_of(instance.cls):
            reaction = self.bound(instance.space, instance.cls, member)
            try:
                if not await self._is_heard(channel, reaction):
                    return  # A commit made without a connection carries the declarations itself (`emits`).
            except LoadError as error:
                if error.code == ACCESS:
                    return  # A user who may not write the space cannot emit there. The next handling asks again.
                raise AuthoringError(
                    f"{instance.schema.name}.{member.name} cannot be declared to {instance.space.name}, so that no "
                    f"handler of its class is called there, lest a record is missed: {error}"
                ) from error
            if serving is not None:
                serving.drain.serve(reaction)
        self._declared.add((session, instance.cls))

    async def _is_heard(self, channel: SpaceChannel, reaction: BoundReaction) -> bool:
        """Declare a reaction, again while the disk fails. False: there is no connection. LoadError: it is refused."""
        failures = 0
        while channel.is_up():
            try:
                await subscribe(SpaceDesk(channel), reaction)
                return True
            except LoadError as error:
                if is_refusal(error):
                    raise
            random = self._core.clock.randomness(f"declaring {reaction.name}")
            await self._tasks.elapsed(DEFAULT_DRAIN_LIMITS.asks.delay_us(failures, random))
            failures += 1
        return False

    def emits(self, instance: PieceInstance, topic: str, transaction: Transaction) -> None:
        """Add declarations to a commit that emits to a piece's topic, if the space may not know the topic's reactions.

        Applies to every such commit, whichever code emits. C7: the record and the declarations are on the disk
        together, or neither is.
        """
        channel = self._channels.get(instance.space.name)
        if channel is None or ((session := channel.driver.session.key), instance.cls) in self._declared:
            return
        for member in reactions_of(instance.cls):
            if (session, reaction_name(instance.cls, member)) not in self._known:
                reaction = self.bound(instance.space, instance.cls, member)
                if reaction.topic == topic:
                    transaction.declared[reaction.name] = declaration(reaction)

    def declared(self, instance: PieceInstance, commit: Commit) -> None:
        """Remember the declarations of a commit that landed: later commits need not repeat them."""
        channel = self._channels.get(instance.space.name)
        if channel is not None:
            self._known.update([(channel.driver.session.key, each.reaction) for each in commit.declared])

    def bound(self, space: LocalSpace, cls: type[Piece], member: ReactionMember) -> BoundReaction:
        lane = member.lane or DEFAULT_LANE
        slots = self._pace.lanes.get(lane, self._pace.slots)
        threads = self._threads.of(space.name, lane, slots) if self.is_on else None
        return BoundReaction(
            self._core, self._tasks, self._channels, self._pieces, self._events, space, cls, member, threads
        )

    def is_looking(self, space: str) -> bool:
        """True until it is known which reactions a space has, and which of the reactions here are new to it."""
        serving = self._serving.get(space)
        return serving is not None and serving.is_looking

    def _heard(self, what: Trace) -> None:
        for hears in self._hears:
            try:
                hears(what)
            except Exception as failed:  # The failure of a listener keeps no record from being acknowledged.
                self._core.report(what.reaction, failed)
        if isinstance(what, Unheard):
            why = f"the result of {what.reaction} for {what.key!r} was not stored, and it is tried again: {what.error}"
            self._core.report(what.reaction, ProtocolError(why))
        stops = {"block": "is blocked", "park": "was parked", "skip": "was skipped"}
        if isinstance(what, Attempt) and what.how == "failed" and (stopped := stops.get(what.then)):
            error = ReactionBlockedError(
                f"{what.reaction} for {what.key!r} {stopped} after attempt {what.attempt}: {what.error}: "
                f"{what.message}. `headwater reactions DIR SPACE failures {what.reaction}` lists its attempts."
            )
            self._core.report(what.reaction, error)

    @property
    def is_busy(self) -> bool:
        """True if records are being delivered or claimed, or results reported."""
        return any(serving.drain.is_busy for serving in self._serving.values())

    def kill(self) -> None:
        """End at once, like a process that dies."""
        for serving in self._serving.values():
            serving.drain.kill()
        self._threads.close()

    async def stop(self) -> None:
        """Wait a while for running deliveries to end, and give the other records back."""
        await asyncio.gather(*[serving.stop() for serving in self._serving.values()])
        self._threads.close()


class Serving:
    """The worker of one space."""

    __slots__ = ("_bound", "_channel", "_core", "_desk", "_line", "_looks", "_number", "_space", "_tasks", "drain")

    def __init__(
        self,
        core: Core,
        tasks: Tasks,
        space: LocalSpace,
        channel: SpaceChannel,
        drain: Drain,
        bound: Callable[[LocalSpace, type[Piece], ReactionMember], BoundReaction],
    ) -> None:
        self._core = core
        self._tasks = tasks
        self._space = space
        self._channel = channel
        self.drain = drain
        self._bound = bound
        self._desk = SpaceDesk(channel)
        self._looks = 0  # calls of `_look` under way
        self._line = -1  # the connection on which reactions were last looked up,
        self._number = -1  # and the number of subscriptions then
        channel.driver.session.queries.watch_targets(self._heard)

    async def stop(self) -> None:
        await self.drain.stop(is_heard=self._channel.is_up())

    def _heard(self, due: TargetsDue | LoadError) -> None:
        """Handle a notice that targets may be due. At the start of each connection one comes in any case."""
        if isinstance(due, LoadError):
            return  # A user who may not write the space delivers nothing of it.
        if due.grants:
            self.drain.accept_given(due.grants, due.ago_us)
        line, number = self._channel.driver.reconnects, due.subscriptions
        if (line, number) != (self._line, self._number):
            self._line, self._number = line, number
            self._looks += 1
            self._tasks.begin(self._look(), f"reactions of {self._space.name}")
        if due.is_more:
            self.drain.notify()

    @property
    def is_looking(self) -> bool:
        return self._looks > 0

    async def _look(self) -> None:
        """Look up the reactions of the space until it answers, on one connection: the next one has its own notice."""
        line, failures = self._line, 0
        random = self._core.clock.randomness(f"reactions of {self._space.name}")
        try:
            while self._channel.is_up() and line == self._line:
                try:
                    await self._serve()
                    break
                except HeadwaterError as error:
                    if is_refusal(error):
                        self._core.report(f"reactions of {self._space.name}", error)
                        break
                await self._tasks.elapsed(DEFAULT_DRAIN_LIMITS.asks.delay_us(failures, random))
                failures += 1
        finally:
            self._looks -= 1
        self.drain.notify()

    async def _is_declared(self, reaction: BoundReaction) -> bool:
        """Declare a reaction to the space. A refused reaction is reported, and prevents no other declaration."""
        try:
            await subscribe(self._desk, reaction)
        except HeadwaterError as error:
            if not is_refusal(error):
                raise
            self._core.report(reaction.name, error)
            return False
        return True

    async def _serve(self) -> None:
        """Serve reactions that the space knows and whose class is imported; declare new ones to topics with records."""
        here = {reaction_name(cls, each): (cls, each) for cls in imported_classes() for each in reactions_of(cls)}
        bound = {name: self._bound(self._space, cls, each) for name, (cls, each) in here.items()}
        topics = sorted({each.topic for each in bound.values()})
        known: dict[str, ReactionState] = {}
        emitted: set[str] = set()
        most = DEFAULT_DRAIN_LIMITS.topics_at_once
        for at in range(0, max(1, len(topics)), most):
            answer = await self._desk.ask(QueryReactions(0, tuple(topics[at : at + most])))
            assert isinstance(answer, ReactionStates)
            known.update({state.name: state for state in answer.reactions})
            emitted.update(answer.emitted)
        for name, reaction in bound.items():
            state = known.get(name)
            if state is None and reaction.topic in emitted:
                if not await self._is_declared(reaction):
                    continue
            elif state is None or state.state == "retired":
                continue
            elif state.topic != reaction.topic:
                # Its records are of another type. A handler that would emit to the other topic is refused.
                why = f"{name} is for {state.topic} there, and for {reaction.topic} here: give it another name"
                self._core.report(name, AuthoringError(why))
                continue
            self.drain.serve(reaction)
