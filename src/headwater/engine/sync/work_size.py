"""How large the work is that a message makes, for a host that has to choose a thread for it.

Counts bytes: those of the message, of the documents that it writes or asks for, and some for each thing that it names
and each peer that has to hear of it. Only memory is asked. What would have to be read from the disk, and what has no
bound that is known before (a page of documents, the past, catching up), is larger than any limit.
"""

from __future__ import annotations

from sys import maxsize
from typing import Final

from headwater.data.address import DocKey
from headwater.data.value import size_up_to
from headwater.engine.admission.access import ACCESS
from headwater.engine.engine import Engine
from headwater.engine.sync.connection import Peer
from headwater.engine.sync.watch_table import Watching
from headwater.protocol.commit import Commit, EntityAbsent
from headwater.protocol.messages import Ack, FromReplica, Open, Query, Renew, Transact, Unwatch, Watch
from headwater.protocol.observations import WatchMarks
from headwater.protocol.reactions import Finish, WatchTargets
from headwater.protocol.stored_events import WatchEvents

ITEM: Final = 512
"""Bytes that a named thing counts for besides its own: a read, a document, an event, a peer that hears of a write."""
UNKNOWN: Final = maxsize


def work_size(engine: Engine, watching: Watching, peer: Peer, message: FromReplica, most: int) -> int:
    """About how many bytes are gone through for a message. Counting ends as soon as that is more than `most`."""
    match message:
        case Transact():
            total = sum(2 * ITEM + len(run.about) + len(run.footprint) for run in message.observations)
            for commit in message.commits:
                if total > most:
                    break
                total += _size_of_commit(engine, watching, commit, most - total)
            return total
        case Ack():
            # A peer that was told no more before it heard of the last is owed whole documents now.
            return UNKNOWN if peer.is_owed() else ITEM
        case Open():
            # A session that is taken up again is told what it missed.
            is_new = not (message.resume or message.seen or message.sent or message.acked)
            return _size_of_documents(engine, peer, [ACCESS], most) if is_new else UNKNOWN
        case Watch():
            if any(selector.follow for selector in message.selectors):
                return UNKNOWN
            return _size_of_documents(engine, peer, [selector.doc for selector in message.selectors], most)
        case Query():
            if message.at is not None or not message.doc:
                return UNKNOWN
            return _size_of_documents(engine, peer, [DocKey(message.scope, message.doc)], most)
        case Finish():
            return ITEM * (1 + len(message.outcomes))
        case Unwatch() | Renew() | WatchEvents() | WatchMarks() | WatchTargets():
            return ITEM
        case _:
            return UNKNOWN


def _size_of_documents(engine: Engine, peer: Peer, docs: list[DocKey], most: int) -> int:
    total = 0
    for doc in docs:
        size = engine.size_in_memory(doc, branch=peer.branch)
        if size is None:
            return UNKNOWN
        total += ITEM + size
        if total > most:
            break
    return total


def _size_of_commit(engine: Engine, watching: Watching, commit: Commit, most: int) -> int:
    named = (commit.reads, commit.preconditions, commit.handled, commit.delivered, commit.declared)
    total = ITEM * (1 + sum(map(len, named)))
    for operation in commit.operations:
        size = engine.size_in_memory(operation.doc, branch=commit.branch)
        if size is None or total > most:
            return UNKNOWN
        told = len(watching.watchers.get((commit.branch, operation.doc), ()))
        patched = sum(size_up_to(patch.arg, most) for patch in operation.patches[: most // ITEM + 1])
        total += size + (ITEM * len(operation.patches) + patched) * (1 + told)
    total += ITEM * (len(commit.events) + len(commit.records))
    for payload in [event.payload for event in commit.events] + [record.payload for record in commit.records]:
        if total > most:
            break
        total += size_up_to(payload, most)
    if total > most:
        return UNKNOWN
    for condition in commit.preconditions:
        if isinstance(condition, EntityAbsent) and engine.size_in_memory(condition.doc, branch=commit.branch) is None:
            return UNKNOWN
    for read in commit.reads:
        behind = engine.seqs_behind(read.doc, read.seq, branch=commit.branch)
        if behind is None:
            return UNKNOWN
        total += ITEM * behind if read.layers else 0
    return total
