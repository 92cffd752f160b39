"""CommandName a command asks the process that serves a directory, and what it is told. JSON, one question a request.

A question that cannot be answered is told why, and of which kind that is; everything else is the caller's to show.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

__all__ = ["COMMAND_PATH", "CommandAnswer", "CommandName", "CommandQuestion"]

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
    """One question. `place` is `PIECE.MEMBER#/path` or an address; the rest counts where it makes sense.

    `space` is empty where all of them are meant; `since` is the first seq to keep where history is given up. Of
    branches, `value` says what is done: list, new, diff, merge or delete; of nodes, which ones are meant; of
    reactions, it is an object that says what is done.
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
