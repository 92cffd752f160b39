"""Hearing: when a worker last asked something that was answered.

Whatever an engine says on a connection after an answer, it says after the question was asked: that moment is the
worker's own, and the latest of which it is sure. Owns that moment; decides nothing.
"""

from __future__ import annotations

import asyncio
from math import inf

from headwater.protocol.reactions import Delivering, Delivers
from headwater.reactions.port import Desk


class Hearing:
    """A desk, and when it was last heard."""

    __slots__ = ("_desk", "heard_at")

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.heard_at = -inf  # by the loop's clock; when the question was asked, not when the answer came

    async def ask(self, question: Delivers) -> Delivering:
        asked_at = asyncio.get_running_loop().time()
        answer = await self._desk.ask(question)
        self.heard_at = max(self.heard_at, asked_at)
        return answer
