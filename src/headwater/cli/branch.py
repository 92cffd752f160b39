"""`headwater branch`: list, make, compare, merge and delete branches of a space."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cyclopts import App

from headwater.cli.output import FAILED, OK, counted, print_json, say, short, table, when
from headwater.cli.parameters import DirectoryPath, Json, SpaceName
from headwater.cli.spaces import open_space
from headwater.data.address import doc_text
from headwater.data.codec import json_form
from headwater.data.json_form import JsonForm
from headwater.data.path import path_text
from headwater.engine.merge import BranchDiff
from headwater.protocol.commit import MAIN
from headwater.protocol.verdict import Accepted, Collision, as_error

_LISTED: Final = 100  # changed documents of a page, and changes that are listed for a person

branch = App(name="branch", help_format="markdown", help="List, make, compare, merge and delete branches of a space.")


@branch.command(name="list")
def list_branches(
    directory: DirectoryPath, space: SpaceName, /, *, after: str = "", limit: int = 50, json: Json = False
) -> int:
    """The branches of a space, by name.

    Example: `headwater branch list ./data shop --after try-discounts`

    Parameters
    ----------
    after
        Begin after this name, whether or not a branch has it.
    limit
        At most this many branches.
    """
    with open_space(Path(directory), space) as engine:
        page = engine.branches(after=after, limit=limit)
    found, following = page.items, page.next
    if json:
        branches: list[JsonForm] = [
            {
                "name": each.name,
                "parent": each.parent.name if each.parent else None,
                "fork_seq": each.fork_seq,
                "created_us": each.row.created_us,
                "merged_seq": each.row.merged_seq or None,
            }
            for each in found
        ]
        print_json({"branches": branches, "next": following})
    else:
        table(
            ("branch", "from", "at seq", "created", "merged up to"),
            [
                (
                    each.name,
                    each.parent.name if each.parent else "",
                    str(each.fork_seq) if each.parent else "",
                    when(each.row.created_us),
                    str(each.row.merged_seq or ""),
                )
                for each in found
            ],
        )
        if following is not None:
            say(f"more: --after {following}")
    return OK


@branch.command
def new(
    directory: DirectoryPath,
    space: SpaceName,
    name: str,
    /,
    *,
    parent: str = MAIN,
    at: int | None = None,
    json: Json = False,
) -> int:
    """Make a branch. It costs one row, however long the history is.

    Example: `headwater branch new ./data shop try-discounts --at 120`

    Parameters
    ----------
    name
        Its name. Names of deleted branches stay taken.
    parent
        The branch it begins from.
    at
        The seq it begins at. Without it: now.
    """
    with open_space(Path(directory), space) as engine:
        made = engine.fork(name, parent=parent, at=at)
    if json:
        print_json({"name": made.name, "parent": parent, "fork_seq": made.fork_seq})
    else:
        say(f"branch {made.name!r} begins as {parent!r} was at seq {made.fork_seq}")
    return OK


@branch.command
def diff(
    directory: DirectoryPath,
    space: SpaceName,
    name: str,
    /,
    *,
    after: str = "",
    limit: int = _LISTED,
    json: Json = False,
) -> int:
    """What a branch changed since it was made or last merged, and what of it collides with its parent.

    Example: `headwater branch diff ./data shop try-discounts --limit 20`

    Parameters
    ----------
    after
        Begin after this place: what the page before said under `more`, or as its `next`.
    limit
        At most this many documents. Of a document with very many changes, only --json lists all.
    """
    with open_space(Path(directory), space) as engine:
        found = engine.diff(name, after=after, limit=limit)
    if json:
        print_json(_diff_form(found))
    else:
        _say_diff(found)
        if found.next is not None:
            say(f"more: --after {found.next}")
    return OK


@branch.command
def merge(directory: DirectoryPath, space: SpaceName, name: str, /, *, json: Json = False) -> int:
    """Write a branch's changes to its parent in one commit. With collisions nothing is written.

    Exits 1 if something collides.

    Example: `headwater branch merge ./data shop try-discounts`
    """
    with open_space(Path(directory), space) as engine:
        found, verdict = engine.merge(name)
    seq = verdict.seq if isinstance(verdict, Accepted) else None
    if json:
        print_json({**_diff_form(found), "merged_seq": seq})
    else:
        _say_diff(found)
        if seq is not None:
            say(f"merged into {found.parent!r} at seq {seq}")
        elif not found.changes:
            say("nothing to merge")
    if verdict is not None and not isinstance(verdict, Accepted):
        raise as_error(verdict)
    if found.collisions:
        if not json:
            say(f"nothing was merged. Undo these changes on {name!r} or make them on {found.parent!r}, then try again.")
        return FAILED
    return OK


@branch.command
def delete(directory: DirectoryPath, space: SpaceName, name: str, /, *, json: Json = False) -> int:
    """Delete a branch and what it stored. Its commits stay in the log, its name stays taken.

    Example: `headwater branch delete ./data shop try-discounts`
    """
    with open_space(Path(directory), space) as engine:
        engine.delete_branch(name)
    if json:
        print_json({"deleted": name})
    else:
        say(f"branch {name!r} is deleted")
    return OK


def _say_diff(found: BranchDiff) -> None:
    changes = [(change.doc, patch) for change in found.changes for patch in change.patches]
    where = f"{counted(len(changes), 'change')} in {counted(len(found.changes), 'document')}"
    say(f"{found.branch!r} against {found.parent!r}: {where}")
    if changes:
        table(
            ("change", "address", "value"),
            [
                (patch.kind, doc_text(doc, patch.path), "" if patch.arg is None else short(patch.arg))
                for doc, patch in changes[:_LISTED]
            ],
        )
        _say_rest(found, len(changes) - _LISTED, "change")
    say(*(f"collides: {collision}" for collision in found.collisions[:_LISTED]))
    _say_rest(found, len(found.collisions) - _LISTED, "collision")


def _say_rest(found: BranchDiff, rest: int, noun: str) -> None:
    if rest > 0:
        say(f"and {counted(rest, noun)} more: headwater branch diff ... {found.branch} --json lists all")


def _diff_form(found: BranchDiff) -> dict[str, JsonForm]:
    return {
        "branch": found.branch,
        "parent": found.parent,
        "since": found.since,
        "through": found.through,
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
    }
