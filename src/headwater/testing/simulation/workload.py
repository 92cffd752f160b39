"""The work of simulated authors: random transactions, watches that come and go, and long pauses.

`Author` draws the work from one seeded source for each author. The functions before it make the transactions, one
function for each combination of reads and writes. Each transaction that writes a text writes a tag of its own, so that
the log shows which transactions were accepted, and how often. Nothing is checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from headwater.clock import Random, VirtualClock
from headwater.data.address import Depth, DocKey, Link
from headwater.data.patch import Patch, add, add_unique, append, increment, remove, remove_value, replace, splice
from headwater.data.value import ABSENT, MaybeValue, Value
from headwater.engine import ACCESS
from headwater.protocol.commit import EntityAbsent, OriginCommitted, SentEvent, TopicRecord
from headwater.protocol.messages import Query
from headwater.testing.simulation.attempts import CheckedTransaction, CheckedWhole
from headwater.testing.simulation.intents import MAX_ATTEMPTS, Work
from headwater.testing.simulation.oracle import links_in
from headwater.testing.simulation.process import ReplicaProcess

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
        last = process.replica.layers()
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
    """Read, and write the value read."""

    def work(t: CheckedTransaction) -> None:
        n = t.read(doc, ("n",))
        t.read(other)
        if isinstance(n, int):
            t.write(doc, replace(("n",), n))

    return work


def repeat(doc: DocKey, key: str, *, whole: bool) -> Work:
    """Write the shown value, without a read: it changes nothing here, and something where it lands if others wrote."""

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
    """Take a list away, or put it back: appends of others meanwhile fit here and do not fit there."""

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
    """Change a part of it, by a value of another document."""
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


KEYS: Final = ("a", "b", "c")
LONG_US: Final = (40_000_000, 3_600_000_000, 24 * 3_600_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much the authors of a simulation do, and which kinds of things."""

    steps: tuple[int, int] = (4, 14)  # per author
    documents: int = 4
    pause_us: tuple[int, int] = (0, 400_000)
    burst_share: float = 0.4  # of the steps follow at once
    silence_share: float = 0.03  # of the steps come after a long silence
    follow: bool = True
    let_go: bool = True
    queries: bool = True
    forbidden: bool = True
    access_share: float = 0.03  # of the steps change who has access, or try to
    forks: tuple[int, ...] = (0, 0, 0, 1, 2)  # how many branches are made


class Author:
    """Draws and starts the work of one replica."""

    __slots__ = ("_clock", "_draws", "_left", "_load", "_made", "_process", "_users")

    def __init__(
        self, process: ReplicaProcess, clock: VirtualClock, draws: Random, load: Load, users: Sequence[str]
    ) -> None:
        self._users = users
        self._process = process
        self._clock = clock
        self._draws = draws
        self._load = load
        self._left = draws.randint(*load.steps)
        self._made = 0

    def start(self) -> None:
        for doc in self._shared():
            if self._draws.random() < 0.6:
                self._process.watch(doc, follow=self._load.follow and self._draws.random() < 0.2)
        self._later()

    @property
    def is_done(self) -> bool:
        return self._left <= 0

    def stop(self) -> None:
        """Begin nothing more: the time is over."""
        self._left = 0

    def _later(self) -> None:
        draws, load = self._draws, self._load
        pause = 0 if draws.random() < load.burst_share else draws.randint(*load.pause_us)
        if draws.random() < load.silence_share:
            pause += draws.choice(LONG_US)
        self._clock.call_at(self._clock.now_us() + pause, self._step)

    def _step(self) -> None:
        if self._left > 0:
            self._left -= 1
            self._act()
            self._later()

    # ---- documents ---------------------------------------------------------------------------------

    def _shared(self) -> list[DocKey]:
        return [DocKey("space", f"d{number}") for number in range(self._load.documents)]

    def _doc(self) -> DocKey:
        """Mostly a shared one, and of those mostly the first: authors should meet."""
        drawn = self._draws.random()
        if drawn < 0.45:
            return DocKey("space", "d0")
        if drawn < 0.88:
            return self._draws.choice(self._shared())
        owner = f"user:{self._process.user}" if drawn < 0.95 else f"session:{self._process.session.key}"
        return DocKey(owner, "own")

    # ---- acts --------------------------------------------------------------------------------------

    def _act(self) -> None:
        draws, process, load = self._draws, self._process, self._load
        drawn = draws.random()
        if draws.random() < load.access_share:
            self._transact(self._access_work())
        elif drawn < 0.62:
            self._transact(self._work())
        elif drawn < 0.68:
            self._wave()
        elif drawn < 0.74:
            self._pass()
        elif drawn < 0.86:
            known = [doc for doc, follows in process.wants.wanted.items() if not follows]
            linked = [doc for doc in known if any(links_in(process.replica.snapshot().get(doc, ABSENT)))]
            doc = draws.choice(linked or known) if known and draws.random() < 0.7 else self._doc()
            process.watch(doc, follow=load.follow and draws.random() < 0.7)
        elif drawn < 0.93:
            doc = draws.choice(self._shared())
            if load.let_go and draws.random() < 0.5:
                process.let_go(doc)
            else:
                process.unwatch(doc)
        elif drawn < 0.95 and load.queries:
            at = draws.choice((None, process.replica.confirmed.seq))
            process.ask(Query(0, "space", draws.choice(("", "d0")), at=at))
        elif drawn < 0.96 and load.forbidden:
            foreign = DocKey(f"user:{draws.choice(self._users)}", "own")
            if foreign.scope == f"user:{process.user}":
                foreign = DocKey("session:somebody-else", "own")
            if draws.random() < 0.5:
                process.watch(foreign)
            else:
                process.ask(Query(0, foreign.scope, draws.choice(("", "own"))))
        elif drawn < 0.97:
            if draws.random() < 0.5:
                process.repeat()
            else:
                process.close()
        else:
            self._transact(self._work(), derived=draws.random() < 0.3)
            process.flush()

    def _transact(self, work: Callable[[str], Work], *, derived: bool = False) -> None:
        self._made += 1
        tag = f"{self._process.name}-{self._made}"
        retries = 0 if self._draws.random() < 0.1 else MAX_ATTEMPTS
        self._process.transact(tag, work(tag), derived=derived, retries=retries)

    def _wave(self) -> None:
        """Run computations of one pass: each reads the writes of the one before; one frame carries them."""
        docs = [self._doc() for _ in range(self._draws.randint(2, 4))]
        for source, target in pairwise(docs):
            self._transact(lambda tag, s=source, t=target: derive(s, t, tag), derived=True)  # type: ignore[misc]
        if self._draws.random() < 0.8:
            self._process.flush()

    def _pass(self) -> None:
        """Replace documents, each with a value that is made of another one."""
        docs = [self._doc() for _ in range(self._draws.randint(2, 4))]
        for source, target in pairwise(docs):
            self._replace(source, target)
        if self._draws.random() < 0.3:
            self._replace(docs[-1], docs[0])
        if self._draws.random() < 0.7:
            self._process.flush()

    def _replace(self, source: DocKey, target: DocKey) -> None:
        self._made += 1
        tag = f"{self._process.name}-{self._made}"
        work = self._draws.choice((made_of, made_of, changed_by, emptied_by))
        self._process.replace(tag, target, lambda seen: work(seen, source, target, tag))

    def _access_work(self) -> Callable[[str], Work]:
        """Let a user in or out; some of it is refused to everyone, and all of it to users who are not owners."""
        draws = self._draws
        user, role = draws.choice(self._users), draws.choice(("", "", "readers", "writers"))
        drawn = draws.random()
        if drawn < 0.1:
            return lambda tag: appoint(user, role, DocKey("space", "d0"))
        if drawn < 0.15:
            return lambda tag: blind_access(replace(("owners",), []))
        if drawn < 0.4:
            return lambda tag: blind_access(add_unique((role or "readers",), user))
        return lambda tag: appoint(user, role)

    def _work(self) -> Callable[[str], Work]:
        draws = self._draws
        doc, other, key = self._doc(), self._doc(), draws.choice(KEYS)
        pause = draws.choice((0, 0, 0, 2_000, 60_000, 500_000))
        drawn = draws.random()
        if drawn < 0.22:
            return lambda tag: count(doc, pause)
        if drawn < 0.34:
            return lambda tag: look_and_write(doc, other, key, pause, tag)
        if drawn < 0.44:
            return lambda tag: blind(doc, add(("m", key), tag))
        if drawn < 0.5:
            return lambda tag: blind(doc, increment(("n",), 1), append(("list",), [tag]))
        if drawn < 0.68:
            return lambda tag: blind(doc, draws.choice(intents(tag)))
        if drawn < 0.73:
            return lambda tag: delete(doc, key)
        if drawn < 0.84:
            name, also = draws.choice(("ref", "also")), self._doc()
            links = tuple(Link(None, to.scope, to.id) for to in (other, also, *self._shared()))
            many = draws.choice((1, 1, 2, len(links)))
            return lambda tag: blind(doc, add((name,), links[0] if many == 1 else links[:many]))
        if drawn < 0.88:
            return lambda tag: move(doc, other, tag)
        if drawn < 0.92:
            return lambda tag: conditional(doc, draws.choice((True, False)), self._process, tag)
        if drawn < 0.94:
            return lambda tag: look(doc, other)
        if drawn < 0.96:
            whole = draws.choice((True, False))
            return lambda tag: repeat(doc, key, whole=whole)
        if drawn < 0.98:
            return lambda tag: spoil(doc)
        return lambda tag: edit_list(doc, tag)
