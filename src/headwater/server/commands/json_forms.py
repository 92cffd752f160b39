"""What the log and the chain of a space say, as plain JSON, for whoever prints it. Decides nothing."""

from __future__ import annotations

from headwater.data.address import AddressParts, DocKey, doc_text
from headwater.data.codec import json_form
from headwater.data.json_form import JsonForm
from headwater.data.path import lookup
from headwater.data.value import Absent
from headwater.engine.engine import Engine
from headwater.engine.log.history import Logged, every
from headwater.engine.provenance import End, chain
from headwater.errors import AbsentError
from headwater.server.commands.foreign_reads import Abroad
from headwater.server.commands.last_run import last_run_form

_ENDS = {
    End.GOES_ON: None,
    End.WRITTEN: "somebody wrote it",
    End.FIRST_RUN: "its first run",
    End.SHOWN_ABOVE: "shown above",
    End.NOT_KEPT: "never written, or before what history keeps",
}

__all__ = ["commit_form", "compact_form", "log_form", "read_form", "why_form"]


def commit_form(each: Logged) -> JsonForm:
    """One commit."""
    commit = each.commit
    return {
        "seq": each.seq,
        "at_us": each.at_us,
        "session": each.session,
        "local_seq": commit.local_seq,
        "branch": commit.branch,
        "node": commit.provenance.node,
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
    """Some commits, oldest first, and where to go on."""
    kept_from = engine.kept_from
    page = engine.changes(since=kept_from - 1 if since is None else since, branch=branch, limit=limit)
    return {
        "commits": [commit_form(each) for each in page.items],
        "next": int(page.next) if page.next is not None else None,
        "kept_from": kept_from,
    }


def compact_form(engine: Engine, before: int) -> dict[str, JsonForm]:
    """Give up history before a seq, and say how far that went and what is in the way of more."""
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
    """What is at an address, now or as it was."""
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
    engine: Engine, parts: AddressParts, most: int, abroad: Abroad | None = None, *, is_declared: bool = False
) -> dict[str, JsonForm]:
    """The chain of commits that made a document what it is. AbsentError: nobody declared or wrote it."""
    key = DocKey(parts.scope, parts.id)
    found = chain(engine, key, parts.path, most=most)
    last = last_run_form(engine, key, abroad)
    if (
        last is None
        and not is_declared
        and found
        and found[0].end is End.NOT_KEPT
        and isinstance(engine.read(key).value, Absent)
    ):
        raise AbsentError(f"nothing is at {doc_text(key, parts.path)}: {_ENDS[End.NOT_KEPT]}")
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
                "node": None if logged is None else logged.commit.provenance.node,
                "derived": None if logged is None else logged.commit.provenance.derived,
                "end": _ENDS[step.end],
            }
        )
    return {"address": doc_text(key, parts.path), "steps": steps, "last_run": last}
