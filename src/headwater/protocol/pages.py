"""The messages between a page in a browser and the process that serves it. JSON, one object per message.

A page has no replica: it looks at members of pieces, sends events and writes a person's input. Every message is
answered, by the number that the page gave it. docs/PROTOCOL.md says when which is sent.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

__all__ = [
    "Done",
    "Enter",
    "Entered",
    "FromPage",
    "Look",
    "LookAway",
    "Made",
    "PageWrite",
    "Place",
    "RequestFailed",
    "RequestRefused",
    "Send",
    "Shown",
    "ToPage",
    "number_of",
    "page_decoder",
    "page_encoder",
]

PAGE_VERSION: Final = 1
_NULL: Final = msgspec.Raw(b"null")
_TOKENS: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)  # A string without an end goes to the end.
_NUMBER: Final = re.compile(r"\s*:\s*([1-9][0-9]{0,15})\s*[,}]")


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member of a piece, by the name of the piece or, for a child, by its id."""

    space: str
    cls: str
    member: str
    name: str = ""
    id: str = ""
    path: tuple[str | int, ...] = ()


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    pass


class Enter(_Message, frozen=True, tag="enter"):
    """The first message: who this is, and the session it goes on with after a lost connection."""

    version: int
    token: str = ""
    session: str = ""
    user: str = ""


class Look(_Message, frozen=True, tag="look"):
    """Show the value of a member, now and whenever it changes, but not for changes of the page's own group.

    While it is unavailable, `RequestFailed` is sent, and also when the page may not see it any more, which ends the
    look.
    """

    id: int
    place: Place
    group: str | None = None


class LookAway(_Message, frozen=True, tag="look_away"):
    """Stop showing it."""

    id: int


class Send(_Message, frozen=True, tag="send"):
    """Have an event handled. The same `key` after a lost connection is the same event.

    Its arguments are checked by the handler that they are for, so that wrong ones fail that call and no other.
    """

    id: int
    place: Place
    args: msgspec.Raw = _NULL
    key: str = ""


class PageWrite(_Message, frozen=True, tag="write"):
    """A person's input: `set`, or an intent, at a cell. The same `key` after a lost connection is the same write."""

    id: int
    place: Place
    kind: str
    value: msgspec.Raw = _NULL
    group: str | None = None
    key: str = ""


FromPage = Enter | Look | LookAway | Send | PageWrite


class Entered(_Message, frozen=True, tag="entered"):
    """Who the page is for, the session to go on with, and how many bytes a message of the page may have."""

    user: str
    session: str
    most_bytes: int


class Shown(_Message, frozen=True, tag="shown"):
    """The value of a member now. Without `there` nothing is there."""

    id: int
    there: bool
    value: Any = None


class Made(_Message, frozen=True, tag="made"):
    """A write is shown from here on. It is not durable yet, and is made again if its commit is rejected."""

    id: int


class Done(_Message, frozen=True, tag="done"):
    """It is durable."""

    id: int
    value: Any = None


class RequestRefused(_Message, frozen=True, tag="refused"):
    """A handler said no."""

    id: int
    reason: str


class RequestFailed(_Message, frozen=True, tag="failed"):
    """It could not be done; 0: the page broke the protocol, and the connection ends."""

    id: int
    error: str


ToPage = Entered | Shown | Made | Done | RequestRefused | RequestFailed


def number_of(text: str) -> int | None:
    """The number of a call that no decoder understands, so that the call can be answered. None: it has none.

    Finds the field `id` of the outermost object in text that may be nested too deeply, hold half a character or be
    no JSON at all, in a time that is linear in its length.
    """
    depth = 0
    for token in _TOKENS.finditer(text):
        match token[0]:
            case "{" | "[":
                depth += 1
            case "}" | "]":
                depth -= 1
            case '"id"' if depth == 1:
                found = _NUMBER.match(text, token.end())
                if found is not None:
                    return int(found[1])
    return None


def page_decoder() -> msgspec.json.Decoder[FromPage]:
    return msgspec.json.Decoder(FromPage)


def page_encoder() -> msgspec.json.Encoder:
    return msgspec.json.Encoder()
