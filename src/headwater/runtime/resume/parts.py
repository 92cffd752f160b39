"""The parts of a runtime that its resuming uses, and its only way to ask an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError, LoadError
from headwater.runtime.resume.limits import DEFAULT_RESUME_LIMITS, ResumeLimits

if TYPE_CHECKING:
    from headwater.protocol.messages import ObservationAnswer, ObservationQuestion
    from headwater.runtime.core.core import Core
    from headwater.runtime.core.policy import Policy
    from headwater.runtime.core.waiting import Tasks
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.runtime.writing.space_channel import SpaceChannel


@dataclass(frozen=True, slots=True)
class ResumeParts:
    """The parts of a runtime that its resuming uses. Made once, by the composition of the runtime."""

    pieces: PieceRegistry
    core: Core
    tasks: Tasks
    policy: Policy
    channel: Callable[[str], SpaceChannel | None]  # of a space by its name; None: the space has no engine
    limits: ResumeLimits = DEFAULT_RESUME_LIMITS

    async def ask_engine(self, channel: SpaceChannel, question: ObservationQuestion) -> ObservationAnswer | None:
        """Return the answer of an engine once the replica has reached its seq.

        None: it refused, or there is none in time. The caller decides the consequence.
        """
        told: asyncio.Future[ObservationAnswer | LoadError] = asyncio.get_running_loop().create_future()

        async def asked() -> ObservationAnswer | None:
            queries = channel.driver.session.queries
            queries.look(question, lambda answer: None if told.done() else told.set_result(answer))
            channel.driver.flush()
            answer = await told
            if isinstance(answer, LoadError):
                return None
            try:
                # The answer may overtake the commits that it describes: no node may read older results than it
                # describes.
                await channel.reached(answer.seq)
            except HeadwaterError:
                return None
            return answer

        try:
            return await self.tasks.within(asked(), self.policy.answer_ms)
        except TimeoutError:
            return None
