"""Advice after a conflict: the read that was too wide, and the narrower read that would not have collided.

A commit that read all of a document and wrote one part of it loses against a commit that wrote another part. The change
of the winner is determined once it has arrived, by comparing the value that was read with the current one. The advice
influences no decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headwater.data.address import Depth, DocKey
from headwater.data.path import Path, starts_with
from headwater.data.value import ABSENT, MaybeValue, equal, lookup
from headwater.replica.document import NOT_HERE

if TYPE_CHECKING:
    from headwater.replica.transaction import Transaction
    from headwater.runtime.events.event import Event

MOST_KEYS: Final = 1_000
"""Keys of one container that are compared."""


class Seen:
    """What one commit had read deeply and what it wrote, by document."""

    __slots__ = ("read", "written")

    def __init__(self, read: dict[tuple[DocKey, Path], MaybeValue], written: dict[DocKey, list[Path]]) -> None:
        self.read = read
        self.written = written


def noted(transaction: Transaction) -> Seen:
    """What a transaction stands on and writes. Values are never changed, so that keeping them costs nothing."""
    read: dict[tuple[DocKey, Path], MaybeValue] = {}
    for doc, path, depth in transaction.read_set():
        document = transaction.documents.get(doc)
        if depth is Depth.DEEP and document is not None and document.confirmed is not NOT_HERE:
            read[doc, path] = lookup(document.confirmed, path)
    written: dict[DocKey, list[Path]] = {}
    for doc, path in transaction.attempted:
        written.setdefault(doc, []).append(path)
    return Seen(read, written)


def advice(event: Event) -> str:
    """What to write so that the last conflict of an event would not have been one. Empty: nothing is known."""
    seen, last = event.seen, event.write.last
    if seen is None or last is None:
        return event.advice
    documents = event.instance.space.replica.documents
    for collision in last.collisions:
        was = seen.read.get((collision.doc, collision.path), ABSENT)
        document = documents.get(collision.doc)
        if document is None or document.confirmed is NOT_HERE or not isinstance(was, Mapping):
            continue
        now = lookup(document.confirmed, collision.path)
        changed = _changed(was, now)
        own = {
            path[len(collision.path)]
            for path in seen.written.get(collision.doc, ())
            if starts_with(path, collision.path) and len(path) > len(collision.path)
        }
        if changed:
            return _narrower(_read(collision.doc, collision.path), own, changed)
    for collision in last.collisions:
        if any(starts_with(path, collision.path) for path in seen.written.get(collision.doc, ())):
            what = _read(collision.doc, collision.path)
            return f"{what} was read and written: an intent (push, add, increment) reads nothing, and cannot collide"
    return event.advice


def _narrower(what: str, own: set[str | int], changed: set[str | int]) -> str:
    """What would not have collided with a change of some keys."""
    if own & changed:
        return f"both wrote {_keys(own & changed)} of {what}: an intent (push, increment) would not have collided"
    widened = f"all of {what} was read, and only {_keys(changed)} changed"
    if own:
        return f"{widened}: read {_narrow(own)} instead of .get()"
    return f"{widened}: read what you need of it with .key(...) or .at(...), instead of .get()"


def _changed(was: Mapping[str, Any], now: MaybeValue) -> set[str | int]:
    if not isinstance(now, Mapping) or len(was) > MOST_KEYS or len(now) > MOST_KEYS:
        return set()
    return {key for key in {*was, *now} if not equal(was.get(key, ABSENT), now.get(key, ABSENT))}


def _read(doc: DocKey, path: Path) -> str:
    return f"{doc.id}{''.join(f'/{step}' for step in path)}"


def _keys(keys: Iterable[str | int]) -> str:
    return ", ".join(repr(key) for key in sorted(keys, key=str)[:3])


def _narrow(keys: Iterable[str | int]) -> str:
    return " and ".join(f".key({key!r})" for key in sorted(keys, key=str)[:3])
