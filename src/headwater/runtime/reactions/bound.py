"""One reaction of a class, bound to a space: calls its function for records, and commits its result.

The function is called outside any run, on the event loop or, if it is a plain function, in a thread of its lane. Its
result goes to the reaction's handler in the transaction that acknowledges the record. That handler retries conflicts by
itself: the function, which acted outside, is not called again for them. `BoundReaction` never decides which records are
due, nor the consequence of a failure.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.data.address import SPACE_SCOPE
from headwater.data.ids import derive, event_id
from headwater.data.value import freeze
from headwater.errors import (
    BacklogFullError,
    CommitConvergenceError,
    ConflictError,
    GoneError,
    PreconditionFailedError,
)
from headwater.pieces.declarations import Declaration, HandlerMember, ReactionMember, TopicMember
from headwater.pieces.handles import Delivery
from headwater.pieces.names import SEPARATOR, document_id
from headwater.protocol.commit import Delivered
from headwater.protocol.messages import Query
from headwater.protocol.reactions import Granted, Since
from headwater.reactions.limits import DEFAULT_DRAIN_LIMITS
from headwater.reactions.port import Batch, LeaseLostError, StillRunsError
from headwater.reactions.retry_rules import Rules, SourceGoneError
from headwater.runtime.core.time_documents import EPOCH
from headwater.runtime.events.deleted_target import Gone
from headwater.runtime.events.event import Event
from headwater.runtime.pieces.classes import stored_name, topic_name
from headwater.runtime.pieces.records import RECORD, record_document

if TYPE_CHECKING:
    from headwater.pieces.piece import Piece
    from headwater.runtime.core.core import Core
    from headwater.runtime.core.local_space import LocalSpace
    from headwater.runtime.core.waiting import Tasks
    from headwater.runtime.events.events import Events
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.runtime.writing.space_channel import SpaceChannel


def reaction_name(cls: type[Piece], member: ReactionMember) -> str:
    return f"{stored_name(cls)}.{member.stored}"


def reactions_of(cls: type[Piece]) -> Iterator[ReactionMember]:
    return (each for each in cls.__schema__.members.values() if isinstance(each, ReactionMember))


class BoundReaction:
    """One reaction of a class, in one space."""

    __slots__ = (
        "_channels",
        "_cls",
        "_core",
        "_events",
        "_is_async",
        "_member",
        "_pieces",
        "_space",
        "_tasks",
        "_threads",
        "_wants_delivery",
        "name",
        "rules",
        "topic",
    )

    def __init__(
        self,
        core: Core,
        tasks: Tasks,
        channels: Mapping[str, SpaceChannel],
        pieces: PieceRegistry,
        events: Events,
        space: LocalSpace,
        cls: type[Piece],
        member: ReactionMember,
        threads: Executor | None,
    ) -> None:
        self._core = core
        self._tasks = tasks
        self._channels = channels  # by space; a space without an engine has none
        self._pieces = pieces
        self._events = events
        self._space = space
        self._cls = cls
        self._member = member
        self._threads = threads  # of its lane; None: this runtime delivers nothing
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

    @property
    def has_otherwise(self) -> bool:
        return self._member.otherwise is not None

    # ---- doing it ----------------------------------------------------------------------------------

    async def run(self, batch: Batch) -> Any:
        """Call the author's function, outside any run."""
        member = self._member
        instance = await self._find_instance(batch.records[0].source)
        codec = instance.schema.codec(member.on)
        values = tuple([codec.decode(record.payload) for record in batch.records])
        arguments: list[Any] = [values if member.batch > 1 else values[0]]
        if self._wants_delivery:
            arguments.append(self._delivery(batch))
        piece = instance.view("space").piece
        if self._is_async:
            return await member.fn(piece, *arguments)
        assert self._threads is not None
        called = self._threads.submit(partial(member.fn, piece, *arguments))
        try:
            result = await asyncio.wrap_future(called)
        except asyncio.CancelledError as error:
            if called.cancel():
                raise  # The call has not begun, and will not.
            raise StillRunsError(called) from error
        # The result of a coroutine function whose decorator returns a plain function.
        return await result if inspect.isawaitable(result) else result

    def _delivery(self, batch: Batch) -> Delivery:
        """Return the delivery that is passed to the author's function.

        The id of a batch depends on all its records: to systems outside, another batch that begins with the same record
        is another delivery.
        """
        ids = tuple(map(self._id, batch.records))
        first = batch.records[0]
        return Delivery(
            id=ids[0] if len(ids) == 1 else derive("delivery of many", *ids),
            ids=ids,
            attempt=batch.attempt,
            emitted_at=EPOCH + timedelta(microseconds=first.emitted_us),
        )

    def _id(self, record: Granted) -> str:
        """Return the id of one record's delivery.

        It includes the time of the emit: another directory, or a restored one, has other records at the same positions.
        """
        return derive(
            "delivery", self._space.name, self.name, record.seq, record.ordinal, record.source, record.emitted_us
        )

    async def _find_instance(self, source: str) -> PieceInstance:
        """Return the piece that emitted a record. Raises SourceGoneError if it was deleted, or its key left."""
        id, _, made = source.partition(":")
        try:
            return await self._look_up(id, made)
        except GoneError:
            # The documents here may be older than the record, or show a removal that is rejected later.
            await self._catch_up(id)
        try:
            return await self._look_up(id, made)
        except GoneError as gone:
            raise SourceGoneError(f"the piece is gone: {gone}") from gone

    async def _look_up(self, id: str, made: str) -> PieceInstance:
        """Return a piece by the documents here; a child is found through the piece that keeps it.

        A piece of the same name that was made after the deletion of the emitter is another one.
        """
        root = id.partition(SEPARATOR)[0]
        document = record_document(self._space, root)
        await self._core.loaded(document)
        try:
            there = document.value
            if not isinstance(there, Mapping) or (made and there.get("made") != made):
                raise GoneError(f"{root!r} of {self._space.name} was deleted")
            known = self._pieces.find(self._space.name, id)
            if known is not None and not known.is_stopped:
                return known
            found = self._pieces.find_recorded(self._space, root)
            return found if root == id else await self._pieces.pull_descendant(found, id)
        finally:
            self._space.release_if_unread(document)

    async def _catch_up(self, id: str) -> None:
        """Wait until the documents here are confirmed, and as new as those of the engine now."""
        channel = self._channels[self._space.name]
        await channel.driver.durable()
        record = document_id(id.partition(SEPARATOR)[0], RECORD)
        answer = await channel.driver.answer_of(Query(0, SPACE_SCOPE, record))
        await channel.reached(answer.seq)

    # ---- landing -----------------------------------------------------------------------------------

    async def land(self, batch: Batch, result: Any) -> None:
        """Commit the handler named by `then` together with the position of the reaction.

        Conflicts do not fail the reaction, which was already called: the handler is sent again until it lands or the
        lease is lost.
        """
        instance = await self._find_instance(batch.records[0].source)
        await self._land(instance, batch, self._member.then, (result,))

    async def give_up(self, batch: Batch, reason: str) -> None:
        """Commit the handler named by `otherwise` together with the position of the reaction."""
        instance = await self._find_instance(batch.records[0].source)
        record = instance.schema.codec(self._member.on).decode(batch.records[0].payload)
        await self._land(instance, batch, self._member.otherwise, (record, reason))

    async def _land(
        self, instance: PieceInstance, batch: Batch, member: Declaration | None, arguments: tuple[Any, ...]
    ) -> None:
        failures = 0
        while True:
            try:
                event = self._event(instance, batch, member, arguments, failures)
                await self._events.sent(self._events.deliver(event), is_waiting=False)
            except PreconditionFailedError as error:
                raise LeaseLostError from error
            except Gone as gone:
                raise SourceGoneError(f"the piece is gone: {gone}") from gone
            except (ConflictError, CommitConvergenceError, BacklogFullError):
                random = self._core.clock.randomness(f"landing {self.name}")
                await self._tasks.elapsed(DEFAULT_DRAIN_LIMITS.handlers.delay_us(failures, random))
                failures += 1
            else:
                return

    def _event(
        self,
        instance: PieceInstance,
        batch: Batch,
        member: Declaration | None,
        arguments: tuple[Any, ...],
        number: int,
    ) -> Event:
        last = batch.records[-1]
        assert isinstance(member, HandlerMember)
        stream = instance.place(member)
        # The id is of one claim: a record delivered again, as after a reset, is handled again. Only the lease makes it
        # once.
        delivery = derive("delivery", self.name, last.seq, last.ordinal, batch.hold.token)
        return Event(
            id=event_id(delivery, stream, number, last.emitted_us),
            instance=instance,
            member=member,
            stream=stream,
            payload=freeze(instance.schema.signature(member).encode(arguments, {})),
            user="",
            session="",
            minted_us=self._core.clock.now_us(),
            retries=member.retries,
            emitter=batch.records[0].source,
            delivers=(
                batch.hold,
                Delivered(batch.hold.reaction, batch.hold.key, last.seq, last.ordinal, not batch.is_last),
            ),
        )
