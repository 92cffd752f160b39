"""The tier of derived results: the newest result of each node that confirmed state does not show yet.

A result is the cached value of a function. It is shown at once and replaces the last result of its node; no verdict
reverts it, because a change of its inputs makes its node invalid. Results are sent in waves. A wave is composed when it
is sent, from results of nodes that are clean then: each result becomes a commit whose reads have the present basis and
name the present layers, and whose reads of other results name the commits of the same wave. So a wave is a consistent
cut, and an older result that was never sent costs nothing.

One wave is under way at a time, from its sending until confirmed state covers it. At the next composition every result
is either confirmed or not sent, and no read names a result of an earlier wave.

The engine judges each commit. An accepted result is shown until confirmed state covers it. A superseded one is sent
again, without a run, when the commit that won against it is confirmed; if that made its node invalid, the node runs
instead. A refused one leaves the tier, and its node fails.

`Tier` keeps the entries and composes waves; `Replica` shows values, and `Session` sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, cast

from headwater.data.address import Depth, DocKey
from headwater.data.diff import ordered_diff
from headwater.data.patch import Patch
from headwater.data.path import Path
from headwater.data.reader_trie import Spot
from headwater.data.value import same, size_of
from headwater.protocol.commit import Commit, Operation, Provenance, Read
from headwater.replica.confirmed import Confirmed
from headwater.replica.document import NOT_HERE, Document, EntryState, TierEntry
from headwater.replica.limits import ReplicaLimits
from headwater.replica.minimal_patches import SAYS_ALL
from headwater.replica.number_ranges import ranges
from headwater.replica.pending import Pending

_DUE: Final = EntryState.DUE
_SENT: Final = EntryState.SENT
_LOCAL: Final = EntryState.LOCAL


class SentCommit:
    """A commit of results on the wire, until its rejection or until confirmed state covers it."""

    __slots__ = ("commit", "entries", "frame", "local_seq", "seq")

    def __init__(self, commit: Commit, entries: Sequence[TierEntry], frame: int) -> None:
        self.commit = commit
        self.entries = entries  # one, or all results of a cycle
        self.local_seq = commit.local_seq
        self.frame = frame
        self.seq = 0  # where it was accepted

    def first_named(self) -> int | None:
        """Return the number of the oldest layer that the commit names."""
        return min([read.layers[0][0] for read in self.commit.reads if read.layers], default=None)


class Composed(NamedTuple):
    """One composition: the commits of a wave, and the entries that are not part of any."""

    commits: list[SentCommit]
    equal: list[TierEntry]  # equal to confirmed state: they have left the tier, and only their observations are sent
    fallen: list[TierEntry]  # outdated results of nodes that are invalid and not demanded: the caller drops them


def _always(_: object) -> bool:
    return True


class Tier:
    """The results of one replica."""

    __slots__ = (
        "_changing",
        "_confirmed",
        "_due",
        "_local",
        "_pending",
        "_shared",
        "_wire",
        "is_clean",
        "is_current",
        "is_demanded",
        "is_outdated",
        "superseded_count",
        "version",
    )

    def __init__(self, confirmed: Confirmed, pending: Pending, changing: Callable[[Document], object]) -> None:
        self._confirmed = confirmed
        self._pending = pending
        self._changing = changing  # called before a document has another entry
        self._due: dict[Document, TierEntry] = {}  # in the order of their runs
        self._local: dict[Document, TierEntry] = {}
        self._shared: dict[Spot, Read] = {}  # the reads of the wave that is being composed, by their spots
        self._wire: dict[int, SentCommit] = {}  # by local_seq, in order
        # Set by the scheduler: whether no input of a node has changed since its last run, whether its result is the
        # outcome of that run, which may have failed instead, and whether its value is demanded.
        self.is_clean: Callable[[object], bool] = _always
        self.is_current: Callable[[object], bool] = _always
        self.is_demanded: Callable[[object], bool] = _always
        # A commit of an author was taken back, or another session wrote the document of a result, since the last
        # composition.
        self.is_outdated = False
        self.version = 0  # of the newest result
        self.superseded_count = 0  # commits of results that others won against, for diagnosis

    def __bool__(self) -> bool:
        return bool(self._due or self._wire or self._local)

    def is_due(self) -> bool:
        """Return True if a result waits for a wave."""
        return bool(self._due)

    def is_under_way(self) -> bool:
        """Return True if a wave was sent and confirmed state does not cover it yet."""
        return bool(self._wire)

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
                self._changing(document)  # C8: an open transaction keeps the result with its value.
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

    def get(self, local_seq: int) -> SentCommit | None:
        return self._wire.get(local_seq)

    def on_wire(self) -> list[SentCommit]:
        """Return the commits without a verdict, in order: a reconnect replays these."""
        return [sent for sent in self._wire.values() if not sent.seq]

    def newest_seq(self) -> int:
        """Return the last seq at which a result was accepted that confirmed state does not cover; 0: none."""
        return max([sent.seq for sent in self._wire.values()], default=0)

    def first_named(self) -> int | None:
        """Return the number of the oldest layer or commit that a commit of results names, or may still name."""
        named = [number for sent in self._wire.values() for number in (sent.local_seq, sent.first_named())]
        named += [read.layers[0][0] for entry in self._due.values() for read in entry.reads or () if read.layers]
        return min([number for number in named if number is not None], default=None)

    def is_waiting(self) -> bool:
        """Return True if a result of a clean node has no verdict, and will get one."""
        for sent in self._wire.values():
            if not sent.seq:
                return True
        for entry in self._due.values():
            if not entry.is_held and (entry.reads is not None or self.is_current(entry.source)):
                return True
        return False

    def patches(self, local_seq: int, doc: DocKey) -> tuple[Patch, ...] | None:
        """Return the patches of a commit on the wire to a document; None: there is no such commit."""
        sent = self._wire.get(local_seq)
        if sent is None:
            return None
        for operation in sent.commit.operations:
            if operation.doc == doc:
                return operation.patches
        return ()

    def covered(self) -> list[TierEntry]:
        """Take out the results that confirmed state includes. Return the entries that were shown."""
        if not self._wire:
            return []
        seq = self._confirmed.seq
        done = [sent for sent in self._wire.values() if 0 < sent.seq <= seq]
        left: list[TierEntry] = []
        for sent in done:
            del self._wire[sent.local_seq]
            for entry in sent.entries:
                if entry.document.entry is entry:
                    self._changing(entry.document)  # C8
                    entry.document.entry = None
                    left.append(entry)
        return left

    def confirm_all(self) -> None:
        """Make every result confirmed state, at its seq. For a replica without an engine."""
        due, self._due = self._due, {}
        seq = self._confirmed.seq
        for each in [each for entry in due.values() for each in entry.parts()]:
            document = each.document
            document.confirmed, document.written, document.entry = each.value, seq, None

    def superseded(self, sent: SentCommit, newest: int) -> list[TierEntry]:
        """Have results sent again that other commits won against, once `newest` is confirmed.

        Return the frozen ones, which leave the tier: no node tells whether they still follow from their inputs.
        """
        self._wire.pop(sent.local_seq, None)
        self.superseded_count += 1
        fallen: list[TierEntry] = []
        for entry in sent.entries:
            shown = entry.document.entry
            if entry.owner is not None:
                continue
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
            entry.ready_at, entry.local_seq, entry.frame = newest, 0, 0
            # fault tier.superseded_dropped: self._due.pop(entry.document, None)
            self._due[entry.document] = entry
        for entry in fallen:
            self.drop(entry)
        return fallen

    def refused(self, sent: SentCommit) -> list[tuple[TierEntry, bool]]:
        """Take out results that will never be accepted. Return them, each with whether it was the newest one."""
        self._wire.pop(sent.local_seq, None)
        found = [(entry, entry.document.entry is entry) for entry in sent.entries if entry.owner is None]
        for entry, _ in found:
            self.drop(entry)
        return found

    # ---- composing a wave ----------------------------------------------------------------------------

    def compose(self, number: int, branch: str, limits: ReplicaLimits, room: int) -> Composed:
        """Compose a wave of at most `room` commits, numbered from `number`."""
        made = Composed([], [], [])
        # fault tier.sent_while_under_way: if not self._due:
        if self._wire or not self._due:
            return made
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
            # fault tier.superseded_sent_at_once: if _is_closed(entry.document):
            if entry.ready_at > seq or _is_closed(entry.document):
                continue
            beside = entry.beside
            if beside is not None and _is_closed(beside.document):
                continue
            # fault tier.sent_over_a_gap: if False:
            if _misses_read(entry):
                continue  # C3: the value that it read may be older than the present basis.
            if _is_confirmed(entry) and (beside is None or _is_confirmed(beside)):
                made.equal.append(entry)
            else:
                ready[entry] = None
        self.is_outdated = False
        # Readers of a result that falls are held: what it hides may be another value than the one that they read.
        # fault tier.readers_of_dropped_results_sent: for entry in (*made.equal, *made.fallen):
        for entry in made.equal:
            for part in self.drop(entry):
                part.state = EntryState.EQUAL
        if not ready or room <= 0:
            return made
        placed, is_cyclic = _ordered(ready)
        if is_cyclic and placed:
            # Results that read each other are right together or not at all: they are one commit.
            self._shared.clear()
            self._add(made.commits, [each for entry in placed for each in entry.parts()], number, number, branch)
            return made
        frame, size, count = number, 0, 0
        self._shared.clear()
        for entry in placed[:room]:
            entry_size = _size(entry)
            size, count = size + entry_size, count + 1
            if count > limits.wave_commits or size > limits.wave_bytes:
                frame, size, count = number, entry_size, 1
            self._add(made.commits, entry.parts(), number, frame, branch)
            number += 1
        return made

    def _add(
        self, commits: list[SentCommit], entries: Sequence[TierEntry], number: int, frame: int, branch: str
    ) -> None:
        """Make one commit of results."""
        reads: dict[Read, None] = {}
        after: set[int] = set()
        operations: list[Operation] = []
        for entry in entries:
            entry.state, entry.local_seq, entry.frame = _SENT, number, frame
            self._due.pop(entry.document, None)
        for entry in entries:
            operations += self._operations(entry, reads)
            if entry.reads is not None:
                reads.update(dict.fromkeys(entry.reads))
                continue
            self._name_reads(entry, number, frame, reads, after)
        first, hops = entries[0], 0
        causes: list[tuple[DocKey, Path]] = []
        for entry in entries:
            hops = max(hops, entry.hops)
            for spot in entry.causes or ():
                seen: Document = spot.document  # type: ignore[assignment]
                causes.append((seen.key, spot.path))
        fingerprint = getattr(first.source, "fingerprint", "")
        commit = Commit(
            number,
            tuple(operations),
            tuple(reads),
            (),
            branch,
            (),
            (),
            Provenance(first.node, fingerprint, tuple(causes), True, hops),  # I8
            # fault wave.leans_on_nothing: (),
            ranges(sorted(after)) if after else (),
        )
        self._wire[number] = sent = SentCommit(commit, entries, frame)
        commits.append(sent)

    def _operations(self, entry: TierEntry, reads: dict[Read, None]) -> tuple[Operation, ...]:
        """Return the change that a result makes to confirmed state."""
        document = entry.document
        before = document.confirmed
        assert before is not NOT_HERE  # `compose` checked it.
        # What is stored is what is shown, also if results in between were never stored.
        patches = ordered_diff(before, entry.value)
        for patch in patches:
            if patch.path or patch.kind not in SAYS_ALL:
                # C1: a difference stands on the value that it is a difference to.
                reads[Read(document.key, (), Depth.DEEP, self._confirmed.seq)] = None
                break
        return (Operation(document.key, patches),) if patches else ()

    def _name_reads(self, entry: TierEntry, number: int, frame: int, reads: dict[Read, None], after: set[int]) -> None:
        """Add the reads of a result: of the log at the present basis, or of another result of this wave."""
        home, basis = entry.document.home, self._confirmed.seq
        # fault wave.reads_forgotten: for spot in ():
        for spot in entry.spots:
            if spot is None:
                continue
            seen: Document = spot.document  # type: ignore[assignment]  # as every spot of a node
            if seen.home is not home:
                continue  # The log of this space does not check reads of another one.
            other = seen.entry
            if other is None:
                read = self._shared.get(spot)
                if read is None:
                    # C3: the one seq of all documents here, and every layer that may have contributed.
                    spans = self._pending.under(seen, spot.path, number).spans if seen.layers else ()
                    read = self._shared[spot] = Read(seen.key, spot.path, spot.depth, basis, spans)
                reads[read] = None
            elif other.local_seq == number:
                continue  # a result of the same commit
            # fault wave.thins_too_much: elif other.frame:
            elif other.frame == frame:
                after.add(other.local_seq)  # C4: no commit comes between two commits of one frame.
            else:
                reads[Read(seen.key, spot.path, spot.depth, basis, ((other.local_seq, other.local_seq),))] = None


def _is_closed(document: Document) -> bool:
    """Return True if no result can be sent now: confirmed state is not here, or a commit of an author is on top."""
    return document.confirmed is NOT_HERE or bool(document.layers)


def _is_confirmed(entry: TierEntry) -> bool:
    """Return True if confirmed state has the value of an entry."""
    confirmed = entry.document.confirmed
    return confirmed is not NOT_HERE and same(confirmed, entry.value)


def _sources(entry: TierEntry, frozen: TierEntry) -> dict[Spot, Document]:
    """Return the reads of a result outside the tier. The log of this space does not check reads of another one."""
    home = entry.document.home
    spots = {spot: cast(Document, spot.document) for spot in entry.spots if spot is not None}
    return {spot: seen for spot, seen in spots.items() if seen.home is home and seen.entry in (None, frozen)}


def _misses_read(entry: TierEntry) -> bool:
    """Return True if a document of this space that a result read is not here."""
    home = entry.document.home
    for spot in entry.spots:
        if spot is not None:
            document: Document = spot.document  # type: ignore[assignment]
            if document.confirmed is NOT_HERE and document.home is home:
                return True
    return False


def _size(entry: TierEntry) -> int:
    """Return the approximate size of a result on the wire, in bytes."""
    return 128 + size_of(entry.value) + 64 * len(entry.spots)


def _ordered(ready: dict[TierEntry, None]) -> tuple[list[TierEntry], bool]:
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
