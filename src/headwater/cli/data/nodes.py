"""`headwater nodes` and `headwater backlog`: the last runs of nodes, whether their reads are current, and the cost by
piece.

A directory that a process serves is asked through that process; only owners of a space get an answer. The code of today
is not considered: `headwater preview` does that.
"""

from __future__ import annotations

from typing import Any

from headwater.cli.data.commands import Token, User, Where
from headwater.cli.data.target import ask
from headwater.cli.limits import DEFAULT_COMMAND_LIMITS, CommandLimits
from headwater.cli.output import OK, Json, SpaceName, count_noun, print_answer, print_json, print_table
from headwater.protocol.command_messages import CommandQuestion


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
    """Print the last runs of nodes, and whether their reads are still current: clean, dirty, failed or unknown.

    Nothing runs. For owners of the space: addresses reveal how a program is made.

    Example: `headwater nodes ./data shop --piece ann --limit 20`

    Example: `headwater nodes ./data shop --reads space:ann:lines`

    Parameters
    ----------
    piece
        Only nodes of this piece, with those of its children.
    generation
        Only nodes of this version of the class: the number that rises when a class does something else.
    member
        Only nodes of this member. The rows of an `each` are called `MEMBER row`.
    child
        Only nodes of this child, by its id. Empty: of the piece itself.
    reads
        Only nodes that read this document, an address like space:ann:lines.
    after
        Begin after this place, which the page before printed under `more`.
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
        print_answer(f"{space} has no stored run of such a node")
        return OK
    print_table(
        ("node", "kind", "generation", "state", "took", "changed", "verified", "because of"),
        [
            (
                each["node"],
                each["kind"],
                str(each["generation"]),
                _describe_state(each),
                format_duration(each["took_us"]),
                f"seq {each['changed_at']}" if each["changed_at"] else "",
                f"seq {each['verified_at']}",
                _list_causes(each),
            )
            for each in found["nodes"]
        ],
    )
    if found["next"] is not None:
        print_answer(f"more: --after {found['next']}")
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
    """Print the pieces whose nodes are not clean: how many, the time of their last runs, and the cause.

    Nothing runs. For owners of the space.

    Example: `headwater backlog ./data shop`

    Parameters
    ----------
    after
        Begin after this piece, which the page before printed under `more`.
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
        print_table(
            ("piece", "not clean", "nodes", "took", "written since"),
            [
                (
                    each["piece"],
                    str(each["dirty"]),
                    str(each["nodes"]),
                    format_duration(each["took_us"]),
                    _some(
                        [f"{cause['address']} at seq {cause['seq']}" for cause in each["causes"]]
                        + [f"unknown: read {space}" for space in each["unasked"]]
                    ),
                )
                for each in found["pieces"]
            ],
        )
        dirty, spent = (sum(each[name] for each in found["pieces"]) for name in ("dirty", "took_us"))
        pieces = count_noun(len(found["pieces"]), "piece")
        print_answer(f"{count_noun(dirty, 'node')} of {pieces} took {format_duration(spent)} in all")
    elif found["next"] is None:
        print_answer(f"every node of {space} that is known is clean")
    if found["next"] is not None:
        print_answer(f"more: --after {found['next']}")
    return OK


def _describe_state(each: Any) -> str:
    """Describe the state of a node, with the spaces that could not be asked about its reads."""
    unasked = ", ".join(each["unasked"])
    return f"unknown: read {unasked}" if unasked and each["state"] == "unknown" else str(each["state"])


def _list_causes(each: Any) -> list[str]:
    """List the writes since the last run, or else its cause."""
    if each["stale"]:
        return _some([f"{stale['address']} at seq {stale['seq']}" for stale in each["stale"]])
    return [] if each["cause"] is None else [each["cause"]]


def _some(lines: list[str], limits: CommandLimits = DEFAULT_COMMAND_LIMITS) -> list[str]:
    most = limits.listed_causes
    rest = len(lines) - most
    return lines if rest <= 0 else [*lines[:most], f"and {rest} more"]


def format_duration(us: int) -> str:
    """Format a duration with three digits."""
    if us < 1_000:
        return f"{us} us"
    return f"{us / 1e3:.1f} ms" if us < 1_000_000 else f"{us / 1e6:.1f} s"
