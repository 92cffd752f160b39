"""Bounds on one connection: work without an answer, bytes that the peer has not taken, and messages that are too long.

`Backpressure` counts, and says whether more may be read and whether the peer is too slow; `Connection` acts on that.
Received messages are counted on the event loop's thread, sent messages on any thread.

A frame of commits that is too long is answered with a verdict on each commit, and an answer that is too long with a
shorter page or a problem. A replica that did nothing wrong would otherwise send or ask the same on every new
connection.
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
    EventsStored,
    FromEngine,
    Problem,
    State,
    StoredEvents,
    Sync,
    Told,
    Verdicts,
    Watch,
    Watched,
    encode,
)
from headwater.protocol.observations import DocumentsWritten, Observations
from headwater.protocol.reactions import TargetsDue
from headwater.protocol.verdict import Rejected, RuleRefused
from headwater.server.operation.limits import ServerLimits

EngineQuestion = Watch | Asks
"""A message that the engine answers with data, or with a problem."""
Answered = Watched | Told | Problem


class Backpressure:
    """The counts of one connection."""

    __slots__ = ("_asked", "_backlog", "_frames", "_judged_bytes", "_limits", "_long", "_sent_bytes")

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._frames: deque[int] = deque()  # sizes of frames without a verdict
        self._sent_bytes = 0  # of all frames; written by one thread
        self._judged_bytes = 0  # of frames with their verdicts; written by another thread
        self._asked: set[int] = set()  # ids of watches and queries without an answer
        self._long = 0  # approximate length of the longest recent answer
        self._backlog = 0  # bytes other than answers that wait for the socket

    def count_frame(self, size: int) -> None:
        """Count a received frame of commits."""
        self._frames.append(size)
        self._sent_bytes += size

    def count_question(self, number: int) -> None:
        """Count a received watch or query."""
        self._asked.add(number)

    def has_room(self) -> bool:
        """Return whether the frames without a verdict are short enough for more to be read."""
        return self._sent_bytes - self._judged_bytes <= self._limits.in_flight_bytes

    def may_ask(self, queued_bytes: int) -> bool:
        """Return whether one more question may be asked: few answers are missing, and few bytes wait for the peer."""
        most = max(1, self._limits.right.questions // (1 + self._long // self._limits.long_answer_bytes))
        return len(self._asked) < most and 2 * queued_bytes <= self._limits.outgoing_bytes

    def is_idle(self) -> bool:
        """Return whether the verdicts on every frame were sent."""
        return not self._frames

    def count_sent(self, messages: list[FromEngine], frames: list[bytes], waited_bytes: int) -> bool:
        """Count messages that were sent behind `waited_bytes` bytes, and return whether the peer is too slow.

        Answers do not count against the peer, which can ask no further question before it takes them. Messages about
        changes of other sessions do.
        """
        unasked = 0
        for message, frame in zip(messages, frames, strict=True):
            if isinstance(message, Verdicts) and self._frames:
                self._judged_bytes += self._frames.popleft()  # one answer for each frame, in order
            if self._is_answer(message):
                self._asked.discard(message.id)
                self._long = max(len(frame), self._long * 7 // 8)
            else:
                unasked += len(frame)
        backlog = min(self._backlog, max(waited_bytes, 0))
        self._backlog = backlog + unasked
        return backlog > self._limits.outgoing_bytes

    def _is_answer(self, message: FromEngine) -> TypeGuard[Answered]:
        """Return whether the peer asked for a message. Notices of new events and targets are sent repeatedly, and asked
        for once.
        """
        if isinstance(message, Problem):
            return not message.fatal
        if isinstance(message, EventsStored | DocumentsWritten | TargetsDue):
            return message.id in self._asked
        return isinstance(message, Watched | Told)


RULE: Final = "message_bytes"


class _Outline(msgspec.Struct, frozen=True, array_like=True):
    """The first field of a commit; the other fields are skipped, not decoded."""

    local_seq: int


class _Frame(msgspec.Struct, frozen=True, array_like=True, tag="transact"):
    commits: tuple[_Outline, ...]


_DECODERS: Final = {"msgpack": msgspec.msgpack.Decoder(_Frame).decode, "json": msgspec.json.Decoder(_Frame).decode}


def reject_oversize_commits(data: bytes, encoding: Encoding, limit: int, commits: int) -> Verdicts:
    """Return a rejection of each commit of a frame that is too long. Raises LimitError if it is no frame of a few
    commits.
    """
    text = f"a message of {len(data)} bytes is over the limit of {limit}"
    try:
        frame = _DECODERS[encoding](data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise LimitError(f"{text}. Send several smaller ones.") from error
    if len(frame.commits) > commits:
        raise LimitError(f"{text}, and a frame has at most {commits} commits. Send several smaller ones.")
    refused = RuleRefused(RULE, f"it came in {text}. Write less at once.")
    return Verdicts(tuple(Rejected(commit.local_seq, refused) for commit in frame.commits))


def fit_message(message: FromEngine, encoding: Encoding, limit: int) -> tuple[FromEngine, bytes]:
    """Encode a message within `limit` bytes: the message itself, a shorter page of it, or a problem instead of it."""
    if not isinstance(message, Watched | Answer | Sync | StoredEvents | Observations):
        return message, encode(message, encoding)
    if isinstance(message, Sync | StoredEvents | Observations) or _fits(message.documents, limit):
        data = encode(message, encoding)
        if len(data) <= limit:
            return message, data
    if isinstance(message, Answer) and len(message.documents) > 1:
        # Pages of a scope are ordered by id: the next page begins after the last document of this one.
        first = message.documents[: len(message.documents) // 2]
        return fit_message(Answer(message.id, message.seq, first, first[-1].doc.id), encoding, limit)
    if isinstance(message, StoredEvents) and len(message.events) > 1:
        some = message.events[: len(message.events) // 2]
        page = msgspec.structs.replace(message, events=some, next=(some[-1].seq, some[-1].id))
        return fit_message(page, encoding, limit)
    if isinstance(message, Observations) and len(message.observed) > 1:
        seen = message.observed[: len(message.observed) // 2]
        return fit_message(msgspec.structs.replace(message, observed=seen, next=seen[-1].node), encoding, limit)
    problem = _problem(message, limit)
    return problem, encode(problem, encoding)


def _fits(documents: tuple[State, ...], limit: int) -> bool:
    """Return whether documents may fit, by estimated sizes, which are never far below the MessagePack size."""
    left = limit
    for state in documents:
        left -= size_of(state.value)
        if left < 0:
            return False
    return True


def _problem(message: Watched | Answer | Sync | StoredEvents | Observations, limit: int) -> Problem:
    if isinstance(message, Sync):
        docs = len(message.changes) + len(message.arrived)
        text = f"the changes of {docs} documents are over {limit} bytes, which is the limit of one message."
        return Problem("limit", f"{text} Watch fewer or smaller documents with one session.")
    if isinstance(message, StoredEvents):
        text = (
            f"an event that is stored at seq {message.events[0].seq} is over {limit} bytes, which is the limit of one"
        )
        return Problem("limit", f"{text} answer. Ask for the rows after it.", False, message.id)
    if isinstance(message, Observations):
        text = (
            f"the observation of a node of {message.observed[0].node.piece} is over {limit} bytes, which is the limit"
        )
        return Problem("limit", f"{text} of one answer. Ask for the rows after it.", False, message.id)
    docs = len(message.documents)
    text = f"{docs} document{'s are' if docs > 1 else ' is'} over {limit} bytes, which is the limit of one answer."
    return Problem("limit", f"{text} Ask for fewer or smaller documents at once.", False, message.id)
