"""`headwater nodes` and `headwater backlog`: what nodes last did, whether it still holds, and what that costs by piece.

Owns what is printed of them. A directory that somebody serves is asked through that process, as by the other commands;
only owners of a space are answered. What the code is today is not looked at: `headwater preview` does that.
"""

from __future__ import annotations

from typing import Any, Final

from headwater.cli.data.commands import Token, User, Where
from headwater.cli.data.target import ask
from headwater.cli.output import OK, Json, SpaceName, counted, print_json, say, table
from headwater.protocol.command_messages import CommandQuestion

SHOWN: Final = 3
"""Addresses of a node, or of a piece, that are shown to people."""


def nodes(
    where: Where,
    space: SpaceName,
    /,
    *,
    piece: str = "",
    generation: int | None = None,
    member: str = "",
    child: str | None = None,
    reads: str = "",
    after: str = "",
    limit: int = 50,
    branch: str | None = None,
    user: User = "",
    token: Token = "",
    json: Json = False,
) -> int:
    """What nodes last did, and whether what they read still holds: clean, dirty, failed or unknown.

    Nothing runs. For owners of the space: addresses reveal how a program is made.

    Example: `headwater nodes ./data shop --piece ann --limit 20`

    Example: `headwater nodes ./data shop --reads space:ann:lines`

    Parameters
    ----------
    piece
        Only nodes of this piece, with those of its children.
    generation
        Only what this version of the class did: the number that rises when a class does something else.
    member
        Only nodes of this member. The rows of an `each` are called `MEMBER row`.
    child
        Only nodes of this child, by its id. Empty: of the piece itself.
    reads
        Only nodes that read this document, an address like space:ann:lines.
    after
        Begin after this place: what the page before said under `more`.
    limit
        At most this many nodes.
    branch
        The branch to look at. Without it: main.
    """
    chosen = {"piece": piece, "generation": generation, "member": member, "child": child, "reads": reads}
    asked = CommandQuestion("nodes", space, value=chosen, after=after, limit=limit, branch=branch, user=user)
    found = ask(where, asked, token=token)
    if json:
        print_json(found)
        return OK
    if not found["nodes"] and found["next"] is None:
        say(f"nothing is known of such nodes in {space}")
        return OK
    table(
        ("node", "kind", "generation", "state", "took", "changed", "verified", "because of"),
        [
            (
                each["node"],
                each["kind"],
                str(each["generation"]),
                _state(each),
                took(each["took_us"]),
                f"seq {each['changed_at']}" if each["changed_at"] else "",
                f"seq {each['verified_at']}",
                _because(each),
            )
            for each in found["nodes"]
        ],
    )
    if found["next"] is not None:
        say(f"more: --after {found['next']}")
    return OK


def backlog(
    where: Where,
    space: SpaceName,
    /,
    *,
    after: str = "",
    limit: int = 50,
    branch: str | None = None,
    user: User = "",
    token: Token = "",
    json: Json = False,
) -> int:
    """The pieces whose nodes are not clean: how many, what they took when they last ran, and because of what.

    Nothing runs. For owners of the space.

    Example: `headwater backlog ./data shop`

    Parameters
    ----------
    after
        Begin after this piece: what the page before said under `more`.
    limit
        Look through at most this many pieces.
    branch
        The branch to look at. Without it: main.
    """
    found = ask(
        where, CommandQuestion("backlog", space, after=after, limit=limit, branch=branch, user=user), token=token
    )
    if json:
        print_json(found)
        return OK
    if found["pieces"]:
        table(
            ("piece", "not clean", "nodes", "took", "written since"),
            [
                (
                    each["piece"],
                    str(each["dirty"]),
                    str(each["nodes"]),
                    took(each["took_us"]),
                    _some(
                        [f"{cause['address']} at seq {cause['seq']}" for cause in each["causes"]]
                        + [f"unknown: read {space}" for space in each["unasked"]]
                    ),
                )
                for each in found["pieces"]
            ],
        )
        dirty, spent = (sum(each[name] for each in found["pieces"]) for name in ("dirty", "took_us"))
        say(f"{counted(dirty, 'node')} of {counted(len(found['pieces']), 'piece')} took {took(spent)} in all")
    elif found["next"] is None:
        say(f"every node of {space} that is known is clean")
    if found["next"] is not None:
        say(f"more: --after {found['next']}")
    return OK


def _state(each: Any) -> str:
    """With the spaces that it read, and that nobody here could ask whether that holds."""
    unasked = ", ".join(each["unasked"])
    return f"unknown: read {unasked}" if unasked and each["state"] == "unknown" else str(each["state"])


def _because(each: Any) -> list[str]:
    """What was written since, or else what made it run."""
    if each["stale"]:
        return _some([f"{stale['address']} at seq {stale['seq']}" for stale in each["stale"]])
    return [] if each["cause"] is None else [each["cause"]]


def _some(lines: list[str]) -> list[str]:
    rest = len(lines) - SHOWN
    return lines if rest <= 0 else [*lines[:SHOWN], f"and {rest} more"]


def took(us: int) -> str:
    """A duration that can be taken in at a glance."""
    if us < 1_000:
        return f"{us} us"
    return f"{us / 1e3:.1f} ms" if us < 1_000_000 else f"{us / 1e6:.1f} s"
