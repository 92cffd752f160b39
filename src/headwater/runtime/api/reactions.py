"""`rt.reactions`: waiting until records are delivered, looking at reactions, and operating them.

Every question goes to the engine of a space, over the runtime's session. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

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
    ReactionState,
    State,
    Targets,
    TargetState,
    check_matched,
)
from headwater.protocol.reactions import Reactions as ReactionStates
from headwater.reactions.port import is_refusal
from headwater.reactions.traces import Attempt, Tracer, record_spans
from headwater.runtime.reactions.serve import SpaceDesk

if TYPE_CHECKING:
    from headwater.protocol.reactions import Delivering, Delivers
    from headwater.runtime.api.runtime import Runtime

T = TypeVar("T")
MOST: Final = 1_000
"""Attempts, or targets, in one answer."""
FIRST_US: Final = 2_000
LONGEST_US: Final = 250_000
"""How long until it is asked again whether all is delivered, by whomever: twice as long each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAlike:
    """Attempts that failed in the same way: the kind of error, and where it was raised."""

    fingerprint: str
    error: str
    message: str  # what the last one said
    attempts: int
    keys: tuple[str, ...]


class Reactions:
    """The reactions of the spaces of a runtime."""

    __slots__ = ("_runtime",)

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def drained(self, *, through: int | None = None, space: str | None = None) -> None:
        """Everything that was emitted up to a commit, or at all, is delivered, by whichever worker.

        But for what is blocked or parked, or of a reaction that is paused. A commit that is not there yet is waited
        for, and so is a reaction that nobody serves: `list` says which (`unserved_us`).
        """
        for name in self._names(space):
            wait_us = FIRST_US
            while not (await self._is_drained(name, through)):
                await self._runtime.tasks.elapsed(wait_us)
                wait_us = min(2 * wait_us, LONGEST_US)

    async def _is_drained(self, space: str, through: int | None) -> bool:
        """What is new here counts as soon as it is known to the space."""
        try:
            answer = await self._ask(space, QueryDrained(0, through), Drained)
        except LoadError as error:
            if is_refusal(error):
                raise
            return False  # The connection was lost: it is asked again.
        return answer.is_drained and not self._runtime.pieces.reacting.is_looking(space)

    async def list(self, *, space: str | None = None) -> tuple[ReactionState, ...]:
        """Every reaction of a space, and how far it is."""
        return (await self._ask(self._name(space), QueryReactions(0), ReactionStates)).reactions

    async def targets(
        self,
        reaction: str,
        *,
        state: State | None = None,
        after: str | None = None,
        limit: int = 100,
        space: str | None = None,
    ) -> tuple[TargetState, ...]:
        """The targets of a reaction by key: all, or those in a state, up to so many."""
        name, found = self._name(space), list[TargetState]()
        while len(found) < limit:  # A page has those of a state that are among so many.
            question = QueryTargets(0, reaction, state, after, min(limit, MOST))
            page = await self._ask(name, question, Targets)
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
        """Attempts that failed and are kept, and records that were passed over.

        More of them are asked for with `after` and `place`, the `next` and the `place` of the answer before.
        """
        return await self._ask(self._name(space), QueryFailures(0, reaction, key, after, limit, place), Failures)

    async def groups(self, reaction: str, *, space: str | None = None) -> tuple[FailedAlike, ...]:
        """What failed alike, by its fingerprint: the one with the most targets first."""
        found: dict[str, FailedAlike] = {}
        after, place = None, None
        while True:  # By keys and records, so that it ends.
            failed = await self.failures(reaction, after=after, place=place, limit=MOST, space=space)
            alike: dict[str, list[Attempted]] = {}
            for each in failed.attempts:
                alike.setdefault(each.fingerprint, []).append(each)
            for fingerprint, attempts in alike.items():
                found[fingerprint] = _joined(found.get(fingerprint), fingerprint, attempts)
            after, place = failed.next, failed.place
            if after is None:
                return tuple(sorted(found.values(), key=lambda group: -len(group.keys)))

    def on_attempt(self, fn: Callable[[Attempt], object], /) -> None:
        """Hear of every attempt that this runtime makes, when it is over: whose it was, how long it took, its end."""
        self._runtime.pieces.reacting.listen(lambda what: fn(what) if isinstance(what, Attempt) else None)

    def trace(self, tracer: Tracer, /) -> None:
        """Make a span of every attempt of this runtime, for a tracer like those of `opentelemetry.trace.get_tracer`."""
        self._runtime.pieces.reacting.listen(record_spans(tracer))

    @property
    def is_delivering(self) -> bool:
        """Whether this runtime is claiming records, delivering them, or reporting how that ended."""
        return self._runtime.pieces.reacting.is_busy

    def abandon(self) -> None:
        """Stop delivering at once and for good, and report nothing of it, as if the process had died.

        Another worker delivers the records again. The rest of the runtime goes on.
        """
        self._runtime.pieces.reacting.kill()

    async def pause(self, reaction: str, *, space: str | None = None) -> int:
        """Deliver nothing of it until it is resumed. What is emitted meanwhile waits."""
        return await self._operate("pause", reaction, space)

    async def resume(self, reaction: str, *, space: str | None = None) -> int:
        return await self._operate("resume", reaction, space)

    async def retire(self, reaction: str, *, space: str | None = None) -> int:
        """It hears of nothing any more. A program that declares it again goes on where it was."""
        return await self._operate("retire", reaction, space)

    async def unblock(
        self, reaction: str, *, key: str | None = None, fingerprint: str | None = None, space: str | None = None
    ) -> int:
        """Go on with targets that are blocked, at the record that blocked them. Answers how many."""
        return await self._operate("unblock", reaction, space, key, None, fingerprint)

    async def skip(
        self, reaction: str, key: str, *, record: tuple[int, int] | None = None, space: str | None = None
    ) -> int:
        """Go on without the record that a target is at. It is kept, and can be replayed.

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
        """Deliver everything again from the beginning, to one target or to all."""
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
        while True:  # Many are changed some at a time.
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
    """The attempts of a page that failed alike, with those of the pages before it."""
    keys = () if before is None else before.keys
    return FailedAlike(
        fingerprint=fingerprint,
        error=attempts[-1].error,
        message=attempts[-1].message,
        attempts=len(attempts) + (0 if before is None else before.attempts),
        keys=tuple(dict.fromkeys([*keys, *[one.key for one in attempts]])),
    )
