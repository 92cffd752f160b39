"""Why a node ran: the chain of causes of its last run, as exact as it is known and of bounded length.

A node keeps the notification of every spot whose change caused its last run, and a notification names the node whose
commit it announces. A chain continues through a writer only while the causes that the writer keeps belong to that very
commit; if the writer has run again since, the chain says so and ends. Cycles are cut where they close. For a node that
was resumed without a run, the observation of its last run is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

from headwater.data.address import doc_text
from headwater.data.json_form import json_form
from headwater.data.reader_trie import Spot
from headwater.data.text import shown
from headwater.data.value import ABSENT, MaybeValue, lookup
from headwater.protocol.hop_counts import Ways
from headwater.protocol.messages import Way
from headwater.replica.document import Document
from headwater.replica.feed import Kind, Notification
from headwater.scheduler.node import STATUS, Node, Remembered

__all__ = ["Cause", "End", "Explanation", "Step", "cause_of", "why"]


class End(Enum):
    """Why a chain ends at a step."""

    GOES_ON = "goes on"  # it does not end: the causes of the writer's run follow
    OUTSIDE = "outside"  # the writer is not a node
    FIRST_RUN = "first run"  # the writer ran because it was demanded, not because of a change
    NOT_KEPT = "not kept"  # the writer has run again, or may have: the causes of its earlier run are not kept
    REMOVED = "removed"  # the writer was removed
    SHOWN_ABOVE = "shown above"  # the writer's causes are in the chain already: a cycle, or two ways to it
    TOO_LONG = "too long"  # the bound of the chain


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One place that is shown differently, the commit that changed it, and the writer of that commit."""

    address: str
    depth: str
    before: MaybeValue
    after: MaybeValue
    known_before: bool  # False: the document was not here, or its writer failed or recovered; the values say nothing
    kind: str  # commit, integrate, revert, pull or reset; "failure": its writer failed or recovered
    seq: int  # the seq of confirmed state at the time of the notification
    local_seq: int  # of the commit, if it was made here; 0: it was not, or it is a result, which is sent later
    writer: str  # the id of the node; "" if the writer is not a node
    who: str  # the writer, for people
    hops: int = 0  # number of sessions on the way, each with a derived commit; 0 also if unknown

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON data. A value that is absent or not known is left out."""
        record: dict[str, Any] = {"address": self.address, "depth": self.depth}
        if self.known_before and self.before is not ABSENT:
            record["before"] = json_form(self.before)
        if self.after is not ABSENT:
            record["after"] = json_form(self.after)
        return record | {
            "known_before": self.known_before,
            "kind": self.kind,
            "seq": self.seq,
            "local_seq": self.local_seq,
            "writer": self.writer,
            "who": self.who,
            "hops": self.hops,
        }

    def __str__(self) -> str:
        if self.kind == _FAILURE:
            return f"{self.address}: {self.who}"
        before = _text(self.before) if self.known_before else "not known"
        number = f"commit {self.local_seq} on seq {self.seq}" if self.local_seq else f"seq {self.seq}"
        shape = "" if self.depth == "deep" else f" ({self.depth})"
        return f"{self.address}{shape}: {before} -> {_text(self.after)}, {self.kind}, {number}, by {self.who}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One cause in a chain. `level` is the number of writers between it and the node that was asked about."""

    level: int
    node: str  # the node whose run it caused
    cause: Cause
    end: End


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer of `why`. Steps are in reading order: a cause, then the causes of its writer's run, one level deeper.

    A place that changed several times before the run is listed with its last change.
    """

    node: str
    kind: str
    status: str
    runs: int
    steps: tuple[Step, ...]
    pending: tuple[Cause, ...]  # the causes of its present invalidity, if it is invalid
    left_out: int  # causes beyond the bound, of runs that are in the chain
    remembered: Remembered | None = None  # its last run, if that was in an earlier process
    # its piece is closed: the live nodes of the piece were clean at this seq, in an earlier process
    asleep_since: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "kind": self.kind,
            "status": self.status,
            "runs": self.runs,
            "steps": [
                {"level": step.level, "node": step.node, "end": step.end.value, "cause": step.cause.as_json()}
                for step in self.steps
            ],
            "pending": [cause.as_json() for cause in self.pending],
            "left_out": self.left_out,
            "remembered": None if self.remembered is None else _remembered_json(self.remembered),
            "asleep_since": self.asleep_since,
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        lines = [f"{self.kind} {self.node}, {self.status}, {self.runs} runs"]
        if not self.runs and self.remembered is not None:
            lines += _remembered_lines(self.remembered)
        elif self.asleep_since:
            lines += _asleep_lines(self.asleep_since)
        elif not self.runs:
            lines.append("  it has not run")
        elif not self.steps:
            lines.append("  its last run was not caused by a change: its first one, or another try")
        else:
            lines.append("  its last run was caused by")
        for step in self.steps:
            ends = "" if step.end in (End.GOES_ON, End.OUTSIDE) else f" [{step.end.value}]"
            lines.append(f"  {'  ' * (step.level + 1)}{step.cause}{ends}")
        if self.left_out:
            lines.append(f"  and {self.left_out} more")
        if self.pending:
            lines.append("  it is invalid because of")
            lines += [f"    {cause}" for cause in self.pending]
        return lines


_FAILURE = "failure"
ASLEEP = "asleep"
"""The status of a node that is not registered because its piece is closed."""


def _asleep_lines(seq: int) -> list[str]:
    return [
        f"  it has not run here: its piece sleeps, since all of it that was demanded was clean at seq {seq}",
        "  `await pull()` brings it here together with the cause of its last run; `headwater why` tells that, too",
    ]


def _remembered_json(last: Remembered) -> dict[str, Any]:
    return {
        "cause": None if last.cause is None else doc_text(*last.cause),
        "changed_at": last.changed_at,
        "verified_at": last.verified_at,
        "took_us": last.took_us,
    }


def _remembered_lines(last: Remembered) -> list[str]:
    """Describe the observed run of an earlier process: one cause, and the seqs of its result and its reads."""
    wrote = f", last changed its value at seq {last.changed_at}" if last.changed_at else ""
    lines = [
        f"  it has not run here: it was resumed, since its reads were still current at seq {last.verified_at}{wrote}"
    ]
    if last.cause is None:
        lines.append("  its last run, before this process, was not caused by a change: its first one, or another try")
    else:
        lines += ["  its last run, before this process, was caused by", f"    {doc_text(*last.cause)}"]
    return lines


def why(node: Node, steps: int) -> Explanation:
    """Return the chain of causes of a node's last run, with at most `steps` steps. Does not recurse."""
    made: list[Step] = []
    left_out = 0
    entered = {node}
    waiting = [(0, node, spot, told) for spot, told in reversed((node.last_causes or {}).items())]
    while waiting:
        level, caused, spot, told = waiting.pop()
        if len(made) >= steps:
            left_out += 1
            continue
        end = _end_at(caused, spot, told, entered)
        writer = told.source
        if end is End.GOES_ON and isinstance(writer, Node):
            if len(made) + 1 >= steps:
                end = End.TOO_LONG
            else:
                entered.add(writer)
                above = reversed((writer.last_causes or {}).items())
                waiting.extend((level + 1, writer, at, notification) for at, notification in above)
        made.append(Step(level=level, node=caused.id, cause=cause_of(spot, told), end=end))
    return Explanation(
        node=node.id,
        kind=node.kind.value,
        status=STATUS[node.status],
        runs=node.runs,
        steps=tuple(made),
        pending=tuple(cause_of(spot, told) for spot, told in list((node.causes or {}).items())[:steps]),
        left_out=left_out,
        remembered=None if node.runs else node.remembered,
    )


def _end_at(caused: Node, spot: Spot, told: Notification, entered: set[Node]) -> End:
    """Return how a chain ends at a cause. It goes on if the causes of the writer are known and not shown yet."""
    writer = told.source
    if not isinstance(writer, Node):
        return End.OUTSIDE
    if writer.removed:
        return End.REMOVED
    if told.layer:
        is_of_last_run = writer.wrote == told.layer
    else:
        # The writer failed. A repeated failure would have been announced as well. A recovery looks like a failure, and
        # the chain ends there.
        is_of_last_run = writer.error is not None and (caused.causes or {}).get(spot, told) is told
    if not is_of_last_run:
        return End.NOT_KEPT
    if not writer.last_causes:
        return End.FIRST_RUN
    return End.SHOWN_ABOVE if writer in entered else End.GOES_ON


def cause_of(spot: Spot, told: Notification) -> Cause:
    """Return the cause that a notification describes for one spot."""
    document = cast(Document, spot.document)
    before: MaybeValue = ABSENT
    after: MaybeValue = ABSENT
    known_before = False
    way = told.source.get(document.key) if isinstance(told.source, Ways) else None
    for change in told.changes:
        if change.document is document:
            before, after = lookup(change.before, spot.path), lookup(change.after, spot.path)
            known_before = change.known_before
    writer = told.source.id if isinstance(told.source, Node) else ""
    is_failure = bool(writer) and not told.layer
    return Cause(
        address=doc_text(document.key, spot.path),
        depth=spot.depth.name.lower(),
        before=before,
        after=after,
        known_before=known_before,
        kind=_FAILURE if is_failure else told.kind.value,
        seq=told.seq,
        local_seq=0 if isinstance(told.source, Node) and told.source.shows_results else told.layer,
        writer=writer,
        who=f"{writer} failed, or does so no more" if is_failure else writer or _who(told, way),
        hops=0 if way is None else way.hops,
    )


def _who(told: Notification, way: Way | None) -> str:
    """Return a name of the writer if it is not a node of this runtime."""
    if way is not None and way.node:
        return f"{way.node} of session {way.session}"
    if told.source is not None and not isinstance(told.source, Ways):
        return str(getattr(told.source, "id", "")) or type(told.source).__name__
    match told.kind:
        case Kind.COMMIT:
            return "a write outside of any run"
        case Kind.INTEGRATE:
            return "the log of the space"
        case Kind.REVERT:
            return "a commit that was rejected"
        case Kind.PULL | Kind.RESET:
            return "its arrival"


def _text(value: MaybeValue) -> str:
    return "absent" if value is ABSENT else shown(value)
