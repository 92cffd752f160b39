"""The replica: the documents of a space as one process shows them. Confirmed state, pending commits on top, the feed.

A local commit is applied at once and notified synchronously; its verdict confirms or reverts it later. Everything here
runs on one thread, and every change of a shown value leaves through the feed (C9). `session.Session` talks to the
engine and applies its messages to the replica; this module does not decide the fate of a commit at the engine.

`OpenTransactions`: before a document is shown differently, every open transaction keeps the former value, so that it
sees one snapshot however long it lasts (C8). A transaction without references is forgotten.

`Evicted`: documents that the replica drops, and documents that it sets aside because the engine does not tell their
changes for now. A value that is set aside cannot be read (C3): its document has to arrive again, and the feed then
tells the difference.

The results of nodes are no layers: `tier.Tier` has them, and they are shown instead of confirmed state and layers.

`Places` are the paths where documents may be shown differently, so that a change is found without comparing everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final
from weakref import ref

import msgspec

from headwater.data.address import Depth, DocKey
from headwater.data.diff import aligned
from headwater.data.patch import Patch, PatchError, Touch, apply
from headwater.data.path import Path
from headwater.data.reader_trie import Spot
from headwater.data.value import ABSENT, MaybeValue, equal, lookup, same
from headwater.errors import AuthoringError, InvariantViolation, LimitError
from headwater.protocol.commit import MAIN, Commit, Operation, Provenance, Read
from headwater.protocol.hop_counts import longest_hops
from headwater.protocol.messages import DocChange, Own, State, Sync
from headwater.protocol.verdict import Collision, Conflict, Rejection
from headwater.replica.confirmed import Confirmed, Documents, Made, NotHere
from headwater.replica.document import NOT_HERE, Document, EntryState, TierEntry
from headwater.replica.feed import Changed, Feed, Kind, Notification, ignore, notification
from headwater.replica.limits import DEFAULT_REPLICA_LIMITS, ReplicaLimits
from headwater.replica.minimal_patches import difference
from headwater.replica.pending import Fate, Layer, Pending, Settled
from headwater.replica.tier import SentWave, Tier
from headwater.replica.transaction import Transaction, says_nothing


def whole_commit(
    replica: Replica,
    document: Document,
    before: MaybeValue,
    after: MaybeValue,
    spots: Sequence[Spot | None],
    node: str,
) -> Commit:
    """Return the next commit, which replaces one document: minimal patches, and the layers that its reads stood on."""
    own, basis, pending = replica.next_local_seq, replica.confirmed.seq, replica.pending
    # fault+ telling.basis_too_old: basis = max(0, basis - 1)
    repeated = pending.repeated(document, (), own)
    patches = difference(before, after, [((), *repeated)], lambda _: False)
    reads: dict[Read, None] = {}
    # fault telling.reads_forgotten: for spot in ():
    for spot in spots:
        if spot is None:
            continue
        seen = spot.document
        # The log of another space does not check the reads of this one.
        if isinstance(seen, Document) and seen.home is replica:
            under = pending.under(seen, spot.path, own)
            for local in under.local:
                reads.update(dict.fromkeys(local.commit.reads))  # C1: the layer is a function of these.
            # C3: the one seq of all documents here, and every layer that may have contributed.
            reads[Read(seen.key, spot.path, spot.depth, basis, under.spans)] = None
    return Commit(own, (Operation(document.key, patches),), tuple(reads), (), replica.branch, (), (), Provenance(node))


class Evicted:
    """Documents without a value here, for good or until they arrive again."""

    __slots__ = ("_aside", "_changing", "_confirmed", "_documents", "returned")

    def __init__(self, documents: Documents, confirmed: Confirmed, changing: Callable[[Document], object]) -> None:
        self._documents = documents
        self._confirmed = confirmed
        self._changing = changing
        self.returned: dict[Document, None] = {}  # here again after a gap; the scheduler clears it
        self._aside: dict[Document, None] = {}  # shown before a gap; forgotten if they do not arrive again

    def let_go(self, doc: DocKey) -> bool:
        """Drop a value that is not needed now. Return False if a pending commit is on top of it."""
        document = self._documents.get(doc)
        if document is not None:
            if document.layers or document.entry is not None:
                return False
            self._hide(document)
            document.stale = NOT_HERE
            self._documents.release(document)
        return True

    def set_aside(self, docs: Iterable[DocKey]) -> None:
        """Make documents unreadable until they have arrived again (C3), because their changes are not told any more."""
        for doc in docs:
            document = self._documents.get(doc)
            if document is not None and document.confirmed is not NOT_HERE:
                document.stale = document.value
                self._aside[document] = None
                self._hide(document)

    def forget(self) -> None:
        """Forget the documents that were set aside and did not arrive, after every requested load is complete."""
        for document in self._aside:
            document.stale = NOT_HERE
            if document.confirmed is NOT_HERE and not document.layers and document.entry is None:
                self._documents.release(document)
        self._aside.clear()

    def _hide(self, document: Document) -> None:
        self._changing(document)
        self._confirmed.drop(document)
        document.value = NOT_HERE


class OpenTransactions:
    """Transactions between their beginning and their end."""

    __slots__ = ("_open", "count")

    def __init__(self) -> None:
        self._open: dict[int, ref[Transaction]] = {}
        self.count = 0

    def add(self, transaction: Transaction) -> None:
        number = id(transaction)
        self._open[number] = ref(transaction, lambda _: self._forget(number))
        self.count = len(self._open)

    def end(self, transaction: Transaction) -> None:
        transaction.finished = True
        self._forget(id(transaction))

    def _forget(self, number: int) -> None:
        self._open.pop(number, None)
        self.count = len(self._open)

    def changing(self, document: Document) -> bool:
        """C8: let every open transaction keep the shown value of a document. Return True if there may be one."""
        if not self._open:
            return False
        for opened in tuple(self._open.values()):
            transaction = opened()
            if transaction is not None:
                transaction.keep(document)
        return True

    def oldest(self, default: int) -> int:
        """Return the number of the first layer that an open transaction may name; `default` if none is open."""
        opened = [transaction() for transaction in self._open.values()]
        return min((each.oldest for each in opened if each is not None), default=default)


Places = dict[Document, "list[Path] | None"]
"""Documents with the paths where their shown value may differ; None: anywhere."""


def places_of(layers: Iterable[Layer], documents: Documents) -> Places:
    """Return the paths that layers wrote which were taken out, each path once."""
    places: dict[Document, dict[Path, None]] = {}
    for layer in layers:
        for doc in layer.docs():
            places.setdefault(documents.of(doc), {}).update(dict.fromkeys(layer.written(doc)))
    return {document: list(at) for document, at in places.items()}


def joined(*several: Places) -> Places:
    """Merge several `Places`."""
    all_of_them: Places = {}
    for places in several:
        for document, at in places.items():
            before = all_of_them.get(document, [])
            all_of_them[document] = None if before is None or at is None else before + at
    return all_of_them


def unchanged(changes: Iterable[tuple[Document, DocChange]], seq: int) -> list[Document]:
    """Return the documents of which the log, up to `seq`, contains only their own bottommost layers, in order.

    Called before those layers are taken out. Each of them must have been shown: then the layers on top stand on the
    same value as before, and nothing has to be applied again.
    """
    own: dict[Document, list[int]] = {}
    others: set[Document] = set()
    for document, change in changes:
        if not isinstance(change, Own):
            others.add(document)
        elif document.layers:
            own.setdefault(document, []).append(change.local_seq)
    same = []
    for document, numbers in own.items():
        if document in others:
            continue
        doc = document.key
        leaving, staying = document.layers[: len(numbers)], document.layers[len(numbers) : len(numbers) + 1]
        if len(leaving) != len(numbers) or (document.wrote is not None and document.wrote.local):
            continue
        if staying and 0 < staying[0].seq <= seq:
            continue
        for number, layer in zip(numbers, leaving, strict=True):
            if layer.local_seq != number or not 0 < layer.seq <= seq or not layer.fits(doc):
                break
        else:
            same.append(document)
    return same


def stands_alone(layer: Layer) -> None:
    """Make a local layer fit whatever is under it, since the layers under it may be taken out: replace becomes add."""
    commit = layer.commit
    operations = [Operation(op.doc, tuple(map(_in_any_case, op.patches))) for op in commit.operations]
    layer.commit = msgspec.structs.replace(commit, operations=tuple(operations))


def _in_any_case(patch: Patch) -> Patch:
    """Return a replace as an add, which needs no value in its place. Inside an array there is no add: unchanged."""
    if patch.kind != "replace" or not all(type(step) is str for step in patch.path):
        return patch
    return patch._replace(kind="add")


def applied(
    layer: Layer, transaction: Transaction, documents: Documents, seq: int, values: dict[Document, MaybeValue]
) -> Conflict | None:
    """Apply a commit to the shown values, into `values`. If a patch does not fit, the view was stale: a conflict."""
    for operation in layer.commit.operations:
        document = documents.of(operation.doc)
        before = value = ABSENT if document.value is NOT_HERE else document.value
        made = transaction.made_of(operation, before)
        touched: tuple[Touch, ...] = ()
        if made is not None:
            value, touched = made
        for patch in operation.patches if made is None else ():
            try:
                value, more = apply(value, patch)
            except PatchError as error:
                reason = f"cannot take {patch.kind!r} now: {error}"
                return Conflict((Collision(operation.doc, patch.path, Depth.DEEP, seq, seq, "", "", reason),))
            touched += more
        layer.touched[operation.doc] = touched
        layer.made[operation.doc] = (before, value)
        values[document] = value
    return None


def _differ_at(before: MaybeValue, after: MaybeValue, places: Iterable[Path] | None) -> bool:
    """Return True if two values are seen to differ at one of a few places. False: they may differ all the same."""
    for path in places or ():  # noqa: SIM110  # A loop, because a generator doubles the cost.
        if path and not same(lookup(before, path), lookup(after, path)):
            return True
    return False


_ROOT: Final[tuple[Path, ...]] = ((),)
_COMMIT: Final = Kind.COMMIT
_LOCAL: Final = Fate.LOCAL
_SENT: Final = EntryState.SENT


class Replica:
    """The documents of one space and branch, as this process shows them."""

    __slots__ = (
        "_on_overwritten",
        "_on_rejected",
        "_shown",
        "branch",
        "confirmed",
        "documents",
        "evicted",
        "feed",
        "limits",
        "may_write",
        "next_local_seq",
        "on_error",
        "on_fallen",
        "on_layer",
        "on_refused",
        "open_transactions",
        "pending",
        "tier",
    )

    def __init__(
        self, *, branch: str = MAIN, next_local_seq: int = 1, limits: ReplicaLimits = DEFAULT_REPLICA_LIMITS
    ) -> None:
        self.branch = branch
        self.limits = limits
        self.open_transactions = OpenTransactions()
        self.documents = Documents(self)
        self.confirmed = Confirmed(self.documents)
        self.pending = Pending(self.documents, self.open_transactions.changing)
        self.tier = Tier(self.confirmed, self.pending, self.open_transactions)
        self.evicted = Evicted(self.documents, self.confirmed, self.open_transactions.changing)
        self.feed = Feed()
        # called with each new layer; a session sets it to `Session._queue_layer`
        self.on_layer: Callable[[Layer], object] = ignore
        self.on_error: Callable[[Exception], object] = _raised
        # called with a result that the engine refused for good, and whether it was the newest of its node
        self.on_refused: Callable[[TierEntry, int, Rejection, bool], object] = ignore
        # called with a result that leaves the tier unsent, because its node is invalid and not demanded, or has failed
        self.on_fallen: Callable[[TierEntry], object] = ignore
        self.may_write = True  # False: results and layers that are derived here are local
        self.next_local_seq = next_local_seq
        self._on_rejected: list[Callable[[Layer, Rejection | None], object]] = []
        self._on_overwritten: list[Callable[[Document, Kind, object], object]] = []
        self._shown: dict[DocKey, MaybeValue] | None = None  # the result of `snapshot`, until a value changes

    def choose_branch(self, branch: str) -> None:
        """Show another branch. Allowed only before any document of the space is here or was written."""
        if self.confirmed.seq or len(self.pending) or self.documents.held():
            raise AuthoringError(f"the branch {branch!r} is chosen too late: {self.branch!r} is shown already")
        self.branch = branch

    # ---- looking -----------------------------------------------------------------------------------

    def is_here(self, doc: DocKey) -> bool:
        document = self.documents.get(doc)
        return document is not None and document.value is not NOT_HERE

    def skip_to(self, local_seq: int) -> None:
        """Never number a commit below `local_seq`: the engine has judged commits of this session up to there."""
        if local_seq > self.next_local_seq:
            self.pending.skipped(self.next_local_seq)
            self.next_local_seq = local_seq

    def visible(self, doc: DocKey) -> MaybeValue:
        """Return the shown value of a document. Raises KeyError if it is not here."""
        document = self.documents.get(doc)
        if document is None or document.value is NOT_HERE:
            raise KeyError(doc)
        return document.value

    def layers(self) -> tuple[Layer, ...]:
        """Return the layers that confirmed state does not cover yet, oldest first, without local ones."""
        return self.pending.live()

    def local_layers(self) -> tuple[Layer, ...]:
        """Return the layers that were derived without the right to write and are never sent, oldest first."""
        return tuple(self.pending.local())

    def is_durable(self) -> bool:
        """Return True if no commit made here, and no result of a clean node, waits for its verdict. Some stay local."""
        return not self.pending.waiting() and not self.tier.is_waiting()

    def is_confirmed(self) -> bool:
        """Return True if confirmed state covers every commit made here, and none that fell is still on the wire."""
        return not len(self.pending) and not self.tier.is_under_way()

    def has_unconfirmed(self) -> bool:
        """Return True if a commit made here, or a result of a clean node, is not part of confirmed state yet."""
        return bool(self.pending.live()) or self.tier.is_under_way() or self.tier.is_waiting()

    def is_held(self, doc: DocKey) -> bool:
        """Return True if a pending commit or a result is on top of a document, so that it cannot be let go."""
        document = self.documents.get(doc)
        # fault pending.written_document_let_go: return False
        return document is not None and (bool(document.layers) or document.entry is not None)

    def newest_seq(self) -> int:
        """Return the last seq that is known here: of confirmed state, or of an accepted commit made here."""
        return max([self.confirmed.seq, self.tier.newest_seq(), *(layer.seq for layer in self.pending.live())])

    def shown_anew(self) -> None:
        """Record that a shown value has changed."""
        self._shown = None

    def snapshot(self) -> Mapping[DocKey, MaybeValue]:
        """Return all shown values. The result is the same object as long as no value changes."""
        if self._shown is None:
            held = self.documents.held()
            self._shown = {each.key: each.value for each in held if each.value is not NOT_HERE}
        return self._shown

    # ---- transactions ------------------------------------------------------------------------------

    def begin(
        self, *, source: object | None = None, group: object | None = None, node: str = "", derived: bool = False
    ) -> Transaction:
        """Begin a transaction on one snapshot, however long it lasts and whatever arrives meanwhile (C8)."""
        transaction = Transaction(
            self.documents, self.confirmed.seq, source=source, group=group, node=node, derived=derived
        )
        transaction.oldest = self.pending.oldest() or self.next_local_seq
        self.open_transactions.add(transaction)  # C8: it keeps each document before that is shown differently.
        return transaction

    def commit(self, transaction: Transaction, *settled: Settled) -> Layer | Rejection | None:
        """Apply a transaction and queue it for the engine. Return None if it has nothing to send.

        Return a rejection if the commit is refused here, because a layer that it stood on is dead (C4) or a patch does
        not fit. Each `settled` is called exactly once in every case, with the layer and the rejection if there is one.
        """
        if transaction.finished:
            raise AuthoringError("this transaction was committed or dropped before")
        self.drop(transaction)
        local_seq = self.next_local_seq
        # fault+ replica.basis_at_commit: transaction.basis = self.confirmed.seq
        commit = transaction.commit(local_seq, self.branch)
        layer = Layer(local_seq, commit, {}, transaction.source, transaction.group, transaction.trigger)
        layer.hops = transaction.hops
        layer.waits = set(transaction.waits) if transaction.waits else None
        # fault replica.commit_not_sent: if True:
        if says_nothing(commit) and not (transaction.leans and commit.reads):
            self.settle(layer, settled, None)
            self.report()
            return None
        values: dict[Document, MaybeValue] = {}
        # fault replica.dead_basis_sent: dead = ()
        dead = transaction.dead()  # C4: a commit that stands on a dead layer is never sent.
        refusal = (
            Conflict(dead_layers=dead)
            if dead
            else applied(layer, transaction, self.documents, self.confirmed.seq, values)
        )
        if refusal is not None:
            layer.fate, layer.rejection = Fate.DEAD, refusal
            self.settle(layer, settled, refusal)
            self.report()
            return refusal
        self.next_local_seq = local_seq + 1
        transaction.local_seq = local_seq
        if settled:
            layer.settled = list(settled)
        stays = transaction.derived and not self.may_write
        if stays:
            stands_alone(layer)
        self.pending.push(layer)
        self.on_layer(layer)
        # A write to the output of a node: the node runs again when it has ended.
        dropped = [part for each in values if each.entry is not None for part in self.tier.drop(each.entry)]
        places: Places = {each: [touch.path for touch in layer.touched[each.key]] for each in values}
        made: dict[Document, MaybeValue] | None = values
        if stays and layer.fate is _LOCAL:
            superseded = self.pending.superseded(layer)
            self._end(superseded)
            if superseded:
                made = None  # The values have the order of keys of the superseded layers, under which it was applied.
        self._show(Kind.COMMIT, places, made=made, source=layer.source, group=layer.group, local_seq=local_seq)
        self._show_without([part for part in dropped if part.document not in values])
        self.report()
        return layer

    def check_room(self) -> None:
        """Raise `LimitError` if too many commits are pending. For callers that write without awaiting; not for runs."""
        if len(self.pending) >= self.limits.pending:
            raise LimitError(
                f"{len(self.pending)} commits wait for the engine to answer, which is the limit: await durable() "
                "before writing more, or write less often"
            )

    def may_name(self) -> int:
        """Return the first layer that an open transaction may name: the engine must not forget it before (C4)."""
        # fault replica.open_transactions_forgotten: return self.next_local_seq
        return self.open_transactions.oldest(self.next_local_seq)

    def drop(self, transaction: Transaction) -> None:
        """End a transaction: shown values are no longer kept for it."""
        self.open_transactions.end(transaction)

    def write_whole(
        self,
        document: Document,
        value: MaybeValue,
        spots: Sequence[Spot | None],
        source: object | None = None,
        group: object | None = None,
        node: str = "",
        settled: Settled | None = None,
    ) -> Layer | None:
        """Replace one document, having read `spots`: a transaction that needs no journal. None: no change.

        The caller read the spots after the last change here, so that the shown values are the values that it read.
        `spots` may end with None.
        """
        before = document.value
        if before is NOT_HERE:
            raise NotHere(document.key)
        # fault runner.same_result_told: if False:
        if before is value or equal(before, value):
            return None
        if type(value) is dict or type(value) is tuple:
            value = aligned(before, value)
        commit = whole_commit(self, document, before, value, spots, node)
        local_seq = commit.local_seq
        self.next_local_seq = local_seq + 1
        touched = {document.key: tuple([Touch(patch.path, True) for patch in commit.operations[0].patches])}
        layer = Layer(local_seq, commit, touched, source, group)
        # fault replica.whole_write_not_settled: if False:
        if settled is not None:
            layer.settled = [settled]
        # fault replica.replaced_value_not_kept: if False:
        if self.open_transactions.count:
            self.open_transactions.changing(document)
        dropped = () if document.entry is None else self.tier.drop(document.entry)
        self.pending.live_layers[local_seq] = layer
        self.pending.stands(layer)
        document.layers.append(layer)
        document.value, self._shown = value, None
        self.on_layer(layer)
        # fault replica.whole_write_not_told: pass
        self.feed.emit(
            Notification(_COMMIT, document, before, value, _ROOT, True, self.confirmed.seq, source, group, local_seq)
        )
        if len(dropped) > 1:
            self._show_without([part for part in dropped if part.document is not document])
        if self.feed.errors:
            self.report()
        return layer

    # ---- results of nodes --------------------------------------------------------------------------

    def show_result(
        self,
        document: Document,
        value: MaybeValue,
        spots: Sequence[Spot | None],
        source: object | None,
        node: str,
        causes: Mapping[Spot, object] | None = None,
        hops: int = 0,
        beside: tuple[Document, MaybeValue] | None = None,
    ) -> TierEntry | None:
        """Show the result of a node, which read `spots`, and send it with the next wave. None: the value is the same.

        The caller read the spots after the last change here, so that the shown values are the values that it read.
        `beside`: a second document of the result, with its value.
        """
        before = document.value
        if before is NOT_HERE:
            raise NotHere(document.key)
        former = document.entry
        # fault runner.same_result_told: is_same = False
        is_same = before is value or equal(before, value)
        if beside is not None and beside[0].value is NOT_HERE:
            raise NotHere(beside[0].key)
        if is_same and (beside is None or same(_here(beside[0]), beside[1])):
            if former is None:
                return None
            # fault tier.kept_reads_replaced: if former.state is not _SENT:
            if former.state is not _SENT and not self.open_transactions.count:
                # The same result by other reads: these count from now on.
                former.spots, former.source, former.reads = spots, source, None
                return None
            value = before  # A result that is on the wire, or that an open transaction saw, stays as it is.
        elif type(value) is dict or type(value) is tuple:
            value = aligned(before, value)
        # I8: the causes of a result that was never sent are causes of the next one. `Tier.superseded` adds those of a
        # result that was sent, unless that one lands.
        # fault tier.replaced_causes_lost: if False:
        if former is not None and former.state is not _SENT:
            causes = {**(former.causes or {}), **(causes or {})} or None
            hops = max(hops, former.hops)
        # fault+ provenance.causes_missing: causes = None
        # fault+ provenance.every_read_is_a_cause: causes = {spot: None for spot in spots if spot and source}
        # fault+ provenance.node_missing: node = ""
        tier = self.tier
        tier.version += 1
        entry = TierEntry(document, value, spots, source, node, causes, hops, tier.version)
        told: Notification | None = None
        if beside is not None:
            entry.beside = part = TierEntry(beside[0], beside[1], (), source, node, None, hops, tier.version)
            part.owner = entry
        # fault tier.replaced_value_not_kept: if False:
        if self.open_transactions.count:
            for each in entry.parts():
                self.open_transactions.changing(each.document)  # C8: with the result that was shown
        tier.put(entry, is_local=not self.may_write)
        if beside is not None and not same(_here(beside[0]), beside[1]):
            told = self._show_part(beside[0], _here(beside[0]), beside[1], source)
        if not is_same:
            also, told = told, self._show_part(document, before, value, source)
            told.others = () if also is None else (also,)
        if told is None:
            return None
        # fault tier.result_not_told: pass
        self.feed.emit(told)
        if self.feed.errors:
            self.report()
        return entry

    def _show_part(self, document: Document, before: MaybeValue, value: MaybeValue, source: object) -> Notification:
        """Show one document of a result, and return the notification."""
        document.value, self._shown = value, None
        seq, version = self.confirmed.seq, self.tier.version
        return Notification(_COMMIT, document, before, value, _ROOT, True, seq, source, None, version)

    def stop_result(self, document: Document, source: object, *, is_current: bool) -> None:
        """Keep the result of a node that is stopped until it is in the log.

        Take it back if it is not current, or is never sent: nothing would tell any more that an input changes.
        """
        entry = document.entry
        if entry is None or entry.source is not source or entry.reads is not None:
            return
        is_sent = entry.state is not EntryState.LOCAL
        if not (is_sent and is_current and self.tier.freeze(entry, self.next_local_seq)):
            self.tier.drop(entry)
            self._show_without([entry])
            self.report()

    def _show_without(self, entries: Iterable[TierEntry]) -> None:
        """Show documents without results that have left the tier."""
        self._show(Kind.REVERT, {each.document: None for entry in entries for each in entry.parts()})

    def compose_wave(self) -> SentWave | None:
        """Compose a wave of results, and number it. The caller sends it. None: there is nothing to send."""
        if not self.may_write:
            return None
        made = self.tier.compose(self.next_local_seq, self.branch, self.limits)
        if made.wave is not None:
            self.next_local_seq += 1
        for entry in made.equal:
            for each in entry.parts():
                each.document.value = each.document.confirmed
        if made.fallen:
            for entry in made.fallen:
                self.tier.drop(entry)
                self.on_fallen(entry)
            self._show_without(made.fallen)
            self.report()
        return made.wave

    def wave_judged(
        self, wave: SentWave, seq: int, superseded: Collection[int], newest: int, refused: Mapping[int, Rejection]
    ) -> None:
        """Apply the verdict on a wave. Accepted results, at `seq`, stay in the tier until confirmed state covers it.

        Superseded ones are sent again once `newest` is confirmed, and refused ones are taken back.
        """
        if wave.seq:
            return  # a repeated verdict
        fallen = self.tier.judged(wave, seq, superseded, newest)
        if fallen:
            self._show_without(fallen)
        if refused:
            found = self.tier.refused(wave, refused.keys())
            self._show_without([entry for entry, is_newest in found if is_newest])
            for entry, is_newest in found:
                self.on_refused(entry, wave.local_seq, refused[entry.place], is_newest)
        if 0 < seq <= self.confirmed.seq:
            self._show(Kind.INTEGRATE, self._covered())

    def keep_here(self) -> None:
        """Keep all results and derived layers local from now on: the session may not write."""
        self.may_write = False
        self._show_without(self.tier.make_local())

    def _own_made(self, local_seq: int, doc: DocKey) -> Made | None:
        """Return what an own commit made of a document. None: it was settled before."""
        wave = self.tier.get(local_seq)
        if wave is not None:
            return wave.made.get(doc) or (NOT_HERE, ABSENT, ())
        layer = self.pending.get(local_seq)
        if layer is None:
            return None
        before, after = layer.made.get(doc) or (NOT_HERE, ABSENT)
        return before, after, layer.patches(doc)

    # ---- verdicts ----------------------------------------------------------------------------------

    def accepted(self, local_seq: int, seq: int) -> None:
        """Mark a commit as accepted and so durable. It stays a layer until confirmed state covers its seq."""
        layer = self.pending.get(local_seq)
        # fault+ replica.settled_twice: if layer and layer.seq: self.settle(layer, layer.settled, None)
        if layer is None or layer.seq:
            return  # a repeated verdict, the answer to a replay
        if layer.fate is Fate.DEAD:
            raise InvariantViolation(f"commit {local_seq} was accepted although a layer under it was not (C4)")
        self.pending.accepted(layer, seq)
        if seq <= self.confirmed.seq:
            self._show(Kind.INTEGRATE, self._covered())
        # fault+ replica.confirmation_told: docs = [self.documents.of(doc) for doc in layer.docs()]
        # fault+ replica.confirmation_told: told = [(Kind.INTEGRATE, d, None, d.value, None, True, seq) for d in docs]
        # fault+ replica.confirmation_told: [self.feed.emit(Notification(*each)) for each in told]
        self.settle(layer, layer.settled, None)

    def rejected(self, local_seq: int, rejection: Rejection) -> None:
        """Revert a rejected commit, with every commit that stands on it (C4)."""
        self.all_rejected({local_seq: rejection})

    def all_rejected(self, rejections: Mapping[int, Rejection]) -> None:
        """Revert commits whose rejections came together, in one step. A repeated rejection has no effect."""
        self._fall(self.pending.kill(rejections))

    def revert_unsent(self) -> list[Layer]:
        """Revert layers that were never sent, after a lost connection. On the rejection, their authors commit again."""
        # fault replica.unsent_not_reverted: fallen = []
        fallen = self.pending.kill_queued()
        self._fall(fallen)
        return fallen

    def revert_local(self) -> None:
        """Send local results, and revert local layers: the right to write was granted. Their nodes run again."""
        self.tier.make_due()
        fallen = self.pending.local()
        for layer in fallen:
            layer.rejection = Conflict(dead_layers=(layer.local_seq,))
            self.pending.take_back(layer)
        self._fall(fallen)

    def _fall(self, fallen: list[Layer]) -> None:
        self.tier.is_outdated = self.tier.is_outdated or bool(fallen)
        self._show(Kind.REVERT, places_of(fallen, self.documents))
        for layer in fallen:
            self.settle(layer, layer.settled, layer.rejection)

    # ---- messages of the engine --------------------------------------------------------------------

    def integrate(self, sync: Sync) -> None:
        """Apply changes of the log. Own commits that it covers stop being layers and become confirmed state."""
        # fault replica.integrates_before_telling: pass
        here: list[tuple[Document, DocChange]] = []
        unknown: dict[DocKey, None] = {}
        for change in sync.changes:
            document = self.documents.get(change.doc)
            if document is None or document.confirmed is NOT_HERE:
                unknown[change.doc] = None
            else:
                here.append((document, change))
        touched = self.confirmed.integrate(here, sync.seq, self._own_made)
        same = {*unchanged(here, sync.seq)}
        yielded, left = self._yielded(touched)
        fallen = places_of(yielded, self.documents) if yielded else {}
        places = joined(touched, left, fallen, self._covered(same))
        for document in same:
            places.pop(document, None)  # Its layers became confirmed state unchanged: the shown value is the same.
        for document in list(places):
            if (
                document.value is document.confirmed
                and document.entry is None
                and not (document.layers or document.wrote)
            ):
                del places[document]  # So did its result, and no layer was ever on top.
        foreign = [(document, change) for document, change in here if not isinstance(change, Own)]
        ways = longest_hops([change for _, change in foreign])
        self._show(Kind.INTEGRATE, places, unheld=unknown, source=ways)
        self._end(yielded)
        if self.tier:
            self._tell_overwritten(Kind.INTEGRATE, [document for document, _ in foreign], ways)
        if sync.arrived:
            self.arrive(sync.arrived, sync.seq)

    def arrive(self, documents: Iterable[State], seq: int) -> None:
        """Take in documents that were asked for, as of `seq`."""
        self.confirmed.move_to(seq)
        arrived: Places = {self.confirmed.put(state.doc, state.get(), state.seq): None for state in documents}
        reread = any(document.stale is not NOT_HERE for document in arrived)
        yielded, left = self._yielded([document for document in arrived if document.confirmed is not ABSENT])
        places = joined(arrived, left, places_of(yielded, self.documents), self._covered())
        self._show(Kind.RESET if reread else Kind.PULL, places)
        self._end(yielded)
        self._tell_overwritten(Kind.RESET if reread else Kind.PULL, arrived, None)

    def _tell_overwritten(self, kind: Kind, documents: Iterable[Document], ways: object) -> None:
        """I1: a value that another session wrote to the output of a node is a change that the node reads.

        A result on top hides it from the feed. If it equals that result, there is nothing to do.
        """
        # fault+ tier.foreign_result_ignored: documents = ()
        for document in dict.fromkeys(documents):
            entry = document.entry
            if entry is not None and document.confirmed is not NOT_HERE and not same(document.confirmed, entry.value):
                # fault tier.dormant_result_hides_others: pass
                self.tier.is_outdated = True
                for listener in self._on_overwritten:
                    listener(document, kind, ways)

    def _yielded(self, documents: Collection[Document]) -> tuple[list[Layer], Places]:
        """Take out layers and results, derived without the right to write, of documents that other sessions wrote."""
        # fault+ replica.local_layers_never_yield: return [], {}
        left: Places = {}
        for document in documents:
            entry = document.entry
            if entry is not None and (entry.owner or entry).state is EntryState.LOCAL:
                left.update({each.document: None for each in self.tier.drop(entry)})
        yielded: list[Layer] = []
        for document in documents:
            if document.layers:
                yielded += self.pending.yielded(document)
        return yielded, left

    def _end(self, yielded: list[Layer]) -> None:
        for layer in yielded:
            self.settle(layer, layer.settled, None)

    def _covered(self, same: Collection[Document] = ()) -> Places:
        """Take out the accepted layers that confirmed state includes by now, and return the paths that they wrote.

        The documents `same` are left out: they are shown as they were.
        """
        written: dict[Document, dict[Path, None]] = {}
        for layer in self.pending.covered(self.confirmed.seq):
            for doc in layer.touched:
                document = self.documents.get(doc)
                if document is not None and document.confirmed is not NOT_HERE and document not in same:
                    written.setdefault(document, {}).update(dict.fromkeys(layer.written(doc)))
        places: Places = {}
        for document, at in written.items():
            places[document] = list(at)
        for entry in self.tier.covered():
            places[entry.document] = None
        return places

    # ---- letting go --------------------------------------------------------------------------------

    def let_go(self, doc: DocKey) -> bool:
        """Drop a value that is not needed now. Return False if a pending commit is on top of it."""
        self._shown = None
        return not self.is_held(doc) and self.evicted.let_go(doc)

    def gap(self) -> None:
        """Set all values aside: the engine kept no watches of this session, so no value is known to be current."""
        # fault replica.gap_keeps_values: pass
        self.set_aside(self.confirmed.docs())

    def set_aside(self, docs: Iterable[DocKey]) -> None:
        """Make documents unreadable until they have arrived again (C3), because their changes are not told any more."""
        self._shown = None
        self.evicted.set_aside(docs)

    # ---- showing -----------------------------------------------------------------------------------

    def _show(
        self,
        kind: Kind,
        docs: Places,
        *,
        unheld: Iterable[DocKey] = (),
        made: Mapping[Document, MaybeValue] | None = None,
        source: object | None = None,
        group: object | None = None,
        local_seq: int = 0,
    ) -> None:
        """Set the shown values of documents, and notify the feed of the differences, and of nothing else (C9)."""
        changes = []
        self._shown = None
        for document, places in docs.items():
            if document.confirmed is NOT_HERE:
                continue  # no value of it is shown; if one was before a gap, the arrival tells the difference
            shown = document.stale if document.value is NOT_HERE else document.value
            if document.value is NOT_HERE and shown is not NOT_HERE:
                self.evicted.returned[document] = None  # Nodes may have begun to wait; there may be no difference.
            if self.open_transactions.count:
                self.open_transactions.changing(document)
            # A new layer is on top of all others: its result on the shown value is the new shown value.
            if made is not None:
                after = made[document]
            elif document.entry is not None:
                after = document.entry.value
            else:
                after = self.pending.shown(document, document.confirmed)
            document.value, document.stale = after, NOT_HERE
            if shown is NOT_HERE:
                changes.append(Changed(document, ABSENT, after, None, False))
            elif _differ_at(shown, after, places) or not same(shown, after):
                # A layer may have another effect on the new state under it.
                again = document.written_by(document.layers) if made is None else []
                changes.append(Changed(document, shown, after, None if places is None else [*places, *again]))
        # fault replica.unheld_change_not_told: for doc in ():
        for doc in unheld:
            document = self.documents.of(doc)
            document.stale = NOT_HERE  # its value is unknown until it arrives
            changes.append(Changed(document, ABSENT, ABSENT, None, False))
        # fault replica.revert_not_told: if changes and kind is not Kind.REVERT:
        if changes:
            self.feed.emit(notification(kind, changes, self.confirmed.seq, source, group, local_seq))

    # ---- listeners ---------------------------------------------------------------------------------

    def on_rejected(self, listener: Callable[[Layer, Rejection | None], object]) -> None:
        """Call a listener with each layer that has a source and was rejected, before the callbacks of that layer."""
        self._on_rejected.append(listener)

    def on_overwritten(self, listener: Callable[[Document, Kind, object], object]) -> None:
        """Call a listener with each document whose result hides another value, which another session wrote.

        It is also given the kind of the message, and the `Ways` of the change if they are known.
        """
        self._on_overwritten.append(listener)

    def settle(self, layer: Layer, settled: Iterable[Settled] | None, rejection: Rejection | None) -> None:
        """Call each callback once and drop them. An exception in one does not keep the others from being called."""
        callbacks = tuple(settled or ())
        # fault replica.settled_twice: pass
        layer.settled = None
        if rejection is not None and layer.source is not None:
            callbacks = (*self._on_rejected, *callbacks)
        for callback in callbacks:
            try:
                callback(layer, rejection)
            except Exception as error:  # reported when this step is over
                self.feed.errors.append(error)

    def report(self) -> None:
        """Pass the exceptions of listeners and callbacks to `on_error`, once the replica is consistent again."""
        errors = self.feed.errors
        while errors:
            self.on_error(errors.pop(0))


def _here(document: Document) -> MaybeValue:
    """Return the shown value of a document that is here."""
    if document.value is NOT_HERE:
        raise NotHere(document.key)
    return document.value


def _raised(error: Exception) -> None:
    raise error
