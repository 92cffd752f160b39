"""Flow: how much of what a connection sent and asked for is not answered yet, and what it has not taken.

Counts, and says whether more may be taken in and whether the peer is too slow; holding back and closing are the
connection's. What is sent is counted on the event loop's thread, what is told on whichever thread tells it.

Messages that are too long: which commits a frame would have brought that is not taken in, and what a peer hears
instead of an answer that it could not take in.

Without either, a replica that did nothing wrong would say or ask the same on every connection, for ever. Never decides
what is too long; the limits of the server do.
"""

from __future__ import annotations

from collections import deque
from typing import Final, TypeGuard

import msgspec

from headwater.data.value import size_of
from headwater.errors import LimitError
from headwater.protocol.messages import (
    Answer,
    Asks,
    Encoding,
    Events,
    EventsStored,
    FromEngine,
    Problem,
    State,
    Sync,
    Told,
    Verdicts,
    Watch,
    Watched,
    encode,
)
from headwater.protocol.mirrors import ReadElsewhere
from headwater.protocol.observations import Marked, Observations
from headwater.protocol.reactions import TargetsDue
from headwater.protocol.verdict import Rejected, RuleRefused
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


RULE: Final = "message_bytes"


class _Outline(msgspec.Struct, frozen=True, array_like=True):
    """The beginning of a commit. What follows is skipped, not made."""

    local_seq: int


class _Frame(msgspec.Struct, frozen=True, array_like=True, tag="transact"):
    commits: tuple[_Outline, ...]


_DECODERS: Final = {"msgpack": msgspec.msgpack.Decoder(_Frame).decode, "json": msgspec.json.Decoder(_Frame).decode}


def refusals(data: bytes, encoding: Encoding, limit: int, commits: int) -> Verdicts:
    """The verdicts on the commits of a message that is too long. LimitError: it is no frame of a few commits."""
    text = f"a message of {len(data)} bytes is over the limit of {limit}"
    try:
        frame = _DECODERS[encoding](data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise LimitError(f"{text}. Send several smaller ones.") from error
    if len(frame.commits) > commits:
        raise LimitError(f"{text}, and a frame has at most {commits} commits. Send several smaller ones.")
    refused = RuleRefused(RULE, f"it came in {text}. Write less at once.")
    return Verdicts(tuple(Rejected(commit.local_seq, refused) for commit in frame.commits))


def fitting(message: FromEngine, encoding: Encoding, limit: int) -> tuple[FromEngine, bytes]:
    """A message that its peer can take in, encoded: the message itself, a shorter page, or a problem in its place."""
    if not isinstance(message, Watched | Answer | Sync | Events | Observations | ReadElsewhere):
        return message, encode(message, encoding)
    if isinstance(message, Sync | Events | Observations | ReadElsewhere) or _fits(message.documents, limit):
        data = encode(message, encoding)
        if len(data) <= limit:
            return message, data
    if isinstance(message, Answer) and len(message.documents) > 1:
        # A page of a scope, by id: the next one begins after the last of this one.
        first = message.documents[: len(message.documents) // 2]
        return fitting(Answer(message.id, message.seq, first, first[-1].doc.id), encoding, limit)
    if isinstance(message, Events) and len(message.events) > 1:
        some = message.events[: len(message.events) // 2]
        page = msgspec.structs.replace(message, events=some, next=(some[-1].seq, some[-1].id))
        return fitting(page, encoding, limit)
    if isinstance(message, Observations) and len(message.observed) > 1:
        seen = message.observed[: len(message.observed) // 2]
        return fitting(msgspec.structs.replace(message, observed=seen, next=seen[-1].node), encoding, limit)
    problem = _problem(message, limit)
    return problem, encode(problem, encoding)


def _fits(documents: tuple[State, ...], limit: int) -> bool:
    """Whether it is worth encoding them. Their sizes are about what MessagePack makes of them, and never far less."""
    left = limit
    for state in documents:
        left -= size_of(state.value)
        if left < 0:
            return False
    return True


def _problem(message: Watched | Answer | Sync | Events | Observations | ReadElsewhere, limit: int) -> Problem:
    if isinstance(message, ReadElsewhere):
        text = (
            f"what a piece reads of {len(message.docs)} documents elsewhere is over {limit} bytes, which is the limit"
        )
        return Problem("limit", f"{text} of one answer. Ask for fewer nodes at once.", False, message.id)
    if isinstance(message, Sync):
        docs = len(message.changes) + len(message.arrived)
        text = f"what happened to {docs} documents is over {limit} bytes, which is the limit of one message."
        return Problem("limit", f"{text} Watch fewer or smaller documents with one session.")
    if isinstance(message, Events):
        text = (
            f"an event that is stored at seq {message.events[0].seq} is over {limit} bytes, which is the limit of one"
        )
        return Problem("limit", f"{text} answer. Ask for what comes after it.", False, message.id)
    if isinstance(message, Observations):
        text = (
            f"what was observed of a node of {message.observed[0].node.piece} is over {limit} bytes, which is the limit"
        )
        return Problem("limit", f"{text} of one answer. Ask for what comes after it.", False, message.id)
    docs = len(message.documents)
    text = f"{docs} document{'s are' if docs > 1 else ' is'} over {limit} bytes, which is the limit of one answer."
    return Problem("limit", f"{text} Ask for fewer or smaller documents at once.", False, message.id)
