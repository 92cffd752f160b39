"""`headwater spaces`, `log`, `get` and `compact`: looking at a space and giving up its old history."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headwater.cli.output import OK, print_json, remark, say, table, when
from headwater.cli.parameters import BranchName, DirectoryPath, Json, SpaceName
from headwater.cli.spaces import open_directory, open_space, strays_in
from headwater.data.address import DocKey, doc_text, parse_address
from headwater.data.codec import json_form
from headwater.data.json_form import JsonForm
from headwater.data.path import lookup
from headwater.data.value import Absent
from headwater.engine.branches import Branch
from headwater.engine.reads import Logged, every
from headwater.errors import AbsentError, AuthoringError
from headwater.protocol.commit import MAIN

_PLACES: Final = 5  # writes of one commit that `log` lists


def spaces(directory: DirectoryPath, /, *, json: Json = False) -> int:
    """The spaces of a data directory.

    Example: `headwater spaces ./data`
    """
    with open_directory(Path(directory)) as opened:
        found = [(name, opened.file_of(name).stat().st_size) for name in opened.spaces()]
        strays = strays_in(Path(directory), opened)
    if json:
        print_json([{"name": name, "bytes": size} for name, size in found])
    elif found:
        table(("space", "bytes"), [(name, str(size)) for name, size in found])
    else:
        say(f"{directory} holds no space yet")
    for stray in strays:
        remark(f"headwater: {stray} in {directory} is no space, and was left alone")
    return OK


def log(
    directory: DirectoryPath,
    space: SpaceName,
    /,
    *,
    since: int | None = None,
    limit: int = 50,
    branch: str | None = None,
    json: Json = False,
) -> int:
    """The commits of a space, oldest first.

    Example: `headwater log ./data shop --since 120 --limit 10`

    Parameters
    ----------
    since
        Begin after this seq. Without it: with the oldest commit that compaction has left.
    limit
        At most this many commits.
    branch
        Only the commits made on this branch. Without it: all.
    """
    with open_space(Path(directory), space) as engine:
        kept_from = engine.kept_from
        page = engine.changes(since=kept_from - 1 if since is None else since, branch=branch, limit=limit)
    if json:
        following = int(page.next) if page.next is not None else None
        commits = [_commit_form(each) for each in page.items]
        print_json({"commits": commits, "next": following, "kept_from": kept_from})
        return OK
    if since is None and kept_from > 1:
        say(f"history before seq {kept_from} was compacted away")
    table(
        ("seq", "time", "session", "branch", "node", "wrote"),
        [
            (
                str(each.seq),
                when(each.at_us),
                f"{each.session} {each.commit.local_seq}",
                each.commit.branch,
                each.commit.provenance.node,
                _written(each),
            )
            for each in page.items
        ],
    )
    if page.next is not None:
        say(f"more: --since {page.next}")
    return OK


def get(
    directory: DirectoryPath,
    space: SpaceName,
    address: str,
    /,
    *,
    at: int | None = None,
    branch: BranchName = MAIN,
    json: Json = False,
) -> int:
    """What is at an address, now or as it was.

    Example: `headwater get ./data shop 'space:cart#/lines/0' --at 120`

    Parameters
    ----------
    address
        SCOPE:ID, and after a `#` the path inside: space:cart#/lines/0/qty or user:ann:settings.
    at
        The seq to read at. Without it: now.
    """
    parts = parse_address(address)
    if parts.space is not None and parts.space != space:
        raise AuthoringError(f"{address!r} is in space {parts.space!r}, and the command reads {space!r}")
    key = DocKey(parts.scope, parts.id)
    with open_space(Path(directory), space) as engine:
        document = engine.read(key, branch=branch, at=at)
    value = lookup(document.value, parts.path)
    if isinstance(value, Absent):
        there = "the document is absent" if isinstance(document.value, Absent) else "the document has no such path"
        raise AbsentError(
            f"nothing is at {doc_text(key, parts.path)} on branch {branch!r} at seq {document.as_of}: {there}"
        )
    if json:
        print_json(
            {
                "address": doc_text(key, parts.path),
                "branch": branch,
                "value": json_form(value),
                "seq": document.seq,
                "as_of": document.as_of,
            }
        )
    else:
        print_json(json_form(value))
    return OK


def compact(directory: DirectoryPath, space: SpaceName, /, *, before: int, json: Json = False) -> int:
    """Give up history before a seq, as far as no branch and no open session needs it.

    Current values stay, and every moment from the kept seq on. This cannot be undone.

    Example: `headwater compact ./data shop --before 100000`

    Parameters
    ----------
    before
        The first seq to keep, if nothing older is needed.
    """
    with open_space(Path(directory), space) as engine:
        already = engine.kept_from
        kept_from = engine.compact(before)
        last_seq, branches = engine.last_seq, list(every(lambda after: engine.branches(after=after)))
    if json:
        print_json({"kept_from": kept_from, "asked": before, "last_seq": last_seq})
        return OK
    if not last_seq:
        say("there is no history yet")
    elif kept_from < before:
        say(f"history is kept from seq {kept_from}, not {before}: {_why_kept(before, last_seq, branches)}")
    elif kept_from == already:
        say(f"history is kept from seq {kept_from}, as it was before")
    else:
        say(f"history is kept from seq {kept_from}")
    return OK


def _why_kept(before: int, last_seq: int, branches: Sequence[Branch]) -> str:
    """Why compaction stopped before the seq it was asked for."""
    forks = [(each.fork_seq, each.name, each.parent.name) for each in branches if each.parent is not None]
    fork_seq, name, parent = min(forks, default=(before, "", ""))
    if fork_seq + 1 < min(before, last_seq):
        return f"branch {name!r} begins as {parent!r} was at seq {fork_seq}"
    if before > last_seq:
        return f"the log ends at seq {last_seq}, and its newest frame always stays"
    return f"seq {before} is in the middle of a wave that begins there"


def _written(each: Logged) -> list[str]:
    """What a commit wrote, a line each, as far as it can be taken in at a glance."""
    places = [
        f"{patch.kind} {doc_text(operation.doc, patch.path)}"
        for operation in each.commit.operations
        for patch in operation.patches
    ]
    if not places:
        sent = len(each.commit.events) + len(each.commit.records)
        return [f"nothing, sent {sent}" if sent else "nothing"]
    more = len(places) - _PLACES
    return [*places[:_PLACES], *([f"and {more} more"] if more > 0 else [])]


def _commit_form(each: Logged) -> JsonForm:
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
