"""Flow: how much of what a connection sent and asked for is not answered yet, and what it has not taken.

Counts, and says whether more may be taken in and whether the peer is too slow; holding back and closing are the
connection's. What is sent is counted on the event loop's thread, what is told on whichever thread tells it.
"""

from __future__ import annotations

from collections import deque
from typing import Final, TypeGuard

from headwater.protocol.messages import Asks, FromEngine, Problem, Told, Verdicts, Watch, Watched
from headwater.protocol.observations import Marked
from headwater.protocol.reactions import TargetsDue
from headwater.protocol.stored_events import EventsStored
from headwater.server.operation.limits import ServerLimits

Question = Watch | Asks
"""What is answered with something that the engine reads, or with a problem."""
Answered = Watched | Told | Problem

LONG: Final = 64 * 1024  # bytes of an answer, for fewer of them to be on the way at once


class Flow:
    """The counts of one connection."""

    __slots__ = ("_asked", "_backlog", "_frames", "_judged_bytes", "_limits", "_long", "_sent_bytes")

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._frames: deque[int] = deque()  # the sizes of frames without a verdict
        self._sent_bytes = 0  # of all frames; written by one thread
        self._judged_bytes = 0  # of those that have their verdicts; written by another
        self._asked: set[int] = set()  # the numbers of watches and queries without an answer
        self._long = 0  # about how long the longest of the last answers was
        self._backlog = 0  # bytes that nobody asked for, and that wait for the socket

    def sent(self, size: int) -> None:
        """A frame of commits was taken in."""
        self._frames.append(size)
        self._sent_bytes += size

    def asked(self, number: int) -> None:
        """A watch or a query was taken in."""
        self._asked.add(number)

    def has_room(self) -> bool:
        """Whether the frames without a verdict are short enough for more to be taken in."""
        return self._sent_bytes - self._judged_bytes <= self._limits.in_flight_bytes

    def may_ask(self, queued_bytes: int) -> bool:
        """Whether so few answers are still to come, and wait to be taken, that there may be one more."""
        most = max(1, self._limits.asks // (1 + self._long // LONG))
        return len(self._asked) < most and 2 * queued_bytes <= self._limits.outgoing_bytes

    def is_idle(self) -> bool:
        """Whether every frame has its verdicts, and they were said."""
        return not self._frames

    def told(self, messages: list[FromEngine], frames: list[bytes], waited_bytes: int) -> bool:
        """Messages were said to the peer, in these frames, behind so many bytes that wait for the socket.

        Answers whether it is too slow. What it asked for it has time to take: it can ask for no more meanwhile. What
        others do comes unasked.
        """
        unasked = 0
        for message, frame in zip(messages, frames, strict=True):
            if isinstance(message, Verdicts) and self._frames:
                self._judged_bytes += self._frames.popleft()  # one answer for each frame, in their order
            if self._is_answer(message):
                self._asked.discard(message.id)
                self._long = max(len(frame), self._long * 7 // 8)
            else:
                unasked += len(frame)
        backlog = min(self._backlog, max(waited_bytes, 0))
        self._backlog = backlog + unasked
        return backlog > self._limits.outgoing_bytes

    def _is_answer(self, message: FromEngine) -> TypeGuard[Answered]:
        """Whether the peer asked for it. That there is more is said again and again, and asked for once."""
        if isinstance(message, Problem):
            return not message.fatal
        if isinstance(message, EventsStored | Marked | TargetsDue):
            return message.id in self._asked
        return isinstance(message, Watched | Told)
