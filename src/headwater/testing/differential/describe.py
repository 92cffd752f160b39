"""The steps of a schedule as text, short enough to read a failing one. Never decides anything."""

from __future__ import annotations

from dataclasses import asdict

from headwater.data.address import Depth, DocKey
from headwater.data.path import path_text
from headwater.engine import DEFAULT_LIMITS, Limits
from headwater.protocol.commit import MAIN, Commit, EntityAbsent, LeaseHeld, OriginCommitted, Read
from headwater.testing.differential.schedules import Step, Submit


def described(step: Step) -> str:
    """One step. A Submit has a line for each commit."""
    if not isinstance(step, Submit):
        return str(step)
    lines = []
    for session, frame in step.batch:
        for place, commit in enumerate(frame):
            start = f"{session}:" if place == 0 else " " * (len(session) + 1)
            lines.append(f"{start} {describe_commit(commit)}")
    return "submit " + "\n       ".join(lines)


def describe_commit(commit: Commit) -> str:
    """A commit without its empty fields."""
    parts = [f"commit {commit.local_seq}"]
    if commit.branch != MAIN:
        parts.append(f"on {commit.branch}")
    for operation in commit.operations:
        patches = ", ".join(f"{kind} {path_text(path) or '/'} {arg!r}" for kind, path, arg in operation.patches)
        parts.append(f"write {_doc(operation.doc)}[{patches}]")
    parts += [describe_read(read) for read in commit.reads]
    for place, result in enumerate(commit.results):
        under = f" after {', '.join(map(str, result.after))}" if result.after else ""
        reads = f" reads {', '.join(map(str, result.reads))}" if result.reads else ""
        parts.append(f"result {place} with {result.operations} operations{reads}{under}")
    for precondition in commit.preconditions:
        match precondition:
            case OriginCommitted(local_seq):
                parts.append(f"if origin {local_seq} was committed")
            case EntityAbsent(doc):
                parts.append(f"if {_doc(doc)} is absent")
            case LeaseHeld(name, token):
                parts.append(f"if lease {name} is held with {token}")
    parts += [f"send {event.id}" for event in commit.events]
    parts += [f"handle {id}" for id in commit.handled]
    parts += [f"emit {record.topic}/{record.key}" for record in commit.records]
    return " ".join(parts)


def describe_read(read: Read) -> str:
    depth = "deep" if read.depth == Depth.DEEP else "shape"
    return f"read {_doc(read.doc)}#{path_text(read.path)} {depth} at {read.seq}{_layers(read.layers)}"


def _layers(layers: tuple[tuple[int, int], ...]) -> str:
    return "".join(f"+{first}" if first == last else f"+{first}..{last}" for first, last in layers)


def unusual(limits: Limits) -> str:
    """The limits that differ from the defaults."""
    usual = asdict(DEFAULT_LIMITS)
    found = [f"{name}={value}" for name, value in asdict(limits).items() if value != usual[name]]
    return ", ".join(found) or "none"


def _doc(doc: DocKey) -> str:
    return f"{doc.scope}:{doc.id}"
