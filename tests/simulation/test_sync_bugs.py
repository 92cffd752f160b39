"""The simulation finds what it is for: each of these bugs, planted in the code that ships, within 2,000 histories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec
import pytest

from headwater.data.address import Depth
from headwater.engine import Engine, Hub, Peer
from headwater.engine.access import Access, Right
from headwater.engine.admission import Admission
from headwater.engine.group import Group
from headwater.engine.sessions import Sessions
from headwater.engine.store.port import Store
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.verify import numbers
from headwater.engine.watching import Watching
from headwater.errors import InvariantViolation
from headwater.protocol.commit import Commit, Read
from headwater.protocol.messages import DocChange, Transact, Watch
from headwater.protocol.verdict import Rejection
from headwater.replica import Layer, Replica, Session, Transaction
from headwater.replica import session as session_module
from headwater.replica.pending import Pending
from headwater.testing.sim_server import FILE, StoreOn, durable_store
from headwater.testing.simulation import RuleBroken, Simulation
from tests.counts import sampled

WITHIN = 2_000

Planted = Callable[[], AbstractContextManager[object]]


class Bug(NamedTuple):
    """A mistake somebody could make, and how to make it."""

    name: str
    plant: Planted
    store_on: StoreOn = durable_store


def found_after(bug: Bug, within: int = WITHIN) -> tuple[int, str]:
    """How many histories it took, and what was found."""
    with bug.plant():
        for seed in range(within):
            try:
                with Simulation(seed=seed, store_on=bug.store_on) as sim:
                    sim.play()
            except RuleBroken as broken:
                return seed + 1, str(broken)
            except InvariantViolation as violation:
                return seed + 1, f"InvariantViolation: {violation}"
    raise AssertionError(f"{bug.name} was not found in {within} histories")


# ---- the replica -----------------------------------------------------------------------------------


def skip_the_cascade() -> AbstractContextManager[object]:
    """A rejection kills the layer alone."""
    return patch.object(Layer, "stands", lambda self: False)


def name_only_the_top_layer() -> AbstractContextManager[object]:
    original = Transaction.reads

    def reads(self: Transaction) -> tuple[Read, ...]:
        tops = [(read, tuple((last, last) for _, last in read.layers[-1:])) for read in original(self)]
        return tuple(msgspec.structs.replace(read, layers=top) for read, top in tops)

    return patch.object(Transaction, "reads", reads)


def basis_of_the_commit() -> AbstractContextManager[object]:
    """The basis is where confirmed state is at the end of the transaction, not where it began."""
    original = Replica.commit

    def commit(self: Replica, transaction: Transaction, *settled: Any) -> Layer | Rejection | None:
        transaction.basis = self.confirmed.seq
        return original(self, transaction, *settled)

    return patch.object(Replica, "commit", commit)


def basis_of_the_top_layer() -> AbstractContextManager[object]:
    """A read that stands on layers says the seq of the newest of them that has one."""
    original = Transaction.reads

    def reads(self: Transaction) -> tuple[Read, ...]:
        pending = self.documents._home.pending
        found = []
        for read in original(self):
            layers = [pending.get(number) for number in numbers(read.layers)]
            top = max((layer.seq for layer in layers if layer is not None), default=0)
            found.append(msgspec.structs.replace(read, seq=max(read.seq, top)))
        return tuple(found)

    return patch.object(Transaction, "reads", reads)


def read_what_is_shown_now() -> AbstractContextManager[object]:
    """A transaction looks at the replica, not at its snapshot."""
    return patch.object(Transaction, "keep", lambda self, document: None)


def forget_shape_reads() -> AbstractContextManager[object]:
    original = Transaction.reads
    return patch.object(
        Transaction, "reads", lambda self: tuple(read for read in original(self) if read.depth is not Depth.SHAPE)
    )


def own_changes_twice() -> AbstractContextManager[object]:
    """An accepted layer stays on top of the confirmed state that includes it."""
    return patch.object(
        Pending, "covered", lambda self, seq: [layer for layer in self.live_layers.values() if 0 < layer.seq <= seq]
    )


def gap_keeps_values() -> AbstractContextManager[object]:
    return patch.object(Replica, "gap", lambda self: None)


def send_what_stands_on_the_dead() -> AbstractContextManager[object]:
    return patch.object(Transaction, "dead", lambda self: ())


def revert_nothing_unsent() -> AbstractContextManager[object]:
    return patch.object(Replica, "revert_unsent", lambda self: [])


def revert_in_silence() -> AbstractContextManager[object]:
    """A rejected commit is taken back, and the feed says nothing."""
    original = Replica._fall

    def fall(self: Replica, fallen: list[Layer]) -> None:
        with patch.object(type(self.feed), "emit", lambda feed, notification: None):
            original(self, fallen)

    return patch.object(Replica, "_fall", fall)


def settle_twice() -> AbstractContextManager[object]:
    """A verdict that is said again is heard again."""
    original = Replica.accepted

    def accepted(self: Replica, local_seq: int, seq: int) -> None:
        layer = self.pending.get(local_seq)
        kept = list(layer.settled or ()) if layer is not None else []
        original(self, local_seq, seq)
        if layer is not None and layer.seq > self.confirmed.seq:
            layer.settled, layer.seq = kept, 0

    return patch.object(Replica, "accepted", accepted)


# ---- the session -----------------------------------------------------------------------------------


def acknowledge_too_much() -> AbstractContextManager[object]:
    original = Session._releasable
    return patch.object(Session, "_releasable", lambda self: original(self) + 1)


def replay_nothing() -> AbstractContextManager[object]:
    return patch("headwater.replica.session.replayed", lambda layers: ())


def replay_under_new_names() -> AbstractContextManager[object]:
    """What was on the wire is made again as a new commit."""

    def replayed(layers: Iterable[Layer]) -> Iterator[Transact]:
        for layer in layers:
            yield Transact((layer.commit,))
            yield Transact((msgspec.structs.replace(layer.commit, local_seq=layer.local_seq + 1_000),))

    return patch("headwater.replica.session.replayed", replayed)


def thin_too_much() -> AbstractContextManager[object]:
    """A wave leaves out every read of a document that it writes somewhere."""

    def thinned(frame: list[Commit]) -> tuple[Commit, ...]:
        if len(frame) < 2:
            return tuple(frame)
        written = {operation.doc for commit in frame for operation in commit.operations}
        return tuple(
            msgspec.structs.replace(commit, reads=tuple(read for read in commit.reads if read.doc not in written))
            for commit in frame
        )

    return patch.object(session_module, "thinned", thinned)


def send_nothing() -> AbstractContextManager[object]:
    """Every commit is over as soon as it was made, as if there was nothing to tell."""

    def commit(self: Replica, transaction: Transaction, *settled: Any) -> None:
        layer = Layer(1, transaction.commit(1, "main"), {}, None, None)
        for callback in settled:
            callback(layer, None)

    return patch.object(Replica, "commit", commit)


def let_go_of_what_is_pending() -> AbstractContextManager[object]:
    return patch.object(Pending, "on", lambda self, doc: iter(()))


def keep_unheld_changes_quiet() -> AbstractContextManager[object]:
    """A change of a value that is not here is not told."""
    original = Replica._show
    return patch.object(
        Replica, "_show", lambda self, kind, docs, unheld=(), **options: original(self, kind, docs, **options)
    )


def forget_loads() -> AbstractContextManager[object]:
    """A document that was asked for when the connection broke is not asked for again."""
    original = Session._opened

    def opened(self: Session, message: Any) -> None:
        if message.resumed:
            self._watches._loading.clear()
        original(self, message)

    return patch.object(Session, "_opened", opened)


# ---- the hub ---------------------------------------------------------------------------------------


@contextmanager
def sync_before_verdict() -> Iterator[None]:
    """What happened is told first, and only then what became of the peer's own commits."""
    late: list[tuple[Peer, object]] = []
    answer, flush = Hub._answer, Hub.flush

    def answered(self: Hub, peer: Peer, frame: tuple[Commit, ...], outcome: Any) -> None:
        send = peer.send
        peer.send = lambda message: late.append((peer, message))
        answer(self, peer, frame, outcome)
        peer.send = send

    def flushed(self: Hub) -> None:
        flush(self)
        for peer, message in late:
            peer.send(message)  # type: ignore[arg-type]
        late.clear()

    with patch.object(Hub, "_answer", answered), patch.object(Hub, "flush", flushed):
        yield


def tell_nothing_that_landed() -> AbstractContextManager[object]:
    return patch.object(Engine, "landed", lambda self, session, local_seqs: ())


def resume_too_late() -> AbstractContextManager[object]:
    """Catching up begins one commit after the one that was missed."""
    original = Hub._take_over
    return patch.object(Hub, "_take_over", lambda self, peer, seen, *more: original(self, peer, seen + 1, *more))


def watch_without_flush() -> AbstractContextManager[object]:
    """The answer to a watch is newer than everything else that the replica has."""
    original, watch = Hub._flush, Hub._watch
    watching: list[bool] = []

    def watched(self: Hub, peer: Peer, message: Watch) -> None:
        watching.append(True)
        watch(self, peer, message)
        watching.pop()

    def flushed(self: Hub, peer: Peer, **options: Any) -> None:
        if not watching:
            original(self, peer, **options)

    @contextmanager
    def planted() -> Iterator[None]:
        with patch.object(Hub, "_watch", watched), patch.object(Hub, "_flush", flushed):
            yield

    return planted()


def drop_what_is_too_much() -> AbstractContextManager[object]:
    """A slow peer is spared the changes beyond its limit."""

    def note(self: Peer, change: DocChange) -> None:
        changes = self._changes.setdefault(change.doc, [])
        if len(changes) < self._limits.sync_patches:
            changes.append(change)

    return patch.object(Peer, "note", note)


def tell_a_seq_without_its_changes() -> AbstractContextManager[object]:
    """A group whose commit failed and landed all the same is passed over."""

    def catch_up(self: Hub) -> None:
        self._told = self._engine.last_seq

    return patch.object(Hub, "_catch_up", catch_up)


def follow_no_new_links() -> AbstractContextManager[object]:
    return patch.object(Watching, "refollow", lambda self, peer, changed: ({}, []))


def forget_keys_after_a_while() -> AbstractContextManager[object]:
    """A session that was away for 30 seconds is a new one, whatever it has on the wire."""
    expire, logged, place_of, begin = Hub.expire, Sessions.logged, Sessions.place_of, Hub.__init__
    forgotten: set[str] = set()

    def begun(self: Hub, *collaborators: Any, **options: Any) -> None:
        forgotten.clear()  # another history, or a restart
        begin(self, *collaborators, **options)

    def expired(self: Hub) -> None:
        now = self._clock.now_us()
        for key in [key for key, kept in self._kept.items() if kept.until_us <= now]:
            forgotten.add(key)
            session = self._engine.session(key)
            session.last = 0
            session.landed.clear()
        expire(self)

    def unless_forgotten(original: Any) -> Any:
        return lambda self, session, local_seq: None if session.key in forgotten else original(self, session, local_seq)

    @contextmanager
    def planted() -> Iterator[None]:
        with (
            patch.object(Hub, "__init__", begun),
            patch.object(Hub, "expire", expired),
            patch.object(Sessions, "logged", unless_forgotten(logged)),
            patch.object(Sessions, "place_of", unless_forgotten(place_of)),
        ):
            yield

    return planted()


# ---- the engine ------------------------------------------------------------------------------------


def unsynced_store(vfs: str) -> Store:
    return SqliteStore(FILE, vfs=vfs, synchronous="OFF")


def lazily_synced_store(vfs: str) -> Store:
    return SqliteStore(FILE, vfs=vfs, synchronous="NORMAL")


def drop_the_duplicate_check() -> AbstractContextManager[object]:
    return patch.object(Group, "_replayed", lambda self, session, frame: [])


def accept_any_token() -> AbstractContextManager[object]:
    def take_over(self: Sessions, session: Any, resume: str, following: str) -> None:
        session.row = session.row._replace(resume=following)
        self._store.put_session(session.row)

    return patch.object(Sessions, "take_over", take_over)


def admit_over_dead_layers() -> AbstractContextManager[object]:
    return patch.object(Admission, "_dead_layers", lambda self, *args: [])


def leave_out_all_own_writes() -> AbstractContextManager[object]:
    """A read that stands on layers leaves out every commit of its session, not only those it names."""

    def latest(self: Admission, session: Any, branch: Any, head: Any, read: Read) -> tuple[int, bool]:
        return self._latest(branch, head, read, session.id), False

    return patch.object(Admission, "_latest_beside_layers", latest)


def believe_a_failed_commit() -> AbstractContextManager[object]:
    """After a failed COMMIT the documents in memory are kept, although the disk may not have them."""

    def recover(self: Engine, error: BaseException, **options: Any) -> None:
        self._store.rollback()
        self._parts.log.reload()

    return patch.object(Engine, "_recover", recover)


def everybody_may_see() -> AbstractContextManager[object]:
    return patch.object(Access, "may_see", lambda self, *args: True)


def everybody_may_write() -> AbstractContextManager[object]:
    return patch.object(Access, "right_of", lambda self, principal: Right.OWN)


LISTED = [
    Bug("skip the cascade", skip_the_cascade),
    Bug("name only the top layer", name_only_the_top_layer),
    Bug("forget the basis: that of the commit", basis_of_the_commit),
    Bug("forget the basis: the top layer's", basis_of_the_top_layer),
    Bug("answer before fsync", nullcontext, unsynced_store),
    Bug("drop the duplicate check", drop_the_duplicate_check),
    Bug("forget a session's keys after 30 s", forget_keys_after_a_while),
]
OTHERS = [
    Bug("sync only at checkpoints", nullcontext, lazily_synced_store),
    *(
        Bug(plant.__name__.replace("_", " "), plant)
        for plant in (
            read_what_is_shown_now,
            forget_shape_reads,
            own_changes_twice,
            gap_keeps_values,
            send_what_stands_on_the_dead,
            revert_nothing_unsent,
            revert_in_silence,
            settle_twice,
            acknowledge_too_much,
            replay_nothing,
            replay_under_new_names,
            thin_too_much,
            send_nothing,
            let_go_of_what_is_pending,
            keep_unheld_changes_quiet,
            forget_loads,
            sync_before_verdict,
            tell_nothing_that_landed,
            resume_too_late,
            watch_without_flush,
            drop_what_is_too_much,
            tell_a_seq_without_its_changes,
            follow_no_new_links,
            accept_any_token,
            admit_over_dead_layers,
            leave_out_all_own_writes,
            believe_a_failed_commit,
            everybody_may_see,
            everybody_may_write,
        )
    ),
]


def _named(bugs: Iterable[Bug]) -> list[object]:
    return [pytest.param(bug, id=bug.name) for bug in bugs]


@pytest.mark.random
@pytest.mark.parametrize("bug", _named(LISTED))
def test_a_planted_bug_is_found(bug: Bug) -> None:
    seeds, finding = found_after(bug)
    print(f"{bug.name}: found in history {seeds}: {finding[:200]}")


@pytest.mark.random
@pytest.mark.parametrize("bug", sampled(_named(OTHERS)))
def test_another_planted_bug_is_found(bug: Bug) -> None:
    seeds, finding = found_after(bug)
    print(f"{bug.name}: found in history {seeds}: {finding[:200]}")
