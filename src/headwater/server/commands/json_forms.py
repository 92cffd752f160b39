"""Answers of an engine as JSON: commits, values, provenance, branches and stored events.

A stored event that a runtime already handles is listed once, as that runtime sees it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.data.address import AddressParts, DocKey, doc_text
from headwater.data.codec import json_form
from headwater.data.json_form import JsonForm
from headwater.data.path import path_text
from headwater.data.value import Absent, lookup
from headwater.engine.admission.merge import BranchDiff
from headwater.engine.engine import Engine
from headwater.engine.log.history import Logged, every
from headwater.engine.provenance import ProvenanceEnd, trace_provenance
from headwater.errors import AbsentError, AuthoringError
from headwater.protocol.command_messages import CommandQuestion
from headwater.protocol.commit import MAIN, Commit, event_id_of, parts_of
from headwater.protocol.verdict import Accepted, Collision, as_error
from headwater.server.commands.foreign_reads import ForeignReads
from headwater.server.commands.nodes_json import last_run_form
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS, ServerLimits

if TYPE_CHECKING:
    from headwater.protocol.messages import StoredEvent
    from headwater.runtime.events.table import IntentRow

_ENDS = {
    ProvenanceEnd.GOES_ON: None,
    ProvenanceEnd.WRITTEN: "written directly",
    ProvenanceEnd.FIRST_RUN: "its first run",
    ProvenanceEnd.SHOWN_ABOVE: "shown above",
    ProvenanceEnd.NOT_KEPT: "never written, or before the history that is kept",
}

__all__ = [
    "branch_form",
    "commit_form",
    "compact_form",
    "intents_form",
    "log_form",
    "read_form",
    "stored_form",
    "why_form",
]


def _node_text(commit: Commit) -> str:
    """The node of a commit; of a wave, the first one, and how many more there are."""
    nodes = [part.provenance.node for part in parts_of(commit) if part.operations or not commit.results]
    return nodes[0] if len(nodes) < 2 else f"{nodes[0]} and {len(nodes) - 1} more"


def commit_form(each: Logged) -> JsonForm:
    """Return one commit."""
    commit = each.commit
    return {
        "seq": each.seq,
        "at_us": each.at_us,
        "session": each.session,
        "local_seq": commit.local_seq,
        "branch": commit.branch,
        "node": _node_text(commit),
        "derived": commit.provenance.derived,
        "writes": [
            {"kind": p.kind, "address": doc_text(op.doc, p.path), "value": json_form(p.arg)}
            for op in commit.operations
            for p in op.patches
        ],
        "reads": [{"address": doc_text(r.doc, r.path), "seq": r.seq} for r in commit.reads],
        "events": [{"id": e.id, "stream": e.stream} for e in commit.events],
        "records": [{"topic": r.topic, "key": r.key} for r in commit.records],
    }


def log_form(engine: Engine, since: int | None, branch: str | None, limit: int) -> dict[str, JsonForm]:
    """Return a page of commits, oldest first, and the seq to continue after: those after `since`, or the newest ones.

    `earlier` is a seq that shows the page before the newest commits; None if there is none, or with `since`.
    """
    kept_from = engine.kept_from
    if since is None and limit > 0:
        commits = _newest(engine, branch, limit)
        first = commits[0].seq if commits else kept_from
        earlier = max(kept_from - 1, first - 1 - limit) if first > kept_from else None
        return {
            "commits": [commit_form(each) for each in commits],
            "next": None,
            "kept_from": kept_from,
            "earlier": earlier,
        }
    page = engine.changes(since=since or 0, branch=branch, limit=limit)
    return {
        "commits": [commit_form(each) for each in page.items],
        "next": int(page.next) if page.next is not None else None,
        "kept_from": kept_from,
        "earlier": None,
    }


def _newest(
    engine: Engine, branch: str | None, limit: int, limits: ServerLimits = DEFAULT_SERVER_LIMITS
) -> list[Logged]:
    """Return the last few commits, or those of a branch among the newest of the log, oldest first."""
    most, limit = limits.log_searched, min(limit, limits.engine.page)
    found: deque[Logged] = deque(maxlen=limit)
    span = limit
    while True:
        found.clear()
        since: int | None = max(engine.kept_from - 1, engine.last_seq - min(span, most))
        is_all = since == engine.kept_from - 1 or span >= most
        while since is not None:
            page = engine.changes(since=since, branch=branch, limit=None)
            found.extend(page.items)
            since = int(page.next) if page.next is not None else None
        if is_all or len(found) >= limit:
            return list(found)
        span *= 8


def compact_form(engine: Engine, before: int) -> dict[str, JsonForm]:
    """Compact history before a seq, and return the first seq kept and the branch that prevents more."""
    already = engine.kept_from
    kept_from = engine.compact(before)
    branches = every(lambda after: engine.branches(after=after))
    forks = [(each.fork_seq, each.name, each.parent.name) for each in branches if each.parent is not None]
    fork = min(forks, default=None)
    return {
        "kept_from": kept_from,
        "asked": before,
        "last_seq": engine.last_seq,
        "was_kept_from": already,
        "first_fork": None if fork is None else {"seq": fork[0], "branch": fork[1], "parent": fork[2]},
    }


def read_form(engine: Engine, parts: AddressParts, branch: str, at: int | None) -> dict[str, JsonForm]:
    """Return the value at an address, now or at a seq."""
    key = DocKey(parts.scope, parts.id)
    document = engine.read(key, branch=branch, at=at)
    value = lookup(document.value, parts.path)
    if isinstance(value, Absent):
        there = "the document is absent" if isinstance(document.value, Absent) else "the document has no such path"
        raise AbsentError(
            f"nothing is at {doc_text(key, parts.path)} on branch {branch!r} at seq {document.as_of}: {there}"
        )
    return {
        "address": doc_text(key, parts.path),
        "branch": branch,
        "value": json_form(value),
        "seq": document.seq,
        "as_of": document.as_of,
    }


def why_form(
    engine: Engine,
    parts: AddressParts,
    most: int,
    foreign_reads: ForeignReads | None = None,
    *,
    is_declared: bool = False,
    limits: ServerLimits = DEFAULT_SERVER_LIMITS,
) -> dict[str, JsonForm]:
    """Return the chain of commits behind a document. Raises AbsentError if it was neither declared nor written."""
    key = DocKey(parts.scope, parts.id)
    found = trace_provenance(engine, key, parts.path, most=most)
    last = last_run_form(engine, key, foreign_reads, limits)
    if (
        last is None
        and not is_declared
        and found
        and found[0].end is ProvenanceEnd.NOT_KEPT
        and isinstance(engine.read(key).value, Absent)
    ):
        raise AbsentError(f"nothing is at {doc_text(key, parts.path)}: {_ENDS[ProvenanceEnd.NOT_KEPT]}")
    steps: list[JsonForm] = []
    for step in found:
        logged = step.commit
        steps.append(
            {
                "level": step.level,
                "address": doc_text(step.doc, step.path),
                "seq": None if logged is None else logged.seq,
                "at_us": None if logged is None else logged.at_us,
                "session": None if logged is None else logged.session,
                "node": None if logged is None else step.provenance.node,
                "derived": None if logged is None else step.provenance.derived,
                "end": _ENDS[step.end],
            }
        )
    return {"address": doc_text(key, parts.path), "steps": steps, "last_run": last}


def branch_form(engine: Engine, asked: CommandQuestion) -> dict[str, JsonForm]:
    """Carry out an action on the branches of a space."""
    match asked.value:
        case "list":
            return _list_branches(engine, asked)
        case "new":
            made = engine.fork(asked.name, parent=asked.branch or MAIN, at=asked.at)
            return {"name": made.name, "parent": asked.branch or MAIN, "fork_seq": made.fork_seq}
        case "diff":
            return _diff_form(engine.diff(asked.name, after=asked.after, limit=asked.limit))
        case "merge":
            return _merge_branch(engine, asked.name)
        case "delete":
            engine.delete_branch(asked.name)
            return {"deleted": asked.name}
        case other:
            raise AuthoringError(f"{other!r} is nothing to do with a branch: list, new, diff, merge or delete")


def _list_branches(engine: Engine, asked: CommandQuestion) -> dict[str, JsonForm]:
    page = engine.branches(after=asked.after, limit=asked.limit)
    found: list[JsonForm] = [
        {
            "name": each.name,
            "parent": each.parent.name if each.parent else None,
            "fork_seq": each.fork_seq,
            "created_us": each.row.created_us,
            "merged_seq": each.row.merged_seq or None,
        }
        for each in page.items
    ]
    return {"branches": found, "next": page.next}


def _merge_branch(engine: Engine, name: str) -> dict[str, JsonForm]:
    found, verdict = engine.merge(name)
    if verdict is not None and not isinstance(verdict, Accepted):
        raise as_error(verdict)
    return {**_diff_form(found), "merged_seq": None if verdict is None else verdict.seq}


def _diff_form(found: BranchDiff) -> dict[str, JsonForm]:
    return {
        "branch": found.branch,
        "parent": found.parent,
        "since": found.since,
        "through": found.through,
        "documents": len(found.changes),
        "changes": [
            {
                "kind": patch.kind,
                "address": doc_text(change.doc, patch.path),
                "value": json_form(patch.arg),
            }
            for change in found.changes
            for patch in change.patches
        ],
        "collisions": [_collision_form(each) for each in found.collisions],
        "next": found.next,
    }


def _collision_form(collision: Collision) -> JsonForm:
    return {
        "address": doc_text(collision.doc, collision.path),
        "path": path_text(collision.path),
        "basis": collision.basis,
        "seq": collision.seq,
        "session": collision.session,
        "node": collision.node,
        "reason": collision.reason,
        "says": str(collision),
    }


def stored_form(engine: Engine, limits: ServerLimits = DEFAULT_SERVER_LIMITS) -> list[JsonForm]:
    """Return the stored events of a space that are not handled yet, oldest first."""
    page = engine.events(limit=limits.listed_events)
    rows: list[JsonForm] = [
        {
            "id": event_id_of(each.id, each.payload),
            "stream": each.stream,
            "state": "stored",
            "sent_us": each.stored_us,
            "due_us": each.due_us or None,
            "attempts": 0,
            "conflict": "",
            "winner": "",
            "waits": "",
            "advice": "",
            "error": "",
            "ended_us": None,
        }
        for each in page.items
    ]
    if page.next is not None:
        rows.append(_more_events_row(page.items[-1], len(page.items)))
    return rows


def _more_events_row(last: StoredEvent, listed: int) -> JsonForm:
    """Return a row that says that more events are stored than listed."""
    return {
        "id": f"after {last.id}",
        "stream": f"{last.stream.partition('/')[0]}/",
        "state": "stored",
        "sent_us": last.stored_us,
        "due_us": None,
        "attempts": 0,
        "conflict": "",
        "winner": "",
        "waits": "",
        "advice": "",
        "error": f"more are stored: these are the first {listed:,}",
        "ended_us": None,
    }


def intents_form(space: str, rows: Iterable[IntentRow], stored: list[JsonForm]) -> list[JsonForm]:
    """Return the events of a space on their way, and the outcomes of the last ones."""
    head = f"{space}/"
    known = [row.as_json() for row in rows if row.stream.startswith(head)]
    living = {row["id"] for row in known if row["ended_us"] is None}
    waiting = [each for each in stored if isinstance(each, dict) and each["id"] not in living]
    return [*known, *waiting]
