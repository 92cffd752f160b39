"""What travels between a runtime and the engine in the model of the derived tier."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from model.derived.graph import Value

Id = tuple[int, int]
"""A commit: its runtime and a number that no other commit of that runtime has."""

Key = tuple[int, str]
"""An entry: the number of its message, and its node."""

Cause = tuple[str, int]
"""A document, and the number of its change."""


class Fate(IntEnum):
    """The engine's judgement of one entry."""

    ACCEPTED = 0
    SUPERSEDED = 1
    REFUSED = 2


class Read(NamedTuple):
    """A document at a basis under layers of the own session; or, if `entry` is given, that entry of the own session."""

    document: str
    basis: int
    layers: frozenset[Id]
    entry: Key | None = None


class Commit(NamedTuple):
    """An authored commit. The last two are not sent: the values that its handler read, for the checker."""

    id: Id
    reads: tuple[Read, ...]
    writes: tuple[tuple[str, Value], ...]
    saw: tuple[tuple[str, Value], ...] = ()
    stored: frozenset[str] = frozenset()  # of these, and of their inputs, the ones read from the confirmed state


class WaveEntry(NamedTuple):
    """A result in a wave. `version`, `value` and `owed` are for the checker where a difference is sent."""

    node: str
    version: int
    value: Value
    base: Value  # with a base, the value is sent as a difference to it
    reads: tuple[Read, ...]
    causes: frozenset[Cause]
    hops: int
    owed: frozenset[Cause]


class Message(NamedTuple):
    """One flush: authored commits, and the wave derived from them."""

    session: int
    number: int
    commits: tuple[Commit, ...]
    entries: tuple[WaveEntry, ...]


class Verdict(NamedTuple):
    """The answer to a message: a seq or 0 for each commit, a fate for each entry, and as of when they were judged."""

    number: int
    commits: tuple[int, ...]
    fates: tuple[Fate, ...]
    wave: int  # the seq of the accepted entries
    judged: int


class Origin(NamedTuple):
    """The writer of a document's confirmed value, with the observation that came with a derived one."""

    session: int
    seq: int
    fingerprint: str = ""  # of a derived value
    reads: frozenset[str] = frozenset()
    hops: int = 0


class Sync(NamedTuple):
    """Net differences of the confirmed state up to `seq`, and which documents were written on the way."""

    seq: int
    values: tuple[tuple[str, Value], ...]
    origins: tuple[tuple[str, Origin], ...]
    written: tuple[tuple[str, int], ...]
    fetched: frozenset[str]  # documents that were set aside and asked for again
