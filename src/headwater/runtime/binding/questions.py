"""Questions to the engine of a space: waiting for a connection and for an answer, so long and no longer.

Whoever does not answer in time, or refuses, has not answered. Never decides what follows from that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError
from headwater.protocol.messages import Looks
from headwater.protocol.observations import Current

if TYPE_CHECKING:
    from headwater.runtime.attached import Attached
    from headwater.runtime.binding.pieces import Pieces


async def up(pieces: Pieces, name: str) -> Attached | None:
    """Who speaks for a space, once there is a connection. None: there is none in time."""
    try:
        space = pieces.core.space(name)
    except HeadwaterError:
        return None  # It is no space that could be had.
    channel = pieces.runtime.channel(name)
    if channel is None:
        return None
    patience_us = round(pieces.runtime.policy.connect_ms * 1_000)
    await pieces.runtime.tasks.until(lambda: channel.is_up() or space.ended is not None, patience_us)
    return channel if channel.is_up() else None


async def answered(pieces: Pieces, channel: Attached, question: Looks) -> object:
    """What a space says, once what it speaks of is here. None: it does not say it, or not in time."""
    told: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def asked() -> object:
        queries = channel.driver.session.queries
        queries.look(question, lambda answer: None if told.done() else told.set_result(answer))
        channel.driver.flush()
        answer = await told
        try:
            # An answer may overtake what it speaks of.
            if isinstance(answer, Current):
                await channel.reached(answer.seq)
        except HeadwaterError:
            return None
        return answer

    try:
        return await pieces.runtime.tasks.within(asked(), pieces.runtime.policy.answer_ms)
    except TimeoutError:
        return None
