"""The queue of observations of runs that the session has still to send to the engine.

The observation of a run that committed something travels with its commit, also when the commit is replayed. Of any
other run the queue keeps a draft, the newest of each node, and makes the observation when it is sent: its node is clean
then, so that its reads saw what is shown now. If the node has a result in a wave, the observation belongs to that
commit; otherwise it is sent with the next frame, or by `Session.tell_runs` without one. The draft of a node that is not
clean is dropped: the node runs again. An observation that a lost connection takes with it is not sent again: its node
is unknown to the engine, and runs again. Decides nothing about nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from headwater.data.address import DocKey
from headwater.data.path import Path
from headwater.data.value import MAX_INT, same
from headwater.protocol.commit import Commit
from headwater.protocol.observations import ForeignRead, Layers, Observation
from headwater.replica.document import NOT_HERE, Document, EntryState, TierEntry
from headwater.replica.limits import DEFAULT_REPLICA_LIMITS, ReplicaLimits
from headwater.replica.replica import Replica
from headwater.replica.tier import SentWave

Cause = int | tuple[DocKey, Path] | None


class RunDraft:
    """An observation of a completed run, without the numbers that are known when it is sent."""

    __slots__ = ("about", "cause", "failed", "footprint", "foreign", "places", "seq", "took_us", "under")

    def __init__(
        self,
        about: bytes,
        footprint: bytes,
        places: Sequence[tuple[Document, Path]],
        *,
        failed: str = "",
        cause: Cause = None,
        foreign: tuple[ForeignRead, ...] = (),
        took_us: int = 0,
    ) -> None:
        self.about = about
        self.footprint = footprint
        self.places = places  # of each read
        self.failed = failed
        self.cause = cause
        self.foreign = foreign
        self.took_us = took_us
        # Of a node that was stopped: the seq that its reads saw, and for each the layers or the result on top of it.
        self.seq = 0
        self.under: list[Layers | TierEntry] | None = None

    def observation(self, order: int, local_seq: int, seq: int = 0, layers: tuple[Layers, ...] = ()) -> Observation:
        """Return the observation of a run that made a commit, or that saw confirmed state at `seq` with `layers`."""
        return Observation(
            self.about,
            self.footprint,
            order,
            local_seq,
            seq,
            layers if any(layers) else (),
            self.failed,
            self.cause,
            self.foreign,
            self.took_us,
        )


class ObservationQueue:
    """The observations of one session. While `is_on` is False, none are recorded."""

    __slots__ = ("_drafts", "_limits", "_made", "_noted", "_order", "is_on")

    def __init__(self, limits: ReplicaLimits = DEFAULT_REPLICA_LIMITS) -> None:
        self._limits = limits
        self.is_on = False
        self._order = 0  # the number of the last observation
        # by `local_seq` of a commit without a verdict: the nodes, their drafts and the observations that were sent
        self._made: dict[int, list[tuple[object, RunDraft, Observation]]] = {}
        self._drafts: dict[object, RunDraft] = {}  # the newest of each node
        self._noted: list[Observation] = []

    def _next_order(self) -> int:
        self._order += 1
        return self._order

    def record(self, node: object, draft: RunDraft, local_seq: int = 0) -> None:
        """Record a run of a node; `local_seq`: of the commit that it made beside its result, before that is sent."""
        if not self.is_on:
            return
        if local_seq:
            self._drafts.pop(node, None)
            self._made[local_seq] = [(node, draft, draft.observation(self._next_order(), local_seq))]
        else:
            self._drafts[node] = draft

    def has_drafts(self) -> bool:
        """Return True if runs are not observed yet."""
        return bool(self._drafts)

    def drop(self, node: object) -> None:
        """Forget the draft of a node."""
        self._drafts.pop(node, None)

    def is_frozen(self, node: object) -> bool:
        """Return True if the draft of a node is kept as it was at an earlier time."""
        draft = self._drafts.get(node)
        return draft is not None and draft.under is not None

    def made_wave(self, wave: SentWave) -> None:
        """Have the newest runs of the nodes observed with the wave that carries their results."""
        drafts, order, local_seq = self._drafts, self._order, wave.local_seq
        made: list[tuple[object, RunDraft, Observation]] = []
        for entry in wave.entries:
            draft = drafts.pop(entry.source, None)
            if draft is not None:
                order += 1
                observation = Observation(
                    draft.about,
                    draft.footprint,
                    order,
                    local_seq,
                    0,
                    (),
                    draft.failed,
                    draft.cause,
                    draft.foreign,
                    draft.took_us,
                    False,
                    entry.place,
                )
                made.append((entry.source, draft, observation))
        self._order = order
        if made:
            self._made[local_seq] = made

    def wave_ended(self, local_seq: int, superseded: Collection[int]) -> None:
        """Forget the observations of a wave that has its verdict.

        The drafts of superseded results are kept: these are sent again, unless the nodes have run since.
        """
        made = self._made.pop(local_seq, ())
        if superseded:
            for node, draft, observation in made:
                if observation.place in superseded:
                    self._drafts.setdefault(node, draft)

    def freeze(self, node: object, replica: Replica) -> None:
        """Keep the draft of a clean node that is stopped as it is now: its reads saw what is shown now."""
        draft = self._drafts.get(node)
        if draft is None or draft.under is not None:
            return
        # fault runs.frozen_over_a_gap: if False:
        if not _is_here(draft):
            del self._drafts[node]  # C3: a value that it read may be older than the present seq.
        else:
            draft.seq = replica.confirmed.seq
            draft.under = [_under(replica, document, path) for document, path in draft.places]
            if any(isinstance(each, TierEntry) and each.is_sent_without_change for each in draft.under):
                del self._drafts[node]  # Another commit changed the document since: the wave is superseded.

    def noted(self, about: bytes, footprint: bytes, seq: int) -> None:
        """Record an observation without reads, as of `seq`."""
        if self.is_on:
            self._wait(Observation(about, footprint, self._next_order(), 0, seq))

    def gone(self, about: bytes, seq: int) -> None:
        """Record that a node does not exist any more as of `seq`; all nodes of a piece, if `about` names no member."""
        if self.is_on:
            self._wait(Observation(about, b"", self._next_order(), 0, seq, gone=True))

    def _wait(self, observation: Observation) -> None:
        # fault runs.waiting_not_bounded: if False:
        if len(self._noted) >= self._limits.noted_waiting:
            # Without a connection none are taken; the node of a dropped one is unknown to the engine.
            del self._noted[: self._limits.noted_runs]
        self._noted.append(observation)

    # ---- sending ---------------------------------------------------------------------------------

    @property
    def are_many(self) -> bool:
        return len(self._noted) >= self._limits.noted_runs

    @property
    def are_waiting(self) -> bool:
        """True if an observation of a run without a commit waits for a frame."""
        return bool(self._noted)

    def settle(self, replica: Replica, before: int = MAX_INT) -> None:
        """Make the observations of drafts that stand on no commit from number `before` on: those were not sent yet.

        An observation is sent after every commit that it stands on: the engine could not resolve the number earlier.
        """
        if not self._drafts:
            return
        drafts, self._drafts = self._drafts, {}
        for node, draft in drafts.items():
            if draft.under is None:
                if _waits_with_result(node, draft):
                    self._drafts[node] = draft
                    continue
                if not replica.tier.is_clean(node):
                    continue
            layers = _layers(replica, draft)
            if layers is None:
                continue
            # fault runs.observed_over_a_gap: is_early = False
            is_early = draft.under is None and not _is_here(draft)  # C3
            if is_early or any(span[1] >= before for spans in layers for span in spans):
                self._drafts[node] = draft
            else:
                seq = replica.confirmed.seq if draft.under is None else draft.seq
                self._wait(draft.observation(self._next_order(), 0, seq, layers))

    def taken(self) -> tuple[Observation, ...]:
        """Take out the observations of runs without a commit. The caller sends them."""
        noted, self._noted = self._noted, []
        return tuple(noted)

    def taken_with(self, commits: Iterable[Commit]) -> tuple[Observation, ...]:
        """Take out the observations of runs without a commit, and add those of commits that are sent now."""
        noted = self.taken() if self._noted else ()
        return (*noted, *self.of_commits(commits)) if self._made else noted

    def of_commits(self, commits: Iterable[Commit]) -> list[Observation]:
        """Return the observations of the runs that made commits."""
        return [run for commit in commits for _, _, run in self._made.get(commit.local_seq, ())]

    def ended(self, local_seq: int) -> None:
        """Forget the observation of a commit that has its verdict: the engine has stored or discarded it."""
        if self._made:
            self._made.pop(local_seq, None)

    def only(self, local_seqs: Iterable[int]) -> None:
        """Forget the observations of all commits except these: the others will not be sent any more."""
        if self._made:
            kept = set(local_seqs)
            self._made = {number: run for number, run in self._made.items() if number in kept}


_UNSENT: Layers = ((MAX_INT, MAX_INT),)
"""Stands for the commit of a result that was not sent yet."""


def _waits_with_result(node: object, draft: RunDraft) -> bool:
    """Return True if the result of a run is still to be sent: the observation travels with it."""
    entry = draft.places[-1][0].entry if draft.places else None
    return entry is not None and entry.source is node and entry.state is EntryState.DUE


def _is_here(draft: RunDraft) -> bool:
    """Return True if each document that a run read is here, so that its value is known as of the present seq."""
    for document, _ in draft.places:  # noqa: SIM110  # A loop, because a generator doubles the cost.
        if document.confirmed is NOT_HERE:
            return False
    return True


def _under(replica: Replica, document: Document, path: Path) -> Layers | TierEntry:
    """Return the layers, or the result, on top of a place. A result with the confirmed value is not on top."""
    entry = document.entry
    if entry is not None:
        confirmed = document.confirmed
        is_equal = entry.is_sent_without_change and confirmed is not NOT_HERE and same(confirmed, entry.value)
        return () if is_equal else entry
    if not document.layers:
        return ()
    return replica.pending.under(document, path, replica.next_local_seq).spans


def _layers(replica: Replica, draft: RunDraft) -> tuple[Layers, ...] | None:
    """Return the own commits that each read stands on. None: one of them will never be sent."""
    under = draft.under
    if under is None:
        under = [_under(replica, document, path) for document, path in draft.places]
    found: list[Layers] = []
    for each in under:
        if not isinstance(each, TierEntry):
            found.append(each)
        elif each.state is EntryState.EQUAL or (draft.under is not None and each.is_sent_without_change):
            found.append(())  # The engine compares the seq of the observation with the last write of the document.
        elif each.local_seq:
            found.append(((each.local_seq, each.local_seq),))
        elif each.state is EntryState.LOCAL or each.document.entry is not each:
            return None
        else:
            found.append(_UNSENT)
    return tuple(found)
