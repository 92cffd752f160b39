"""`headwater spaces`, `log`, `get` and `compact`: looking at a space and giving up its old history."""

from __future__ import annotations

from pathlib import Path

from headwater.cli.output import OK, print_json, say, table, value_text, when
from headwater.cli.parameters import BranchName, DirectoryPath, Json, SpaceName
from headwater.cli.spaces import open_directory, open_space
from headwater.data.address import DocKey, doc_text, parse_address
from headwater.data.codec import json_form
from headwater.data.json_form import JsonForm
from headwater.data.path import lookup
from headwater.data.value import Absent
from headwater.engine.reads import Logged
from headwater.errors import AbsentError, AuthoringError
from headwater.protocol.commit import MAIN


def spaces(directory: DirectoryPath, /, *, json: Json = False) -> int:
    """The spaces of a data directory.

    Example: `headwater spaces ./data`
    """
    with open_directory(Path(directory)) as opened:
        found = [(name, opened.file_of(name).stat().st_size) for name in opened.spaces()]
    if json:
        print_json([{"name": name, "bytes": size} for name, size in found])
    elif found:
        table(("space", "bytes"), [(name, str(size)) for name, size in found])
    else:
        say(f"{directory} holds no space yet")
    return OK


def log(
    directory: DirectoryPath,
    space: SpaceName,
    /,
    *,
    since: int = 0,
    limit: int = 50,
    branch: str | None = None,
    json: Json = False,
) -> int:
    """The commits of a space, oldest first.

    Example: `headwater log ./data shop --since 120 --limit 10`

    Parameters
    ----------
    since
        Begin after this seq.
    limit
        At most this many commits.
    branch
        Only the commits made on this branch. Without it: all.
    """
    with open_space(Path(directory), space) as engine:
        page = engine.changes(since=since, branch=branch, limit=limit)
    if json:
        following = int(page.next) if page.next is not None else None
        print_json({"commits": [_commit_form(each) for each in page.items], "next": following})
        return OK
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
        say(value_text(value))
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
        kept_from = engine.compact(before)
    if json:
        print_json({"kept_from": kept_from, "asked": before})
    elif kept_from < before:
        say(f"history is kept from seq {kept_from}: something before {before} is still needed")
    else:
        say(f"history is kept from seq {kept_from}")
    return OK


def _written(each: Logged) -> str:
    places = [
        f"{patch.kind} {doc_text(operation.doc, patch.path)}"
        for operation in each.commit.operations
        for patch in operation.patches
    ]
    sent = len(each.commit.events) + len(each.commit.records)
    return "\n".join([*places[:5], *([f"and {len(places) - 5} more"] if len(places) > 5 else [])]) or (
        f"nothing, sent {sent}" if sent else "nothing"
    )


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
