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
from headwater.protocol.commit import MAIN, NO_PROVENANCE, CommitPart, Provenance, part_that_wrote, parts_of
from headwater.protocol.observations import whose_record


class ProvenanceEnd(Enum):
    """Why a chain goes no further at a step."""

    GOES_ON = "goes-on"  # the causes of the commit follow
    WRITTEN = "written"  # the commit was not derived: a user or a handler made it
    FIRST_RUN = "first-run"  # nothing is known to have made it run
    SHOWN_ABOVE = "shown-above"
    NOT_KEPT = "not-kept"  # it was never written, or before the kept history


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenanceStep:
    """One commit, or one result of a wave, and the part of it that mattered."""

    level: int
    doc: DocKey
    path: Path
    commit: Logged | None  # None: it was never written, or history is not kept that far
    provenance: Provenance  # of the commit, or of its result
    end: ProvenanceEnd


def trace_provenance(engine: Engine, doc: DocKey, path: Path, *, most: int) -> tuple[ProvenanceStep, ...]:
    """Trace at most `most` commits that made a value of a document, the last one first, each followed by its causes."""
    found: list[ProvenanceStep] = []
    seen: set[tuple[int, DocKey | None]] = set()  # commits, and results of waves by their first documents
    waiting = [(0, doc, path, engine.last_seq)]
    while waiting and len(found) < most:
        level, at_doc, at_path, at = waiting.pop()
        logged = last_write(engine, at_doc, at)
        provenance = NO_PROVENANCE
        if logged is None:
            end = ProvenanceEnd.NOT_KEPT
        else:
            part = part_that_wrote(logged.commit, at_doc)
            provenance = part.provenance
            place = logged.seq, part.operations[0].doc if logged.commit.results else None
            if place in seen:
                end = ProvenanceEnd.SHOWN_ABOVE
            else:
                seen.add(place)
                causes = _causes(logged, part)
                first = ProvenanceEnd.FIRST_RUN if provenance.derived else ProvenanceEnd.WRITTEN
                end = ProvenanceEnd.GOES_ON if causes else first
                waiting += [(level + 1, *cause) for cause in reversed(causes)]
        found.append(
            ProvenanceStep(level=level, doc=at_doc, path=at_path, commit=logged, provenance=provenance, end=end)
        )
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


def _causes(logged: Logged, part: CommitPart) -> list[tuple[DocKey, Path, int]]:
    """Return the causes of a derived commit or result, each with the seq up to which its write is looked for.

    For a first run, its reads are its causes, once for each document. The record of its piece, which each derived
    commit names among its reads, stands for code and is no cause. A result and those of its wave that it read have the
    same seq.
    """
    seq, parts = logged.seq, parts_of(logged.commit)
    in_wave = {operation.doc for place in part.after for operation in parts[place].operations}
    causes = list(dict.fromkeys(part.provenance.causes))
    if part.provenance.derived and not causes:
        read = {read.doc: (read.doc, read.path) for read in part.reads}
        for doc in sorted(in_wave):
            read.setdefault(doc, (doc, ()))
        causes = [cause for doc, cause in read.items() if not whose_record(doc)]
    return [(doc, path, seq if doc in in_wave else seq - 1) for doc, path in causes]
