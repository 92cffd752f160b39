"""`rt.reactions`: waiting until records are delivered, looking at reactions, and operating them.

Every question goes to the engine of a space, over the runtime's session. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from headwater.errors import AuthoringError
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
)
from headwater.protocol.reactions import Reactions as ReactionStates
from headwater.reactions.traces import Attempt
from headwater.runtime.binding.reacting import SpaceDesk

if TYPE_CHECKING:
    from headwater.protocol.reactions import Delivering, Delivers
    from headwater.runtime.runtime import Runtime

T = TypeVar("T")
MOST: Final = 1_000
"""Attempts that are looked through for what failed alike."""
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
        """Everything that was emitted up to a commit, or at all, is delivered; but for what is blocked or parked.

        By whichever worker: this runtime need not be one.
        """
        for name in self._names(space):
            wait_us = FIRST_US
            while not (await self._ask(name, QueryDrained(0, through), Drained)).is_drained:
                await self._runtime.tasks.elapsed(wait_us)
                wait_us = min(2 * wait_us, LONGEST_US)

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
        """The targets of a reaction by key: all, or those in a state."""
        return (await self._ask(self._name(space), QueryTargets(0, reaction, state, after, limit), Targets)).targets

    async def failures(
        self,
        reaction: str,
        *,
        key: str | None = None,
        after: str | None = None,
        limit: int = 100,
        space: str | None = None,
    ) -> Failures:
        """Attempts that failed and are kept, and records that were passed over."""
        return await self._ask(self._name(space), QueryFailures(0, reaction, key, after, limit), Failures)

    async def groups(self, reaction: str, *, space: str | None = None) -> tuple[FailedAlike, ...]:
        """What failed alike, by its fingerprint: the one with the most targets first."""
        failed = await self.failures(reaction, limit=MOST, space=space)
        found: dict[str, list[Attempted]] = {}
        for each in failed.attempts:
            found.setdefault(each.fingerprint, []).append(each)
        groups = [
            FailedAlike(
                fingerprint=fingerprint,
                error=each[-1].error,
                message=each[-1].message,
                attempts=len(each),
                keys=tuple(dict.fromkeys(one.key for one in each)),
            )
            for fingerprint, each in found.items()
        ]
        return tuple(sorted(groups, key=lambda group: -len(group.keys)))

    def on_attempt(self, fn: Callable[[Attempt], object], /) -> None:
        """Hear of every attempt that this runtime makes, when it is over: whose it was, how long it took, its end."""
        self._runtime.pieces.reacting.listen(lambda what: fn(what) if isinstance(what, Attempt) else None)

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

    async def skip(self, reaction: str, key: str, *, space: str | None = None) -> int:
        """Go on without the record that a target is at. It is kept, and can be replayed."""
        return await self._operate("skip", reaction, space, key)

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
        name, count, after, place = self._name(space), 0, None, None
        while True:  # Many are changed some at a time.
            wish = Operate(0, does, reaction, key, record, fingerprint, after, place)
            answer = await self._ask(name, wish, Operated)
            count, after, place = count + answer.count, answer.next, answer.place
            if after is None:
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
