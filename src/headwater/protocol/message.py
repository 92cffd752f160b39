"""The base of all messages of the protocol."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headwater.data.value import MAX_INT

Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT)]
"""Seqs, local_seqs, ids and times: nothing outside is any of these."""


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of all messages: positional, frozen, nothing unknown."""
