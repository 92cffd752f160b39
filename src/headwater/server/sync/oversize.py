"""Messages that are too long: which commits a frame would have brought that is not taken in, and what a peer hears
instead of an answer that it could not take in.

Without either, a replica that did nothing wrong would say or ask the same on every connection, for ever. Never decides
what is too long; the limits of the server do.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headwater.data.value import size_of
from headwater.errors import LimitError
from headwater.protocol.messages import Answer, Encoding, FromEngine, Problem, State, Sync, Verdicts, Watched, encode
from headwater.protocol.mirrors import ReadElsewhere
from headwater.protocol.observations import Observations
from headwater.protocol.stored_events import Events
from headwater.protocol.verdict import Rejected, RuleRefused

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
