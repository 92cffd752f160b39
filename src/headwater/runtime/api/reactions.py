"""`rt.reactions`: wait until records are delivered, inspect reactions, and operate them.

Every question goes to the engine of a space, over the runtime's session. This module makes no decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from headwater.errors import AuthoringError, LoadError
from headwater.protocol.reactions import (
    Attempted,
    Does,
    Drained,
    Failures,
    Operate,
    Operated,
    QueryDrained,
    QueryFailures,
    QueryReactions,
    QueryTargets,
    ReactionList,
    ReactionState,
    State,
    TargetPage,
    TargetState,
    check_matched,
)
from headwater.reactions.port import is_refusal
from headwater.reactions.traces import Attempt, Tracer, record_spans
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.reactions.serve import SpaceDesk

if TYPE_CHECKING:
    from headwater.protocol.reactions import Delivering, Delivers
    from headwater.runtime.api.runtime import Runtime

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAlike:
    """Attempts that failed in the same way: the kind of error, and the place where it was raised."""

    fingerprint: str
    error: str
    message: str  # of the last attempt
    attempts: int
    keys: tuple[str, ...]


class Reactions:
    """The reactions of the spaces of a runtime."""

    __slots__ = ("_runtime",)

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def drained(self, *, through: int | None = None, space: str | None = None) -> None:
        """Wait until every record emitted up to commit `through`, or every record, is delivered, by any worker.

        Then the writes of handlers of `then=` for these records are shown here, also if another process made them.
        Records that are blocked or parked, or of a paused reaction, are not waited for. A commit that does not exist
        yet is waited for, and so is a reaction that no worker serves: `list` tells which (`unserved_us`).
        """
        self._runtime.core.check_own_thread()
        for name in self._names(space):
            wait_us = RUNTIME_LIMITS.delivered_first_us
            while not (await self._is_drained(name, through)):
                await self._runtime.tasks.elapsed(wait_us)
                wait_us = min(2 * wait_us, RUNTIME_LIMITS.delivered_longest_us)

    async def _is_drained(self, space: str, through: int | None) -> bool:
        """Ask a space whether all is delivered. Reactions new here count as soon as the space knows them."""
        try:
            answer = await self._ask(space, QueryDrained(0, through), Drained)
        except LoadError as error:
            if is_refusal(error):
                raise
            return False  # The connection was lost: the question is asked again.
        if not answer.is_drained or self._runtime.served.is_looking(space):
            return False
        channel = self._runtime.channel(space)
        assert channel is not None
        # Other workers may have delivered the records, and the answer may arrive before the changes of their commits.
        # fault reactions.drained_before_shown: pass
        await channel.reached(answer.seq)
        return True

    async def list(self, *, space: str | None = None) -> tuple[ReactionState, ...]:
        """Return every reaction of a space, and its progress."""
        return (await self._ask(self._name(space), QueryReactions(0), ReactionList)).reactions

    async def targets(
        self,
        reaction: str,
        *,
        state: State | None = None,
        after: str | None = None,
        limit: int = 100,
        space: str | None = None,
    ) -> tuple[TargetState, ...]:
        """Return the targets of a reaction by key: all, or those in `state`, at most `limit`."""
        name, found = self._name(space), list[TargetState]()
        while len(found) < limit:  # A page has the targets in `state` among that many targets, perhaps few.
            question = QueryTargets(0, reaction, state, after, min(limit, RUNTIME_LIMITS.listed_targets))
            page = await self._ask(name, question, TargetPage)
            found, after = [*found, *page.targets], page.next
            if after is None:
                break
        return tuple(found[:limit])

    async def failures(
        self,
        reaction: str,
        *,
        key: str | None = None,
        after: str | None = None,
        place: tuple[int, int] | None = None,
        limit: int = 100,
        space: str | None = None,
    ) -> Failures:
        """Return failed attempts that are kept, and records that were passed over.

        For the next page pass `after` and `place`: the `next` and the `place` of the answer before.
        """
        return await self._ask(self._name(space), QueryFailures(0, reaction, key, after, limit, place), Failures)

    async def groups(self, reaction: str, *, space: str | None = None) -> tuple[FailedAlike, ...]:
        """Group failed attempts by their fingerprint. The group with the most targets comes first."""
        found: dict[str, FailedAlike] = {}
        after, place = None, None
        while True:  # In the order of keys and records, so that it ends.
            failed = await self.failures(
                reaction, after=after, place=place, limit=RUNTIME_LIMITS.listed_targets, space=space
            )
            alike: dict[str, list[Attempted]] = {}
            for each in failed.attempts:
                alike.setdefault(each.fingerprint, []).append(each)
            for fingerprint, attempts in alike.items():
                found[fingerprint] = _joined(found.get(fingerprint), fingerprint, attempts)
            after, place = failed.next, failed.place
            if after is None:
                return tuple(sorted(found.values(), key=lambda group: -len(group.keys)))

    def on_attempt(self, fn: Callable[[Attempt], object], /) -> None:
        """Call `fn` with every attempt that this runtime makes, when it is over: its target, duration and result."""
        self._runtime.served.listen(lambda what: fn(what) if isinstance(what, Attempt) else None)

    def trace(self, tracer: Tracer, /) -> None:
        """Make a span of every attempt of this runtime, for a tracer like those of `opentelemetry.trace.get_tracer`."""
        self._runtime.served.listen(record_spans(tracer))

    @property
    def is_delivering(self) -> bool:
        """True if this runtime is claiming records, delivering them, or reporting how that ended."""
        return self._runtime.served.is_busy

    def abandon(self) -> None:
        """Stop delivering at once and for good, and report nothing of it, as if the process had died.

        Another worker delivers the records again. The rest of the runtime goes on.
        """
        self._runtime.served.kill()

    async def pause(self, reaction: str, *, space: str | None = None) -> int:
        """Deliver nothing to the reaction until it is resumed. Records emitted meanwhile wait."""
        return await self._operate("pause", reaction, space)

    async def resume(self, reaction: str, *, space: str | None = None) -> int:
        return await self._operate("resume", reaction, space)

    async def retire(self, reaction: str, *, space: str | None = None) -> int:
        """Deliver nothing to the reaction any more. If a program declares it again, it continues where it was."""
        return await self._operate("retire", reaction, space)

    async def unblock(
        self, reaction: str, *, key: str | None = None, fingerprint: str | None = None, space: str | None = None
    ) -> int:
        """Continue with blocked targets at the record that blocked them. Returns the number of targets."""
        return await self._operate("unblock", reaction, space, key, None, fingerprint)

    async def skip(
        self, reaction: str, key: str, *, record: tuple[int, int] | None = None, space: str | None = None
    ) -> int:
        """Continue without the record that a target is at. The record is kept, and can be replayed.

        With `record`, only if the target is at that one: another operator may have skipped it before.
        """
        return await self._operate("skip", reaction, space, key, record)

    async def replay(
        self,
        reaction: str,
        *,
        key: str | None = None,
        record: tuple[int, int] | None = None,
        fingerprint: str | None = None,
        space: str | None = None,
    ) -> int:
        """Try records again that were parked or skipped: one, those of a key, those that failed alike, or all."""
        return await self._operate("replay", reaction, space, key, record, fingerprint)

    async def reset(self, reaction: str, *, key: str | None = None, space: str | None = None) -> int:
        """Deliver every record again from the beginning, to one target or to all."""
        return await self._operate("reset", reaction, space, key)

    async def _operate(
        self,
        does: Does,
        reaction: str,
        space: str | None,
        key: str | None = None,
        record: tuple[int, int] | None = None,
        fingerprint: str | None = None,
    ) -> int:
        name, count, matched, after, place = self._name(space), 0, 0, None, None
        while True:  # Many targets are changed in several steps.
            wish = Operate(0, does, reaction, key, record, fingerprint, after, place)
            answer = await self._ask(name, wish, Operated)
            count, after, place = count + answer.count, answer.next, answer.place
            matched += answer.matched
            if after is None:
                check_matched(wish, matched)
                return count

    async def _ask(self, space: str, question: Delivers, kind: type[T]) -> T:
        self._runtime.core.check_thread()
        channel = self._runtime.channel(space)
        if channel is None:
            raise AuthoringError(f"{space} is kept nowhere but here: nothing of it is delivered")
        answer: Delivering = await SpaceDesk(channel).ask(question)
        assert isinstance(answer, kind)
        return answer

    def _name(self, space: str | None) -> str:
        names = self._names(space)
        if len(names) != 1:
            raise AuthoringError(f"this runtime has {len(names)} spaces: write which one, with space=")
        return names[0]

    def _names(self, space: str | None) -> tuple[str, ...]:
        if space is not None:
            return (self._runtime.core.space(space).name,)
        return tuple(each.name for each in self._runtime.core.spaces() if self._runtime.channel(each.name) is not None)


def _joined(before: FailedAlike | None, fingerprint: str, attempts: list[Attempted]) -> FailedAlike:
    """Join the attempts of a page that failed alike with those of the pages before it."""
    keys = () if before is None else before.keys
    return FailedAlike(
        fingerprint=fingerprint,
        error=attempts[-1].error,
        message=attempts[-1].message,
        attempts=len(attempts) + (0 if before is None else before.attempts),
        keys=tuple(dict.fromkeys([*keys, *[one.key for one in attempts]])),
    )
