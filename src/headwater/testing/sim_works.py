"""The transactions of simulated authors, one function for each shape: what is read at which depth, and what is written.

Owns the bodies; which of them is run when is `sim_workload`'s choice. Every one that writes a text writes its own tag,
so that what is shown tells where it came from. Decides nothing about right or wrong.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from headwater.data.address import Depth, DocKey
from headwater.data.patch import Patch, add, add_unique, append, increment, remove, remove_value, replace, splice
from headwater.data.value import ABSENT, MaybeValue, Value
from headwater.engine import ACCESS
from headwater.protocol.commit import EntityAbsent, OriginCommitted, SentEvent, TopicRecord
from headwater.testing.sim_attempts import CheckedTransaction, CheckedWhole
from headwater.testing.sim_intents import Work
from headwater.testing.sim_process import ReplicaProcess

EMPTY: Final = {"n": 0, "m": {}, "list": [], "set": []}


def ensure(t: CheckedTransaction, doc: DocKey) -> None:
    """Make the document if it is not there, which is a read of whether it is."""
    if t.read(doc, (), Depth.SHAPE) is ABSENT:
        t.write(doc, replace((), EMPTY))


def number(value: MaybeValue) -> int:
    return value if isinstance(value, int) else 0


def count(doc: DocKey, pause_us: int) -> Work:
    """Read, think, write one more."""

    def work(t: CheckedTransaction) -> Generator[int, None, None]:
        ensure(t, doc)
        n = number(t.read(doc, ("n",)))
        if pause_us:
            yield pause_us
        t.write(doc, add(("n",), n + 1))

    return work


def look_and_write(doc: DocKey, other: DocKey, key: str, pause_us: int, tag: str) -> Work:
    """Reads of several depths in two documents, some of them later than others."""

    def work(t: CheckedTransaction) -> Generator[int, None, None]:
        t.read(other, ("m",), Depth.SHAPE)
        seen = t.read(other, ("n",))
        if pause_us:
            yield pause_us
        first = t.read(other, ("list", 0))
        last = t.read(other, ("list",)) if first is ABSENT or key == "a" else ()
        ensure(t, doc)
        length = len(last) if isinstance(last, tuple) else 0
        t.write(doc, add(("m", key), {"by": tag, "n": number(seen), "of": length}))

    return work


def blind(doc: DocKey, *patches: Patch) -> Work:
    """Writes without a look. Where there is nothing yet, it looks and makes the document."""

    def work(t: CheckedTransaction) -> None:
        if t.transaction.peek(doc) is ABSENT:
            ensure(t, doc)
        t.write(doc, *patches)

    return work


def intents(tag: str) -> list[Patch]:
    return [
        append(("list",), [tag]),
        append(("list",), [tag], keep=5),
        increment(("n",), 1),
        increment(("n",), 1),
        add_unique(("set",), tag),
        add_unique(("set",), "common"),
        remove_value(("set",), "common"),
    ]


def appoint(user: str, role: str, beside: DocKey | None = None) -> Work:
    """Give a user one role, or none; beside something else it is refused."""

    def work(t: CheckedTransaction) -> None:
        document = t.read(ACCESS)
        if isinstance(document, dict):
            roles = {name: [other for other in listed(document.get(name)) if other != user] for name in document}
            if role:
                roles[role] = [*roles.get(role, ()), user]
            t.write(ACCESS, replace((), roles))
        if beside is not None:
            ensure(t, beside)
            t.write(beside, increment(("n",), 1))

    return work


def listed(names: MaybeValue) -> tuple[Value, ...]:
    return names if isinstance(names, tuple) else ()


def blind_access(patch: Patch) -> Work:
    def work(t: CheckedTransaction) -> None:
        t.write(ACCESS, patch)

    return work


def derive(source: DocKey, target: DocKey, tag: str) -> Work:
    def work(t: CheckedTransaction) -> None:
        n = number(t.read(source, ("n",)))
        m = t.read(source, ("m",))
        ensure(t, target)
        t.write(target, add(("m", "sum"), n + (len(m) if isinstance(m, dict) else 0)))
        t.write(target, add(("m", "by"), tag))

    return work


def delete(doc: DocKey, key: str) -> Work:
    def work(t: CheckedTransaction) -> None:
        m = t.read(doc, ("m",), Depth.SHAPE)
        if isinstance(m, dict) and key in m:
            t.write(doc, remove(("m", key)))
        elif t.read(doc, (), Depth.SHAPE) is not ABSENT:
            t.write(doc, remove(()))

    return work


def move(doc: DocKey, other: DocKey, tag: str) -> Work:
    """Two documents in one commit: all of it or nothing (C7)."""

    def work(t: CheckedTransaction) -> None:
        ensure(t, doc)
        n = number(t.read(doc, ("n",)))
        t.write(doc, add(("n",), n - 1))
        if other != doc:
            ensure(t, other)
            t.write(other, increment(("n",), 1), append(("list",), [tag]))

    return work


def conditional(doc: DocKey, on_origin: bool, process: ReplicaProcess, tag: str) -> Work:
    """A commit with a precondition, an event and a record."""

    def work(t: CheckedTransaction) -> None:
        last = process.replica.pending.live()
        if on_origin and last:
            t.transaction.preconditions.append(OriginCommitted(last[-1].local_seq))
        else:
            t.transaction.preconditions.append(EntityAbsent(doc))
        if t.transaction.peek(doc) is ABSENT:
            t.write(doc, replace((), EMPTY))
        t.transaction.events.append(SentEvent(f"event-{tag}", "stream", tag))
        t.transaction.records.append(TopicRecord("topic", "key", tag))

    return work


def look(doc: DocKey, other: DocKey) -> Work:
    """Looks, and writes what is there."""

    def work(t: CheckedTransaction) -> None:
        n = t.read(doc, ("n",))
        t.read(other)
        if isinstance(n, int):
            t.write(doc, replace(("n",), n))

    return work


def repeat(doc: DocKey, key: str, *, whole: bool) -> Work:
    """Write what is shown, without a look: it changes nothing here, and something where it lands if others wrote."""

    def work(t: CheckedTransaction) -> None:
        shown = t.transaction.peek(doc)
        if not isinstance(shown, dict):
            ensure(t, doc)
            return
        n, items, m = shown.get("n"), shown.get("set"), shown.get("m")
        t.write(doc, replace(("n",), n) if isinstance(n, int) else add(("n",), 0))
        if whole and isinstance(m, dict) and key in m:
            t.write(doc, replace(("m", key), m[key]))
        elif whole and isinstance(items, tuple):
            t.write(doc, add_unique(("set",), items[0]) if items else remove_value(("set",), "common"))

    return work


def spoil(doc: DocKey) -> Work:
    """Take a list away, or put it back: what others append meanwhile fits here and does not fit there."""

    def work(t: CheckedTransaction) -> None:
        ensure(t, doc)
        t.write(doc, add(("list",), [] if isinstance(t.read(doc, ("list",), Depth.SHAPE), int) else 0))

    return work


def edit_list(doc: DocKey, tag: str) -> Work:
    def work(t: CheckedTransaction) -> None:
        ensure(t, doc)
        items = t.read(doc, ("list",))
        if isinstance(items, tuple) and len(items) > 1:
            t.read(doc, ("list", 0))
            t.write(doc, splice(("list",), 1, 1, [tag]))
        else:
            t.write(doc, append(("list",), [tag, tag]))

    return work


# ---- documents that are replaced -------------------------------------------------------------------


def made_of(seen: CheckedWhole, source: DocKey, target: DocKey, tag: str) -> MaybeValue:
    """All of it is made of another document."""
    n, m = seen.read(source, ("n",)), seen.read(source, ("m",), Depth.SHAPE)
    return {"n": number(n) + 1, "m": {"by": tag, "of": len(m) if isinstance(m, dict) else 0}, "list": (), "set": ()}


def changed_by(seen: CheckedWhole, source: DocKey, target: DocKey, tag: str) -> MaybeValue:
    """Some of it is changed, by what another document has."""
    n, before = seen.read(source, ("n",)), seen.read(target)
    if not isinstance(before, dict):
        return made_of(seen, source, target, tag)
    items = before.get("list", ())
    return {**before, "n": number(n) + 1, "list": (*(items if isinstance(items, tuple) else ())[-3:], tag)}


def emptied_by(seen: CheckedWhole, source: DocKey, target: DocKey, tag: str) -> MaybeValue:
    """It is there if another document is."""
    if seen.read(source, (), Depth.SHAPE) is ABSENT:
        return ABSENT
    return {"n": 0, "m": {}, "list": (tag,), "set": ()}
