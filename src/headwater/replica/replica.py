"""The replica: what one process shows of a space. Confirmed state, pending commits on top, and the feed.

A local commit applies at once and is heard synchronously; its verdict confirms or reverts it later. Everything
here happens on one thread, and every change of what is shown leaves through the feed (C9). The conversation with
the engine is `session.Session`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from immutables import Map

from headwater.data.address import Depth, DocKey
from headwater.data.patch import PatchError, Touch, apply
from headwater.data.value import ABSENT, MaybeValue, equal
from headwater.errors import AuthoringError, InvariantViolation
from headwater.protocol.commit import MAIN
from headwater.protocol.messages import State, Sync
from headwater.protocol.verdict import Collision, Conflict, Rejection
from headwater.replica.confirmed import Confirmed
from headwater.replica.feed import Changed, Feed, Kind, Notification
from headwater.replica.pending import Fate, Layer, Pending, Settled
from headwater.replica.transaction import Transaction


class Replica:
    """The documents of one space and branch, as this process shows them."""

    __slots__ = (
        "_next_local_seq",
        "_stale",
        "_visible",
        "branch",
        "confirmed",
        "feed",
        "on_error",
        "on_layer",
        "pending",
    )

    def __init__(self, *, branch: str = MAIN, next_local_seq: int = 1) -> None:
        self.branch = branch
        self.confirmed = Confirmed()
        self.pending = Pending()
        self.feed = Feed()
        self.on_layer: Callable[[Layer], object] = _nobody
        self.on_error: Callable[[Exception], object] = _raised
        self._visible: Map[DocKey, MaybeValue] = Map()
        self._stale: dict[DocKey, MaybeValue] = {}  # shown before a gap, and not read again since
        self._next_local_seq = next_local_seq

    # ---- looking -----------------------------------------------------------------------------------

    def is_here(self, doc: DocKey) -> bool:
        return doc in self._visible

    def skip_to(self, local_seq: int) -> None:
        """Never number a commit below this: the engine has judged commits of this session up to there."""
        self._next_local_seq = max(self._next_local_seq, local_seq)

    def visible(self, doc: DocKey) -> MaybeValue:
        """The document as it is shown now; KeyError if it is not here."""
        return self._visible[doc]

    def snapshot(self) -> Map[DocKey, MaybeValue]:
        return self._visible

    # ---- transactions ------------------------------------------------------------------------------

    def begin(
        self, *, source: object | None = None, group: object | None = None, node: str = "", derived: bool = False
    ) -> Transaction:
        """C8: one snapshot, however long the transaction lasts and whatever arrives meanwhile."""
        # C8: the map is persistent: holding on to it costs nothing, and nothing that comes changes it.
        return Transaction(
            self._visible,
            self.confirmed.seq,
            self.pending.live(),
            source=source,
            group=group,
            node=node,
            derived=derived,
        )

    def commit(self, transaction: Transaction, *settled: Settled) -> Layer | Rejection | None:
        """Apply a transaction and queue it for the engine. None: there was nothing to tell.

        A rejection: it was refused here, because what it stood on is gone (C4). Each `settled` is called exactly
        once, whatever happens, with the layer and the rejection if there is one.
        """
        if transaction.finished:
            raise AuthoringError("this transaction was committed or dropped before")
        transaction.finished = True
        local_seq = self._next_local_seq
        commit = transaction.commit(local_seq, self.branch)
        layer = Layer(commit, {}, transaction.source, transaction.group)
        told = commit.operations or commit.preconditions or commit.events or commit.records
        if not (told or transaction.leans):
            self._settle(layer, settled, None)
            self.report()
            return None
        values: dict[DocKey, MaybeValue] = {}
        refusal = self._refusal(transaction, layer) or self._applied(layer, values)
        if refusal is not None:
            layer.fate, layer.rejection = Fate.DEAD, refusal
            self._settle(layer, settled, refusal)
            self.report()
            return refusal
        self._next_local_seq = local_seq + 1
        transaction.local_seq = local_seq
        layer.settled.extend(settled)
        self.pending.push(layer)
        self.on_layer(layer)
        self._show(Kind.COMMIT, layer.touched, made=values, source=layer.source, group=layer.group)
        self.report()
        return layer

    def _refusal(self, transaction: Transaction, layer: Layer) -> Rejection | None:
        """C4: never send what stands on something dead."""
        dead = [under.local_seq for under in transaction.layers if under.fate is Fate.DEAD]
        named = tuple(local_seq for local_seq in dead if local_seq in layer.named)
        return Conflict(dead_layers=named) if named else None

    def _applied(self, layer: Layer, values: dict[DocKey, MaybeValue]) -> Rejection | None:
        """What the commit makes of what is shown now. A patch that does not fit any more is a stale view."""
        for operation in layer.commit.operations:
            value = self._visible.get(operation.doc, ABSENT)
            touched: tuple[Touch, ...] = ()
            for patch in operation.patches:
                try:
                    value, more = apply(value, patch)
                except PatchError as error:
                    reason = f"cannot take {patch.kind!r} now: {error}"
                    seq = self.confirmed.seq
                    return Conflict((Collision(operation.doc, patch.path, Depth.DEEP, seq, seq, "", "", reason),))
                touched += more
            layer.touched[operation.doc] = touched
            values[operation.doc] = value
        return None

    # ---- verdicts ----------------------------------------------------------------------------------

    def accepted(self, local_seq: int, seq: int) -> None:
        """The engine accepted a commit: it is durable. It stays a layer until confirmed state covers its seq."""
        layer = self.pending.get(local_seq)
        if layer is None or layer.seq:
            return  # said before: a replay's answer
        if layer.fate is Fate.DEAD:
            raise InvariantViolation(f"commit {local_seq} was accepted although a layer under it was not (C4)")
        layer.fate, layer.seq = Fate.ACCEPTED, seq
        if seq <= self.confirmed.seq:
            self._show(Kind.INTEGRATE, self._covered())
        self._settle(layer, layer.settled, None)

    def rejected(self, local_seq: int, rejection: Rejection) -> None:
        """C4: dead at its verdict, with everything that stands on it."""
        buried = self.pending.bury(local_seq)
        if buried is not None:
            return  # it fell with the layer under it and was reverted then
        layer = self.pending.get(local_seq)
        if layer is None:
            return  # said before
        self._fall(self.pending.kill(layer, rejection))

    def revert_unsent(self) -> list[Layer]:
        """After a lost connection: layers that never left are taken back, and whoever made them does so again."""
        fallen: list[Layer] = []
        for layer in self.pending.queued():
            if layer.fate is Fate.QUEUED:
                fallen += self.pending.kill(layer, Conflict(dead_layers=(layer.local_seq,)))
        self._fall(fallen)
        return fallen

    def _fall(self, fallen: list[Layer]) -> None:
        docs = {doc for layer in fallen for doc in layer.touched}
        self._show(Kind.REVERT, docs)
        for layer in fallen:
            self._settle(layer, layer.settled, layer.rejection)

    # ---- what the engine says ----------------------------------------------------------------------

    def integrate(self, sync: Sync) -> None:
        """The log moved on. Own commits it covers stop being layers and are part of what is confirmed."""
        here = [change for change in sync.changes if change.doc in self.confirmed]
        unknown = dict.fromkeys(change.doc for change in sync.changes if change.doc not in self.confirmed)
        touched = self.confirmed.integrate(here, sync.seq, self.pending)
        self._show(Kind.INTEGRATE, touched | self._covered(), unheld=unknown)
        if sync.arrived:
            self.arrive(sync.arrived, sync.seq)

    def arrive(self, documents: Iterable[State], seq: int) -> None:
        """Documents that were asked for, as of `seq`."""
        self.confirmed.move_to(seq)
        arrived: dict[DocKey, None] = {}
        for state in documents:
            self.confirmed.put(state.doc, state.get(), state.seq)
            arrived[state.doc] = None
        reread = any(doc in self._stale for doc in arrived)
        self._show(Kind.RESET if reread else Kind.PULL, arrived | self._covered())

    def _covered(self) -> dict[DocKey, None]:
        """Take out the accepted layers that confirmed state includes by now, and tell what they wrote."""
        done = self.pending.covered(self.confirmed.seq)
        return {doc: None for layer in done for doc in layer.touched if doc in self.confirmed}

    # ---- letting go --------------------------------------------------------------------------------

    def let_go(self, doc: DocKey) -> bool:
        """Drop a value nobody needs now. False: a pending commit is on top of it."""
        if any(True for _ in self.pending.on(doc)):
            return False
        self.confirmed.drop(doc)
        self._visible = self._visible.delete(doc) if doc in self._visible else self._visible
        self._stale.pop(doc, None)
        return True

    def gap(self) -> None:
        """The engine kept no watch for us: nothing here is known to be current until it is read again."""
        self.set_aside(self.confirmed.docs())

    def set_aside(self, docs: Iterable[DocKey]) -> None:
        """Nobody tells changes of these any more: they cannot be read before they have arrived again (C3)."""
        for doc in docs:
            if doc in self.confirmed:
                self._stale[doc] = self._visible[doc]
                self.confirmed.drop(doc)
                self._visible = self._visible.delete(doc)

    def forget_stale(self) -> None:
        """Everything that was asked for again is here: what did not come back is not known any more."""
        self._stale.clear()

    # ---- showing -----------------------------------------------------------------------------------

    def _show(
        self,
        kind: Kind,
        docs: Iterable[DocKey],
        *,
        unheld: Iterable[DocKey] = (),
        made: Mapping[DocKey, MaybeValue] | None = None,
        source: object | None = None,
        group: object | None = None,
    ) -> None:
        """C9: tell what is shown differently now, and nothing else."""
        changes = []
        for doc in docs:
            known = doc in self._visible or doc in self._stale
            if doc not in self.confirmed:
                continue  # nothing of it is shown; if it was before a gap, its arrival tells the difference
            before = self._visible.get(doc, self._stale.get(doc, ABSENT))
            # A new layer is on top of all others, so that what it makes of what is shown is what is shown then.
            after = made[doc] if made is not None else self.pending.shown(doc, self.confirmed.value(doc))
            self._visible = self._visible.set(doc, after)
            self._stale.pop(doc, None)
            if not known or not (before is after or equal(before, after)):
                changes.append(Changed(doc=doc, before=before, after=after, known_before=known))
        for doc in unheld:
            self._stale.pop(doc, None)  # from now on nothing is known of it until it arrives
            changes.append(Changed(doc=doc, before=ABSENT, after=ABSENT, known_before=False))
        if changes:
            self.feed.emit(
                Notification(kind=kind, changes=tuple(changes), seq=self.confirmed.seq, source=source, group=group)
            )

    # ---- whoever is told ---------------------------------------------------------------------------

    def _settle(self, layer: Layer, settled: Iterable[Settled], rejection: Rejection | None) -> None:
        """Call each callback once and let them go. One that raises keeps nobody else from hearing."""
        callbacks = tuple(settled)
        layer.settled = []
        for callback in callbacks:
            try:
                callback(layer, rejection)
            except Exception as error:  # reported when this step is over
                self.feed.errors.append(error)

    def report(self) -> None:
        """Hand what listeners and callbacks raised to `on_error`, once the replica is whole again."""
        errors = self.feed.errors
        while errors:
            self.on_error(errors.pop(0))


def _nobody(_: Layer) -> None:
    """Until a session takes the layers, they wait in `pending`."""


def _raised(error: Exception) -> None:
    raise error
