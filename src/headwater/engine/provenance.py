"""The provenance of a document: the commit that wrote it last, the commits that caused that one, and so on.

A derived commit names the addresses whose change made it run. The trace follows each address to the commit that wrote
it last before, until it reaches a commit without causes, the end of kept history, or its bound. Never writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headwater.data.address import DocKey
from headwater.data.path import Path
from headwater.engine.engine import Engine
from headwater.engine.log.history import Logged
from headwater.protocol.commit import MAIN
from headwater.protocol.observations import whose_record


class End(Enum):
    """Why a chain goes no further at a step."""

    GOES_ON = "goes-on"  # the causes of the commit follow
    WRITTEN = "written"  # the commit was not derived: a user or a handler made it
    FIRST_RUN = "first-run"  # nothing is known to have made it run
    SHOWN_ABOVE = "shown-above"
    NOT_KEPT = "not-kept"  # it was never written, or before the kept history


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One commit, and the part of it that mattered."""

    level: int
    doc: DocKey
    path: Path
    commit: Logged | None  # None: it was never written, or history is not kept that far
    end: End


def trace_provenance(engine: Engine, doc: DocKey, path: Path, *, most: int) -> tuple[Step, ...]:
    """Trace at most `most` commits that made a value of a document, the last one first, each followed by its causes."""
    found: list[Step] = []
    seen: set[int] = set()
    waiting = [(0, doc, path, engine.last_seq)]
    while waiting and len(found) < most:
        level, at_doc, at_path, at = waiting.pop()
        logged = last_write(engine, at_doc, at)
        if logged is None:
            end = End.NOT_KEPT
        elif logged.seq in seen:
            end = End.SHOWN_ABOVE
        else:
            seen.add(logged.seq)
            causes = _causes(engine, logged)
            first = End.FIRST_RUN if logged.commit.provenance.derived else End.WRITTEN
            end = End.GOES_ON if causes else first
            waiting += [(level + 1, *cause, logged.seq - 1) for cause in reversed(causes)]
        found.append(Step(level=level, doc=at_doc, path=at_path, commit=logged, end=end))
    return tuple(found)


def last_write(engine: Engine, doc: DocKey, at: int) -> Logged | None:
    """The commit that wrote a document last, up to a seq. None: there is none, or history is not kept that far."""
    if at < max(1, engine.kept_from):
        return None
    seq = engine.read(doc, branch=MAIN, at=at).seq
    if seq < max(1, engine.kept_from):
        return None
    page = engine.changes(since=seq - 1, branch=MAIN, limit=1)
    return page.items[0] if page.items and page.items[0].seq == seq else None


def _causes(engine: Engine, logged: Logged) -> list[tuple[DocKey, Path]]:
    """Return the causes of a derived commit; for a first run, its reads, once for each document.

    The record of its piece, which each derived commit names among its reads, stands for code and is no cause.
    """
    provenance = logged.commit.provenance
    if provenance.causes or not provenance.derived:
        return list(dict.fromkeys(provenance.causes))
    read = {read.doc: (read.doc, read.path) for read in logged.commit.reads if not whose_record(read.doc)}
    for doc in _read_in_frame(engine, logged):
        if not whose_record(doc):
            read.setdefault(doc, (doc, ()))
    return list(read.values())


def _read_in_frame(engine: Engine, logged: Logged) -> list[DocKey]:
    """Return the documents that a commit read as earlier commits of its frame wrote them: it has no reads of these."""
    after = logged.commit.after
    if not after:
        return []
    # No other commit is between two commits of one frame, so that at most so many are between these.
    most = logged.commit.local_seq - after[0][0]
    found = engine.changes(since=max(0, logged.seq - most - 1), branch=logged.commit.branch, limit=most).items
    return [
        operation.doc
        for each in found
        if each.session == logged.session and any(first <= each.commit.local_seq <= last for first, last in after)
        for operation in each.commit.operations
    ]
