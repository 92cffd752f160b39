"""The tier of derived results: the newest result of each node that confirmed state does not show yet.

A result is the cached value of a function. It is shown at once and replaces the last result of its node; no verdict
reverts it, because a change of its inputs makes its node invalid. Results are sent in waves. A wave is composed when it
is sent, from results of nodes that are clean then, and is one commit: its reads have the present basis and name the
present layers, and a result that read another one names that result. So a wave is a consistent cut, and an older result
that was never sent costs nothing.

One wave is under way at a time, from its sending until confirmed state covers it. At the next composition every result
is either confirmed or not sent, and no read names a result of an earlier wave.

The engine judges each result. An accepted one is shown until confirmed state covers it. A superseded one is sent again,
without a run, when the state that it was judged against is confirmed; if its node is invalid by then, the node runs
instead. A refused one leaves the tier, and its node fails.

`Tier` keeps the entries and composes waves; `Replica` shows values, and `Session` sends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from headwater.data.address import Depth, DocKey
from headwater.data.diff import ordered_diff
from headwater.data.path import Path
from headwater.data.reader_trie import Spot
from headwater.data.value import size_of
from headwater.protocol.commit import Commit, NodeResult, Operation, Provenance, Read
from headwater.replica.confirmed import Confirmed, Made
from headwater.replica.document import NOT_HERE, Document, EntryState, TierEntry
from headwater.replica.limits import ReplicaLimits
from headwater.replica.minimal_patches import SAYS_ALL
from headwater.replica.pending import Pending

if TYPE_CHECKING:
    from headwater.replica.replica import OpenTransactions

_DUE: Final = EntryState.DUE
_SENT: Final = EntryState.SENT
_LOCAL: Final = EntryState.LOCAL


class SentWave:
    """A wave on the wire, until its rejection or until confirmed state covers it."""

    __slots__ = ("commit", "entries", "frame", "local_seq", "made", "seq", "size")

    def __init__(self, commit: Commit, entries: Sequence[TierEntry], made: Mapping[DocKey, Made]) -> None:
        self.commit = commit
        self.size = 0  # on the wire, approximately
        self.entries = entries  # each has the place of its result; a second document is beside its entry
        self.local_seq = commit.local_seq
        self.frame = commit.local_seq  # the first local_seq of the frame in which it was sent
        self.seq = 0  # where it was accepted
        self.made = made

    def first_named(self) -> int | None:
        """Return the number of the oldest layer that the wave names."""
        return min([read.layers[0][0] for read in self.commit.reads if read.layers], default=None)

    def take_out(self, places: Collection[int]) -> list[TierEntry]:
        """Take out the entries of results that were not accepted, and return them."""
        lost = [entry for entry in self.entries if entry.place in places] if places else []
        if lost:
            self.entries = [entry for entry in self.entries if entry.place not in places]
        return lost


class Composed(NamedTuple):
    """One composition: the wave, if there is one, and the entries that are not part of it."""

    wave: SentWave | None
    equal: list[TierEntry]  # equal to confirmed state: they have left the tier, and only their observations are sent
    fallen: list[TierEntry]  # outdated results of nodes that are invalid and not demanded: the caller drops them


_SMALL: Final = frozenset((int, float, bool, type(None)))
_WAVE: Final = Provenance(derived=True)
"""The provenance of a wave. That of each result says more."""


def _always(_: object) -> bool:
    return True


class Tier:
    """The results of one replica."""

    __slots__ = (
        "_confirmed",
        "_due",
        "_local",
        "_opened",
        "_pending",
        "_wave",
        "is_clean",
        "is_current",
        "is_demanded",
        "is_outdated",
        "superseded_count",
        "version",
    )

    def __init__(self, confirmed: Confirmed, pending: Pending, opened: OpenTransactions) -> None:
        self._confirmed = confirmed
        self._pending = pending
        self._opened = opened  # told before a document has another entry
        self._due: dict[Document, TierEntry] = {}  # in the order of their runs
        self._local: dict[Document, TierEntry] = {}
        self._wave: SentWave | None = None  # under way
        # Set by the scheduler: whether no input of a node has changed since its last run, whether its result is the
        # outcome of that run, which may have failed instead, and whether its value is demanded.
        self.is_clean: Callable[[object], bool] = _always
        self.is_current: Callable[[object], bool] = _always
        self.is_demanded: Callable[[object], bool] = _always
        # A commit of an author was taken back, or another session wrote the document of a result, since the last
        # composition.
        self.is_outdated = False
        self.version = 0  # of the newest result
        self.superseded_count = 0  # results that other commits won against, for diagnosis

    def __bool__(self) -> bool:
        return bool(self._due or self._wave or self._local)

    def is_due(self) -> bool:
        """Return True if a result waits for a wave."""
        return bool(self._due)

    def is_under_way(self) -> bool:
        """Return True if a wave was sent and confirmed state does not cover it yet."""
        return self._wave is not None

    # ---- entries -----------------------------------------------------------------------------------

    def put(self, entry: TierEntry, *, is_local: bool) -> None:
        """Make an entry the newest result of its document."""
        document = entry.document
        document.entry = entry
        if entry.beside is not None:
            entry.beside.document.entry = entry.beside
        self._due.pop(document, None)  # The newest result comes last: it may depend on all others.
        if is_local:
            entry.set_state(_LOCAL)
            self._local[document] = entry
        else:
            self._due[document] = entry

    def drop(self, entry: TierEntry) -> tuple[TierEntry, ...]:
        """Take out the entries of all documents of a result, and return them. Its verdict concerns none any more."""
        parts = (entry.owner or entry).parts()
        for each in parts:
            document = each.document
            if document.entry is each:
                # fault tier.dropped_result_not_kept: pass
                self._opened.changing(document)  # C8: an open transaction keeps the result with its value.
                document.entry = None
                self._due.pop(document, None)
                self._local.pop(document, None)
        return parts

    def make_due(self) -> None:
        """Send the results that stayed local from now on: the right to write was granted."""
        for document, entry in self._local.items():
            entry.set_state(_DUE)
            self._due[document] = entry
        self._local.clear()

    def make_local(self) -> list[TierEntry]:
        """Keep all results local: the right to write is missing. Return the frozen ones, which leave the tier.

        They are not sent, so that the engine does not find a change of their inputs.
        """
        due, self._due = self._due, {}
        frozen: list[TierEntry] = []
        for document, entry in due.items():
            if entry.reads is not None:
                frozen.append(entry)
                self.drop(entry)
            else:
                entry.set_state(_LOCAL)
                self._local[document] = entry
        return frozen

    def freeze(self, entry: TierEntry, number: int) -> bool:
        """Keep the result of a node that is stopped as it is now: nothing tells any more that an input changes.

        The engine finds the change, because the reads keep their present basis; then the entry leaves the tier. Return
        False if the result may not follow from its sources at that basis (C3).
        """
        spots: dict[Spot, Document] = {}
        reads: dict[Read, None] = {}
        for each in self._results_under(entry):
            # fault tier.frozen_over_invalid_input: if False:
            if each is not entry and each.reads is None and not self.is_current(each.source):
                return False
            # fault tier.reads_of_stopped_inputs_lost: pass
            reads.update(dict.fromkeys(each.reads or ()))
            spots.update(_sources(each, entry))
        basis = self._confirmed.seq
        for spot, seen in spots.items():
            # fault tier.frozen_over_a_gap: if False:
            if seen.confirmed is NOT_HERE:
                return False
            spans = self._pending.under(seen, spot.path, number).spans
            reads[Read(seen.key, spot.path, spot.depth, basis, spans)] = None
        entry.reads, entry.spots = tuple(reads), ()
        return True

    def _results_under(self, entry: TierEntry) -> list[TierEntry]:
        """Return a result, the results that it read, and so on."""
        found = {entry: None}
        waiting = [entry]
        while waiting:
            for spot in waiting.pop().spots:
                other = None if spot is None else cast(Document, spot.document).entry
                if other is not None and other not in found and other.document.home is entry.document.home:
                    found[other] = None
                    waiting.append(other)
        return list(found)

    # ---- the wire ----------------------------------------------------------------------------------

    def get(self, local_seq: int) -> SentWave | None:
        """Return the wave with this number, if it is under way."""
        wave = self._wave
        return wave if wave is not None and wave.local_seq == local_seq else None

    def on_wire(self) -> SentWave | None:
        """Return the wave without a verdict: a reconnect replays it."""
        return None if self._wave is None or self._wave.seq else self._wave

    def newest_seq(self) -> int:
        """Return the seq at which the wave under way was accepted; 0: it was not."""
        return 0 if self._wave is None else self._wave.seq

    def first_named(self) -> int | None:
        """Return the number of the oldest layer or wave that a wave names, or may still name."""
        wave = self._wave
        named = [] if wave is None else [wave.local_seq, wave.first_named()]
        named += [read.layers[0][0] for entry in self._due.values() for read in entry.reads or () if read.layers]
        return min([number for number in named if number is not None], default=None)

    def is_waiting(self) -> bool:
        """Return True if a result of a clean node has no verdict, and will get one."""
        if self._wave is not None and not self._wave.seq:
            return True
        for entry in self._due.values():
            if not entry.is_held and (entry.reads is not None or self.is_current(entry.source)):
                return True
        return False

    def covered(self) -> list[TierEntry]:
        """Take out the results that confirmed state includes. Return the entries that were shown."""
        wave = self._wave
        if wave is None or not 0 < wave.seq <= self._confirmed.seq:
            return []
        self._wave = None
        left: list[TierEntry] = []
        for entry in wave.entries:
            part: TierEntry | None = entry
            while part is not None:
                if part.document.entry is part:
                    if self._opened.count:
                        self._opened.changing(part.document)  # C8
                    part.document.entry = None
                    left.append(part)
                part = part.beside
        return left

    def confirm_all(self) -> None:
        """Make every result confirmed state, at its seq. For a replica without an engine."""
        due, self._due = self._due, {}
        seq = self._confirmed.seq
        for each in [each for entry in due.values() for each in entry.parts()]:
            document = each.document
            document.confirmed, document.written, document.entry = each.value, seq, None

    def judged(self, wave: SentWave, seq: int, superseded: Collection[int], newest: int) -> list[TierEntry]:
        """Apply the verdict on a wave, which was accepted at `seq`, or not at all: 0.

        Have results at the places `superseded` sent again, once `newest` is confirmed. Return the frozen ones, which
        leave the tier: no node tells whether they still follow from their inputs.
        """
        wave.seq = seq
        if not seq:
            self._wave = None
        self.superseded_count += len(superseded)
        fallen: list[TierEntry] = []
        for entry in wave.take_out(superseded):
            shown = entry.document.entry
            if shown is not entry:
                if shown is not None:
                    # I8: the causes of a superseded result are causes of the next one.
                    # fault tier.causes_lost: pass
                    shown.causes = {**(entry.causes or {}), **(shown.causes or {})} or None
                    shown.hops = max(shown.hops, entry.hops)
                continue
            if entry.reads is not None:
                fallen.append(entry)
                continue
            entry.set_state(_DUE)
            entry.ready_at = newest
            for part in entry.parts():
                part.local_seq = 0
            # fault tier.superseded_dropped: self._due.pop(entry.document, None)
            self._due[entry.document] = entry
        for entry in fallen:
            self.drop(entry)
        return fallen

    def refused(self, wave: SentWave, places: Collection[int]) -> list[tuple[TierEntry, bool]]:
        """Take out results that will never be accepted. Return them, each with whether it was the newest one."""
        found = [(entry, entry.document.entry is entry) for entry in wave.take_out(places)]
        for entry, _ in found:
            self.drop(entry)
        return found

    # ---- composing a wave ----------------------------------------------------------------------------

    def compose(self, number: int, branch: str, limits: ReplicaLimits) -> Composed:
        """Compose the wave with this number from as many results as it may have."""
        made = Composed(None, [], [])
        # fault tier.sent_while_under_way: if not self._due:
        if self._wave or not self._due:
            return made
        ready = self._ready(made)
        self.is_outdated = False
        # Readers of a result that falls are held: what it hides may be another value than the one that they read.
        # fault tier.readers_of_dropped_results_sent: for entry in (*made.equal, *made.fallen):
        for entry in made.equal:
            for part in self.drop(entry):
                part.state = EntryState.EQUAL
        if not ready:
            return made
        placed, is_cyclic = _ordered(ready)
        if not placed:
            return made
        size = limits.wave_bytes
        if not is_cyclic:
            placed, size = _first_of(placed, limits)
        self._wave = wave = self._made(number, branch, placed, is_cyclic=is_cyclic)
        wave.size = size
        return made._replace(wave=wave)

    def _ready(self, made: Composed) -> dict[TierEntry, None]:
        """Return the results that may be sent, and note their changes to confirmed state. Add the others to `made`."""
        seq = self._confirmed.seq
        is_current = self.is_current
        ready: dict[TierEntry, None] = {}
        for entry in self._due.values():
            # fault tier.invalid_result_sent: if False:
            if entry.reads is None and not is_current(entry.source):
                # fault tier.dormant_result_stays: if False:
                if self.is_outdated and not self.is_demanded(entry.source):
                    # I1: it may show a write that never was, or hide a newer result, and no run will replace it.
                    made.fallen.append(entry)
                continue
            # fault tier.superseded_sent_at_once: if False:
            if entry.ready_at > seq:
                continue
            home, is_closed = entry.document.home, False
            for spot in entry.spots:
                if spot is not None:
                    seen: Document = spot.document  # type: ignore[assignment]
                    # fault tier.sent_over_a_gap: if False:
                    if seen.confirmed is NOT_HERE and seen.home is home:
                        is_closed = True  # C3: the value that it read may be older than the present basis.
                        break
            is_equal = True
            part: TierEntry | None = entry
            while part is not None and not is_closed:
                document, value = part.document, part.value
                confirmed = document.confirmed
                if confirmed is NOT_HERE or document.layers:
                    is_closed = True  # Confirmed state is not here, or a commit of an author is on top.
                    break
                # What is stored is what is shown, also if results in between were never stored.
                patches = ordered_diff(confirmed, value)
                part.operation = Operation(document.key, patches) if patches else None
                is_equal = is_equal and not patches
                part = part.beside
            if is_closed:
                continue
            if is_equal:
                made.equal.append(entry)
            else:
                ready[entry] = None
        return ready

    def _made(self, number: int, branch: str, placed: Sequence[TierEntry], *, is_cyclic: bool) -> SentWave:
        """Make one commit of results, each after those that it read.

        Results that read each other are right together or not at all: they are one result of the wave.
        """
        basis, due, last = self._confirmed.seq, self._due, len(placed) - 1
        operations: list[Operation] = []
        reads: list[Read] = []
        places: dict[Spot, int] = {}  # of spots among the reads
        causes: dict[Spot, Causes] = {}  # of results that a change of one spot caused
        results: list[NodeResult] = []
        made: dict[DocKey, Made] = {}
        for place, entry in enumerate(placed):
            mark: TierEntry | None = entry
            while mark is not None:
                # fault tier.unchanged_documents_named: mark.local_seq = number
                mark.local_seq = number if mark.operation is not None else 0
                mark.state, mark.place = _SENT, 0 if is_cyclic else place
                mark = mark.beside
        # Those of the next result.
        count = 0
        named: list[int] = []
        after: list[int] = []
        for place, entry in enumerate(placed):
            part: TierEntry | None = entry
            while part is not None:
                operation, part.operation = part.operation, None
                if operation is not None:
                    operations.append(operation)
                    count += 1
                    doc, patches = operation.doc, operation.patches
                    made[doc] = (part.document.confirmed, part.value, patches)
                    for patch in patches:
                        if patch.path or patch.kind not in SAYS_ALL:
                            # C1: a difference stands on the value that it is a difference to.
                            named.append(len(reads))
                            reads.append(Read(doc, (), Depth.DEEP, basis))
                            break
                part = part.beside
            for read in entry.reads or ():
                named.append(len(reads))
                reads.append(read)
            home = entry.document.home
            # fault waves.reads_forgotten: for spot in ():
            for spot in entry.spots:  # A frozen result has none.
                if spot is None:
                    continue
                seen: Document = spot.document  # type: ignore[assignment]  # as every spot of a node
                if seen.home is not home:
                    continue  # The log of this space does not check reads of another one.
                other = seen.entry
                if other is None:
                    # The read is of the log at the present basis.
                    at = places.get(spot)
                    if at is None:
                        # C3: the one seq of all documents here, and every layer that may have contributed.
                        spans = self._pending.under(seen, spot.path, number).spans if seen.layers else ()
                        places[spot] = at = len(reads)
                        reads.append(Read(seen.key, spot.path, spot.depth, basis, spans))
                    named.append(at)
                # fault waves.leans_on_nothing: elif False:
                elif other.place != entry.place and other.place not in after:
                    after.append(other.place)  # C4: it is accepted with the result that it read, or not at all.
            due.pop(entry.document, None)
            if not is_cyclic or place == last:
                origin = _joined(placed) if is_cyclic else _provenance(entry, causes)
                results.append(NodeResult(origin, count, tuple(named), tuple(after)))
                count = 0
                named.clear()
                after.clear()
        commit = Commit(number, tuple(operations), tuple(reads), (), branch, (), (), _WAVE, tuple(results))
        return SentWave(commit, placed, made)


Causes = tuple[tuple[DocKey, Path], ...]


def _provenance(entry: TierEntry, known: dict[Spot, Causes]) -> Provenance:
    """I8: return the node of a result, and what caused its run. `known`: the causes of results with one alone."""
    causes = entry.causes
    named: Causes = ()
    if causes:
        spot = next(iter(causes))
        if len(causes) > 1:
            named = _named(causes)
        elif spot in known:
            named = known[spot]
        else:
            named = known[spot] = _named(causes)
    return Provenance(entry.node, getattr(entry.source, "fingerprint", ""), named, True, entry.hops)


def _joined(placed: Sequence[TierEntry]) -> Provenance:
    """I8: return the first node of a cycle, and what caused the runs of all."""
    first = placed[0]
    named = _named({spot: None for entry in placed for spot in entry.causes or ()})
    hops = max([entry.hops for entry in placed])
    return Provenance(first.node, getattr(first.source, "fingerprint", ""), named, True, hops)


def _named(causes: Iterable[Spot]) -> Causes:
    return tuple([(spot.document.key, spot.path) for spot in causes])  # type: ignore[attr-defined]


def _first_of(placed: list[TierEntry], limits: ReplicaLimits) -> tuple[list[TierEntry], int]:
    """Return as many of the results as one wave may have, and their size. Each comes after those that it read."""
    size = 0
    for count, entry in enumerate(placed):
        # About the size on the wire, in bytes.
        length = 96 + 32 * len(entry.spots)
        if type(entry.value) not in _SMALL:
            length += size_of(entry.value)
        if count and (count >= limits.wave_results or size + length > limits.wave_bytes):
            return placed[:count], size
        size += length
    return placed, size


def _sources(entry: TierEntry, frozen: TierEntry) -> dict[Spot, Document]:
    """Return the reads of a result outside the tier. The log of this space does not check reads of another one."""
    home = entry.document.home
    spots = {spot: cast(Document, spot.document) for spot in entry.spots if spot is not None}
    return {spot: seen for spot, seen in spots.items() if seen.home is home and seen.entry in (None, frozen)}


def _ordered(ready: Mapping[TierEntry, object]) -> tuple[list[TierEntry], bool]:
    """Return the results that can be sent together, each after the results that it read; True: some form a cycle.

    A result that read one which cannot be sent now is left out.
    """
    placed: list[TierEntry] = []
    is_cyclic = False
    known: dict[TierEntry, bool] = {}  # False: left out
    opened: set[TierEntry] = set()
    for first in ready:
        if first in known:
            continue
        for spot in first.spots:
            if spot is not None and spot.document.entry is not None:  # type: ignore[attr-defined]
                break
        else:
            known[first] = True
            placed.append(first)
            continue
        stack: list[tuple[TierEntry, Iterator[Spot | None]]] = [(first, iter(first.spots))]
        opened.add(first)
        while stack:
            entry, spots = stack[-1]
            is_sent = True
            deeper: TierEntry | None = None
            for spot in spots:
                if spot is None:
                    continue
                seen: Document = spot.document  # type: ignore[assignment]
                other = seen.entry
                if other is None or other is entry or other.document.home is not entry.document.home:
                    continue
                if other in opened and other not in known:
                    is_cyclic = True
                elif not known.get(other, other in ready):
                    is_sent = False  # C1: the result that it read is not in the log.
                    # fault tier.reader_sent_before_its_input: is_sent = True
                    break
                elif other not in known:
                    deeper = other
                    break
            if deeper is not None:
                opened.add(deeper)
                stack.append((deeper, iter(deeper.spots)))
                continue
            stack.pop()
            known[entry] = is_sent
            if is_sent:
                placed.append(entry)
            while not is_sent and stack:
                known[stack.pop()[0]] = False  # Each one on the stack reads the one above it.
    while is_cyclic and (unfounded := [entry for entry in placed if not _stands(entry, known)]):
        known.update(dict.fromkeys(unfounded, False))
        placed = [entry for entry in placed if known[entry]]
    for entry, is_sent in known.items():
        entry.is_held = not is_sent
    return placed, is_cyclic


def _stands(entry: TierEntry, known: dict[TierEntry, bool]) -> bool:
    """Return True if a result of a cycle read no result that is left out."""
    spots: Iterable[Spot] = [spot for spot in entry.spots if spot is not None]
    entries = [cast(Document, spot.document).entry for spot in spots]
    return all(other is None or known.get(other, True) for other in entries)
