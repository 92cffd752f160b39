"""`headwater spaces`, `compact` and `branch`: the spaces of a directory, their history and their branches.

A directory that a process serves is asked through that process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cyclopts import App

from headwater.cli.data.commands import Token, User, Where
from headwater.cli.data.target import ask
from headwater.cli.directory import space_sizes
from headwater.cli.limits import DEFAULT_COMMAND_LIMITS, CommandLimits
from headwater.cli.output import (
    FAILED,
    OK,
    Json,
    SpaceName,
    count_noun,
    format_short,
    format_time,
    print_answer,
    print_json,
    print_note,
    print_table,
)
from headwater.data.codec import from_json_form
from headwater.engine.directory import SUFFIX
from headwater.protocol.command_messages import CommandQuestion
from headwater.protocol.commit import MAIN


def spaces(where: Where, /, *, user: User = "", token: Token = "", json: Json = False) -> int:
    """The spaces of a data directory.

    Example: `headwater spaces ./data`
    """
    found = ask(where, CommandQuestion("spaces", "", user=user), token=token)
    if json:
        print_json(found)
    elif found:
        print_table(("space", "bytes"), [(each["name"], str(each["bytes"])) for each in found])
    else:
        print_answer(f"{where} holds no space yet")
    for stray in () if "://" in where else _find_strays(Path(where)):
        print_note(f"headwater: {stray} in {where} is not a space and was not changed")
    return OK


def _find_strays(path: Path) -> list[str]:
    """List files that are named like a space and are none."""
    there = space_sizes(path)
    return sorted(file.name for file in path.glob(f"*{SUFFIX}") if file.stem not in there)


def compact(
    where: Where, space: SpaceName, /, *, before: int, user: User = "", token: Token = "", json: Json = False
) -> int:
    """Give up history before a seq, as far as no branch and no open session needs it.

    Current values stay, and every moment from the kept seq on. This cannot be undone.

    Example: `headwater compact ./data shop --before 100000`

    Parameters
    ----------
    before
        The first seq to keep, if nothing older is needed.
    """
    found = ask(where, CommandQuestion("compact", space, since=before, user=user), token=token)
    kept_from, last_seq = found["kept_from"], found["last_seq"]
    if json:
        print_json({"kept_from": kept_from, "asked": before, "last_seq": last_seq})
        return OK
    if not last_seq:
        print_answer("there is no history yet")
    elif kept_from < before:
        print_answer(f"history is kept from seq {kept_from}, not {before}: {_why_kept(before, found)}")
    elif kept_from == found["was_kept_from"]:
        print_answer(f"history is kept from seq {kept_from}, as it was before")
    else:
        print_answer(f"history is kept from seq {kept_from}")
    return OK


def _why_kept(before: int, found: Any) -> str:
    """Say why compaction stopped before the seq it was asked for."""
    fork, last_seq = found["first_fork"], found["last_seq"]
    if fork is not None and fork["seq"] + 1 < min(before, last_seq):
        return f"branch {fork['branch']!r} begins as {fork['parent']!r} was at seq {fork['seq']}"
    if before > last_seq:
        return f"the log ends at seq {last_seq}, and its newest frame always stays"
    return f"seq {before} is in the middle of a wave that begins there"


branch = App(name="branch", help_format="markdown", help="List, make, compare, merge and delete branches of a space.")


@branch.command(name="list")
def list_branches(
    where: Where,
    space: SpaceName,
    /,
    *,
    after: str = "",
    limit: int = 50,
    user: User = "",
    token: Token = "",
    json: Json = False,
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
    found = ask(where, CommandQuestion("branch", space, value="list", after=after, limit=limit, user=user), token=token)
    if json:
        print_json(found)
        return OK
    print_table(
        ("branch", "from", "at seq", "created", "merged up to"),
        [
            (
                each["name"],
                each["parent"] or "",
                str(each["fork_seq"]) if each["parent"] else "",
                format_time(each["created_us"]),
                str(each["merged_seq"] or ""),
            )
            for each in found["branches"]
        ],
    )
    if found["next"] is not None:
        print_answer(f"more: --after {found['next']}")
    return OK


@branch.command
def new(
    where: Where,
    space: SpaceName,
    name: str,
    /,
    *,
    parent: str = MAIN,
    at: int | None = None,
    user: User = "",
    token: Token = "",
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
    asked = CommandQuestion("branch", space, value="new", name=name, branch=parent, at=at, user=user)
    made = ask(where, asked, token=token)
    if json:
        print_json(made)
    else:
        print_answer(f"branch {made['name']!r} begins as {parent!r} was at seq {made['fork_seq']}")
    return OK


@branch.command
def diff(
    where: Where,
    space: SpaceName,
    name: str,
    /,
    *,
    after: str = "",
    limit: int = DEFAULT_COMMAND_LIMITS.listed_changes,
    user: User = "",
    token: Token = "",
    json: Json = False,
) -> int:
    """Print the changes of a branch since it was made or last merged, and their collisions with its parent.

    Example: `headwater branch diff ./data shop try-discounts --limit 20`

    Parameters
    ----------
    after
        Begin after this place, which the page before printed under `more`, or as its `next`.
    limit
        At most this many documents. Of a document with very many changes, only --json lists all.
    """
    asked = CommandQuestion("branch", space, value="diff", name=name, after=after, limit=limit, user=user)
    found = ask(where, asked, token=token)
    if json:
        print_json(found)
    else:
        _say_diff(found)
        if found["next"] is not None:
            print_answer(f"more: --after {found['next']}")
    return OK


@branch.command
def merge(
    where: Where, space: SpaceName, name: str, /, *, user: User = "", token: Token = "", json: Json = False
) -> int:
    """Write a branch's changes to its parent in one commit. With collisions nothing is written.

    Exits 1 if something collides.

    Example: `headwater branch merge ./data shop try-discounts`
    """
    found = ask(where, CommandQuestion("branch", space, value="merge", name=name, user=user), token=token)
    seq = found["merged_seq"]
    if json:
        print_json(found)
    else:
        _say_diff(found)
        if seq is not None:
            print_answer(f"merged into {found['parent']!r} at seq {seq}")
        elif not found["changes"]:
            print_answer("nothing to merge")
    if found["collisions"]:
        if not json:
            where_else = f"make them on {found['parent']!r}"
            print_answer(f"nothing was merged. Undo these changes on {name!r} or {where_else}, then try again.")
        return FAILED
    return OK


@branch.command
def delete(
    where: Where, space: SpaceName, name: str, /, *, user: User = "", token: Token = "", json: Json = False
) -> int:
    """Delete a branch and its documents. Its commits stay in the log, its name stays taken.

    Example: `headwater branch delete ./data shop try-discounts`
    """
    deleted = ask(where, CommandQuestion("branch", space, value="delete", name=name, user=user), token=token)
    if json:
        print_json(deleted)
    else:
        print_answer(f"branch {name!r} is deleted")
    return OK


def _say_diff(found: Any, limits: CommandLimits = DEFAULT_COMMAND_LIMITS) -> None:
    most = limits.listed_changes
    changes, collisions = found["changes"], found["collisions"]
    where = f"{count_noun(len(changes), 'change')} in {count_noun(found['documents'], 'document')}"
    print_answer(f"{found['branch']!r} against {found['parent']!r}: {where}")
    if changes:
        print_table(
            ("change", "address", "value"),
            [
                (
                    each["kind"],
                    each["address"],
                    "" if each["value"] is None else format_short(from_json_form(each["value"])),
                )
                for each in changes[:most]
            ],
        )
        _say_rest(found, len(changes) - most, "change")
    print_answer(*(f"collides: {each['says']}" for each in collisions[:most]))
    _say_rest(found, len(collisions) - most, "collision")


def _say_rest(found: Any, rest: int, noun: str) -> None:
    if rest > 0:
        print_answer(f"and {count_noun(rest, noun)} more: headwater branch diff ... {found['branch']} --json lists all")
