"""The messages between a command and the process that serves a directory. JSON, one question per request.

A question that cannot be answered is answered with the error and its kind; the command prints it.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from headwater.data.address import SPACE_SCOPE
from headwater.errors import AuthoringError

__all__ = ["COMMAND_PATH", "CommandAnswer", "CommandName", "CommandQuestion", "is_address", "split_place"]

COMMAND_PATH: Final = "/v1/desk"
CommandName = Literal[
    "get",
    "set",
    "send",
    "log",
    "why",
    "graph",
    "spaces",
    "compact",
    "branch",
    "verify",
    "intents",
    "nodes",
    "backlog",
    "current",
    "reactions",
]


class CommandQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One question. `place` is `PIECE.MEMBER#/path` or an address; each command uses the other fields that it needs.

    An empty `space` means all spaces; `since` is the first seq to keep where history is compacted. For branches,
    `value` is the action: list, new, diff, merge or delete; for nodes, the selection of nodes; for reactions, an object
    with the action.
    """

    what: CommandName
    space: str
    place: str = ""
    value: Any = None
    user: str = ""
    since: int | None = None
    limit: int = 50
    branch: str | None = None
    at: int | None = None
    name: str = ""
    after: str = ""


class CommandAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer: a JSON document, or why there is none."""

    answer: Any = None
    error: str = ""
    kind: str = ""


def is_address(place: str) -> bool:
    """Return whether a place is written as an address, SCOPE:ID or SPACE/SCOPE:ID."""
    head, colon, _ = place.partition("#")[0].partition(":")
    return bool(colon) and head.rpartition("/")[2] in (SPACE_SCOPE, "user", "session")


def split_place(place: str) -> tuple[str, str, str, str]:
    """Split `[CLASS:]PIECE.MEMBER[#/path]` into class, piece, member and path."""
    names, _, pointer = place.partition("#")
    cls, colon, rest = names.rpartition(":")
    piece, dot, member = rest.rpartition(".")
    if not dot or not piece or not member:
        raise AuthoringError(f"{place!r} names no member: write PIECE.MEMBER, like ann.total, or ann.lines#/0/qty")
    return cls if colon else "", piece, member, pointer
