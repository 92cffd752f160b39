"""The naive admission model: the engine's rules, written so simply that one can see that they are right.

Keeps the whole history as one list and recomputes everything by folding it, at any cost. It is the definition that the
engine is compared with (`testing.differential`), so it shares no code with admission, the write index or the heads;
only `data/`, which defines the effect of a patch and when a write matters to a read. It has no limits, no storage and
no approximation. It never decides for the engine: the caller tells it which commits were accepted, so that a commit
rejected out of caution is rejected here too.

The rules are C1 to C5, C7, C10 and C11 of docs/INVARIANTS.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, assert_never

from headwater.data.address import Depth, DocKey, check_id, check_scope
from headwater.data.change import changed_touches, overlaps
from headwater.data.patch import PatchError, apply
from headwater.data.value import ABSENT, MaybeValue, equal, lookup
from headwater.data.value import same as same_order
from headwater.errors import InvalidValueError
from headwater.protocol.commit import (
    MAIN,
    Commit,
    EntityAbsent,
    Frame,
    LeaseHeld,
    OriginCommitted,
    Read,
    SentEvent,
    encode_commit,
    lost_results,
    parts_of,
    without_results,
)

Answer: TypeAlias = Literal["rule", "precondition", "conflict"]
"""Which kind of rejection a refusal is: for good by a rule, for good by a precondition, or worth a retry."""

_END: Final = 2**62  # later than any seq


class Past(NamedTuple):
    """One accepted commit. The commit itself says its branch and its `local_seq`."""

    seq: int
    session: str
    commit: Commit


class NaiveBranch(NamedTuple):
    """One branch: where it came from, and up to which seq it shows that."""

    parent: str | None
    fork_seq: int


class NaiveRefusal(NamedTuple):
    """Why a commit is not admissible: the stale `read` and the `seq` of the write it missed, the dead `layer`."""

    rule: str
    answer: Answer
    detail: str
    read: Read | None = None
    seq: int = 0
    layer: int = 0


@dataclass(frozen=True, slots=True)
class AlreadyAccepted:
    """The commit was accepted before, at this seq."""

    seq: int


class NaiveSpace:
    """One space, as a list of its accepted commits."""

    __slots__ = ("acked", "branches", "deleted", "history", "judged", "leases")

    def __init__(self) -> None:
        self.history: list[Past] = []
        self.branches: dict[str, NaiveBranch] = {MAIN: NaiveBranch(None, 0)}
        self.deleted: set[str] = set()
        self.judged: dict[str, int] = {}  # per session, the highest local_seq that has a verdict
        self.acked: dict[str, int] = {}  # per session, up to where the client said that it has the verdicts
        self.leases: dict[str, int] = {}  # the fencing token of each lease, as the caller observed it

    # ---- what happened ---------------------------------------------------------------------------

    def accept(self, session: str, commit: Commit) -> int:
        """C7: the whole commit enters at the next seq; of a wave, the caller passes the accepted results."""
        seq = len(self.history) + 1
        self.history.append(Past(seq, session, commit))
        self.judged[session] = max(commit.local_seq, self.judged.get(session, 0))
        return seq

    def refuse(self, session: str, commit: Commit) -> None:
        """C7: nothing of the commit enters, and its turn is over."""
        self.judged[session] = max(commit.local_seq, self.judged.get(session, 0))

    def acknowledge(self, session: str, local_seq: int) -> None:
        """C6: the client has the verdicts up to here, so nothing up to here is judged any more."""
        self.acked[session] = max(local_seq, self.acked.get(session, 0))
        self.judged[session] = max(local_seq, self.judged.get(session, 0))

    def restart(self, judged: Mapping[str, int]) -> None:
        """Memory is gone: of each session, the turns up to here are over."""
        self.judged = dict(judged)

    def fork(self, name: str, parent: str, at: int) -> None:
        self.branches[name] = NaiveBranch(parent, at)

    def delete_branch(self, name: str) -> None:
        self.deleted.add(name)

    # ---- C11: the past is what folding the log gives ---------------------------------------------

    @property
    def last_seq(self) -> int:
        return len(self.history)

    def line(self, branch: str, at: int = _END) -> list[Past]:
        """Return the commits that a branch shows at a seq, oldest first: its parent's up to the fork, then its own."""
        parent, fork_seq = self.branches[branch]
        inherited = self.line(parent, min(at, fork_seq)) if parent is not None else []
        return inherited + [past for past in self.history if past.commit.branch == branch and past.seq <= at]

    def value(self, doc: DocKey, branch: str, at: int = _END) -> MaybeValue:
        value: MaybeValue = ABSENT
        for past in self.line(branch, at):
            value = folded(value, past.commit, doc)
        return value

    def written(self, doc: DocKey, branch: str, at: int = _END) -> int:
        """The seq of the last commit that wrote the document; 0 if none did. A patch without effect is no write."""
        written = 0
        value: MaybeValue = ABSENT
        for past in self.line(branch, at):
            value, is_written = stepped(value, past.commit, doc)
            written = past.seq if is_written else written
        return written

    def seq_of(self, session: str, local_seq: int) -> int | None:
        for past in self.history:
            if past.session == session and past.commit.local_seq == local_seq:
                return past.seq
        return None

    # ---- the frame -------------------------------------------------------------------------------

    def objection(self, session: str, frame: Frame) -> str | None:
        """Why this is no frame of the session at all, or None. Nothing of such a frame is judged."""
        turn = self._turn(session)
        if not frame:
            return "it is empty"
        numbers = [commit.local_seq for commit in frame]
        if numbers != sorted(set(numbers)) or numbers[0] < 1:
            return "C5: local_seq does not rise"
        if len({commit.branch for commit in frame}) > 1:
            return "C7: its commits are on several branches"
        for commit in frame:
            seq = self.seq_of(session, commit.local_seq)
            if seq is not None:
                landed = self.history[seq - 1].commit
                lost = lost_results(landed) if len(landed.results) == len(commit.results) else ()
                if encode_commit(landed) != encode_commit(without_results(commit, lost) if lost else commit):
                    return "C10: a commit was accepted with other content"
            elif commit.local_seq <= self.acked.get(session, 0):
                return "C10: a commit is replayed although its verdict was acknowledged"
            elif commit.local_seq >= turn:
                malformed = self._malformed(commit)
                if malformed is not None:
                    return malformed
        return None

    def _malformed(self, commit: Commit) -> str | None:
        written = [operation.doc for operation in commit.operations]
        if len(set(written)) < len(written):
            return "C7: a document is in two operations"
        if any(not 0 <= read.seq <= self.last_seq for read in commit.reads):
            return "C3: a basis is beyond the log"
        for first, last in [each for read in commit.reads for each in read.layers]:
            if not 0 < first <= last < commit.local_seq:
                return "C3: a layer is not an earlier commit"
        for condition in commit.preconditions:
            if isinstance(condition, OriginCommitted) and not 0 < condition.local_seq < commit.local_seq:
                return "C5: an origin is not an earlier commit"
            if isinstance(condition, LeaseHeld) and condition.token < 0:
                return "a token is negative"
        return self._malformed_wave(commit) if commit.results else None

    def _malformed_wave(self, commit: Commit) -> str | None:
        alone = (commit.preconditions, commit.events, commit.records, commit.handled, commit.delivered, commit.declared)
        if any(alone) or not commit.provenance.derived:
            return "C7: a wave has another effect than its results"
        if sum(result.operations for result in commit.results) != len(commit.operations):
            return "C7: the operations of a wave are not those of its results"
        for place, result in enumerate(commit.results):
            if not result.operations:
                return "C7: a result writes nothing"
            if any(at >= len(commit.reads) for at in result.reads) or any(at >= place for at in result.after):
                return "C3: a result names what is not before it"
        return None

    # ---- the commit ------------------------------------------------------------------------------

    def judge(self, session: str, commit: Commit) -> AlreadyAccepted | tuple[NaiveRefusal, ...]:
        """A replay, or every reason against the commit at the first stage that has any. Empty: admissible."""
        seq = self.seq_of(session, commit.local_seq)
        if seq is not None:
            return AlreadyAccepted(seq)  # C10: before anything else, preconditions included
        if commit.local_seq < self._turn(session):
            return (NaiveRefusal("C5", "conflict", "its turn is over: it, or a later commit, has a verdict"),)
        if commit.results:
            return tuple(self._rules(commit))  # `judge_result` judges each of its results.
        return (
            tuple(self._rules(commit))
            or tuple(self._preconditions(session, commit))
            or (*self._reads(session, commit), *self._operations(commit))
        )

    def judge_result(
        self, session: str, commit: Commit, place: int, accepted: Collection[int]
    ) -> tuple[NaiveRefusal, ...]:
        """Every reason against one result of a wave, of which earlier ones are accepted. Empty: admissible."""
        part = parts_of(commit)[place]
        alone = Commit(commit.local_seq, part.operations, part.reads, branch=commit.branch)
        others = set(range(len(commit.results))).difference(accepted)
        self.history.append(Past(self.last_seq + 1, session, without_results(commit, others)))
        try:
            dead = [
                NaiveRefusal("C4", "conflict", f"result {at} of its wave was not accepted")
                for at in part.after
                if at not in accepted
            ]
            return (*dead, *self._reads(session, alone), *self._operations(alone))
        finally:
            self.history.pop()

    def _turn(self, session: str) -> int:
        """C5: the lowest local_seq of the session that may still be judged."""
        return self.judged.get(session, 0) + 1

    def _rules(self, commit: Commit) -> Iterator[NaiveRefusal]:
        if commit.branch not in self.branches or commit.branch in self.deleted:
            yield NaiveRefusal("branch", "rule", f"there is no branch {commit.branch!r}")
            return
        taken = [event.id for event, _ in self.events()]
        for event in commit.events:
            if event.id in taken:
                yield NaiveRefusal("event_id", "rule", f"event {event.id!r} was sent before")
            taken.append(event.id)

    def events(self, branch: str | None = None) -> list[tuple[SentEvent, int]]:
        """Events that were sent, and that no later commit of their branch handled, with their seqs: of one or all."""
        found = [(event, past) for past in self.history for event in past.commit.events]
        return [
            (event, past.seq)
            for event, past in found
            if past.commit.branch not in self.deleted
            and branch in (None, past.commit.branch)
            and not any(
                event.id in later.commit.handled and later.commit.branch == past.commit.branch
                for later in self.history[past.seq :]
            )
        ]

    def _preconditions(self, session: str, commit: Commit) -> Iterator[NaiveRefusal]:
        for precondition in commit.preconditions:
            match precondition:
                case OriginCommitted(local_seq):
                    holds = self.seq_of(session, local_seq) is not None
                case EntityAbsent(doc):
                    holds = self.written(doc, commit.branch) == 0
                case LeaseHeld(name, token):
                    holds = self.leases.get(name) == token
                case _:
                    assert_never(precondition)
            if not holds:
                yield NaiveRefusal("precondition", "precondition", f"{precondition} does not hold")

    def _reads(self, session: str, commit: Commit) -> Iterator[NaiveRefusal]:
        shown = [past.seq for past in self.line(commit.branch)]
        for layer, doc in [(layer, read.doc) for read in commit.reads for layer in numbers(read.layers)]:
            seq = self.seq_of(session, layer)
            landed = None if seq is None else self.history[seq - 1].commit
            if seq not in shown:
                yield NaiveRefusal("C4", "conflict", f"layer {layer} is not on this branch", layer=layer)
            elif landed is not None and landed.results and not writes(landed, doc):
                yield NaiveRefusal("C4", "conflict", f"wave {layer} has no accepted result for {doc}", layer=layer)
        for read in commit.reads:
            missed = self.missed(session, commit.branch, read)
            if missed:
                yield NaiveRefusal("C1", "conflict", f"{read} missed the write at {missed[-1]}", read, missed[-1])
            elif not self._saw_the_branch(session, commit.branch, read):
                yield NaiveRefusal("C1", "conflict", f"{read} saw what the branch does not show", read)

    def missed(self, session: str, branch: str, read: Read) -> list[int]:
        """C1: commits after the basis, visible here and not named as layers, that changed the address read."""
        missed = []
        value: MaybeValue = ABSENT
        for past in self.line(branch):
            before, value = value, folded(value, past.commit, read.doc)
            if past.seq > read.seq and not (past.session == session and names(read, past.commit.local_seq)):
                changed = changed_touches(before, value)
                if any(overlaps(touch, read.path, read.depth) for touch in changed):
                    missed.append(past.seq)
        return missed

    def _saw_the_branch(self, session: str, branch: str, read: Read) -> bool:
        """C1: True if the read saw the branch's state: its layers did the same in its view and in the log.

        They may not have: an element that a layer appended has another index if another session appended before.
        """
        try:
            view = self.view(session, branch, read)
        except PatchError:
            return True  # No client can have had this view, so there is nothing to compare.
        return same(view, self.value(read.doc, branch), read)

    def view(self, session: str, branch: str, read: Read) -> MaybeValue:
        """C3: the view of the read's transaction: the branch at the basis, then the layers it names."""
        value = self.value(read.doc, branch, read.seq)
        for past in self.history:
            if past.seq > read.seq and past.session == session and names(read, past.commit.local_seq):
                value = folded(value, past.commit, read.doc)
        return value

    def _operations(self, commit: Commit) -> Iterator[NaiveRefusal]:
        for doc in [operation.doc for operation in commit.operations]:
            try:
                folded(self.value(doc, commit.branch), commit, doc)
            except PatchError as error:
                yield NaiveRefusal("C7", "conflict", f"an operation does not apply: {error}")
            try:
                check_scope(doc.scope)
                check_id(doc.id)
            except InvalidValueError as error:
                yield NaiveRefusal("document_name", "rule", str(error))


def folded(value: MaybeValue, commit: Commit, doc: DocKey) -> MaybeValue:
    """The document after the commit."""
    for operation in commit.operations:
        if operation.doc == doc:
            for patch in operation.patches:
                value = apply(value, patch)[0]
    return value


def stepped(value: MaybeValue, commit: Commit, doc: DocKey) -> tuple[MaybeValue, bool]:
    """The document after the commit, and whether that touched it.

    Patches that cancel each other do not, unless the document was removed in between.
    """
    values, is_written = [value], False
    for operation in commit.operations:
        if operation.doc == doc:
            for patch in operation.patches:
                value, touched = apply(value, patch)
                values.append(value)
                is_written = is_written or bool(touched)
    are_cancelled = len(values) > 2 and ABSENT not in values[1:] and same_order(values[0], value)
    return value, is_written and not are_cancelled


def writes(commit: Commit, doc: DocKey) -> bool:
    """Return whether a commit has an operation on a document."""
    return any(operation.doc == doc for operation in commit.operations)


def numbers(layers: tuple[tuple[int, int], ...]) -> list[int]:
    """The commits that inclusive ranges name."""
    return [number for first, last in layers for number in range(first, last + 1)]


def names(read: Read, local_seq: int) -> bool:
    """Return whether a read names a commit of its session among its layers."""
    return local_seq in numbers(read.layers)


def same(view: MaybeValue, now: MaybeValue, read: Read) -> bool:
    """Whether the read sees the same in two states of its document."""
    a, b = lookup(view, read.path), lookup(now, read.path)
    if read.depth == Depth.SHAPE:
        a, b = _shape(a), _shape(b)
    return equal(a, b)


def _shape(value: MaybeValue) -> MaybeValue:
    """Return presence and kind, a scalar's content, a container's keys or length."""
    if isinstance(value, dict):
        return ("keys", *sorted(value))
    if isinstance(value, tuple):
        return ("length", len(value))
    return value
