"""What must hold for a replica after every step, and for every transaction it makes.

Owns the comparison of a replica with the log (`Oracle`): its confirmed state is the log at its seq (C3), what it shows
is that with its living layers on top (read your writes, C4), its feed tells exactly these differences in order (C9), a
transaction sees one snapshot (C8) and says truly what it stood on (C3). Keeps its own books of layers, and believes the
replica about nothing but its seq. Never changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headwater.data.address import SPACE_SCOPE, Depth, DocKey
from headwater.data.patch import Patch, apply
from headwater.data.path import Path, lookup
from headwater.data.value import ABSENT, MaybeValue, equal
from headwater.engine.access import ACCESS
from headwater.engine.verify.naive import numbers, same, writes
from headwater.protocol.commit import Commit, Read
from headwater.protocol.messages import Answer, Query
from headwater.protocol.verdict import Accepted, Conflict, Rejection, RuleRefused, Verdict
from headwater.replica.feed import Notification
from headwater.replica.pending import Layer
from headwater.replica.replica import Replica
from headwater.replica.transaction import Transaction
from headwater.testing.sim_access import WRITE
from headwater.testing.sim_oracle import Oracle, folded
from headwater.testing.sim_trace import Trace


@dataclass(slots=True, eq=False)
class Attempt:
    """One transaction that became a commit, or tried to. What its callbacks said is kept here."""

    tag: str
    session: str
    local_seq: int = 0  # 0: it never became a layer
    commit: Commit | None = None  # as it was made; waves send a thinner one
    seen: list[tuple[Read, MaybeValue]] = field(default_factory=list)  # each read, and the whole document it was of
    fired: int = 0
    seq: int = 0  # where it landed
    rejection: Rejection | None = None
    is_alone: bool = False  # its process died before it heard


class CheckedTransaction:
    """A transaction whose every read is compared with the one snapshot it may see."""

    __slots__ = ("_basis", "_branch", "_layers", "_oracle", "_overlay", "_reads", "_trace", "_who", "transaction")

    def __init__(self, transaction: Transaction, books: Books, oracle: Oracle, trace: Trace) -> None:
        self.transaction = transaction
        self._oracle = oracle
        self._trace = trace
        self._who = books.who
        self._basis = books.replica.confirmed.seq
        self._branch = books.replica.branch
        self._layers = tuple(commit for _, commit in books.living())
        self._overlay: dict[DocKey, MaybeValue] = {}
        self._reads: dict[tuple[DocKey, Path, Depth], None] = {}

    def read(self, doc: DocKey, path: Path = (), depth: Depth = Depth.DEEP) -> MaybeValue:
        value = self.transaction.read(doc, path, depth)
        if doc not in self._overlay:
            self._reads[doc, path, depth] = None
        shown = self._overlay[doc] if doc in self._overlay else self.view(doc)
        expected = lookup(shown, path)
        if not equal(value, expected):
            self._trace.broken("C8", self._who, f"{doc} at {path} read {value!r}, its snapshot has {expected!r}")
        return value

    def write(self, doc: DocKey, *patches: Patch) -> None:
        self.transaction.write(doc, *patches)
        value = self._overlay[doc] if doc in self._overlay else self.view(doc)
        for patch in patches:
            value = apply(value, patch).value
        self._overlay[doc] = value

    def view(self, doc: DocKey) -> MaybeValue:
        """The document as it was shown when the transaction began."""
        value = self._oracle.value(doc, self._basis, self._branch)
        for commit in self._layers:
            value = folded(value, commit, doc, lenient=True)
        return value

    def answered(self, attempt: Attempt, found: Layer | Rejection | None) -> None:
        """What `Replica.commit` says at once: a layer, a refusal with its reason, or that there is nothing to tell."""
        broken, transaction = self._trace.broken, self.transaction
        wrote = any(not equal(value, self.view(doc)) for doc, value in self._overlay.items())
        tells = wrote or bool(transaction.preconditions or transaction.events or transaction.records)
        if isinstance(found, Layer):
            self.committed(attempt, found.commit)
            if transaction.local_seq != found.local_seq:
                broken("C5", self._who, f"{attempt.tag} is layer {found.local_seq}, not {transaction.local_seq}")
            if not tells and not self._layers:
                broken("C9", self._who, f"{attempt.tag} changed nothing and became a layer")
            return
        if attempt.fired != 1:
            broken("callbacks", self._who, f"{attempt.tag} was over at once and was settled {attempt.fired} times")
        if found is None and tells:
            broken("C6", self._who, f"{attempt.tag} had something to tell and was not sent")
        if isinstance(found, Conflict) and not (found.collisions or found.dead_layers):
            broken("C4", self._who, f"{attempt.tag} was refused here without a reason")

    def committed(self, attempt: Attempt, commit: Commit) -> None:
        """C3: what the commit says it stood on gives what the transaction saw; what it writes, what it wrote."""
        broken = self._trace.broken
        attempt.commit, attempt.local_seq = commit, commit.local_seq
        told = {(read.doc, read.path, read.depth) for read in commit.reads}
        for address in self._reads:
            if address not in told:
                broken("C3", self._who, f"{attempt.tag} read {address} and does not say so")
        layers = {layer.local_seq: layer for layer in self._layers}
        for read in commit.reads:
            whole = self.view(read.doc)
            attempt.seen.append((read, whole))
            if read.seq != self._basis:
                broken("C3", self._who, f"{attempt.tag} read at seq {self._basis} and says {read.seq}")
            named = self._oracle.value(read.doc, read.seq, self._branch)
            for local_seq in numbers(read.layers):
                if local_seq not in layers:
                    broken("C4", self._who, f"{attempt.tag} names layer {local_seq}, which is not alive")
                    continue
                named = folded(named, layers[local_seq], read.doc, lenient=True)
            if not same(named, whole, read):
                broken("C3", self._who, f"{attempt.tag}: {read} does not name all it stood on")
        for operation in commit.operations:
            after = folded(self.view(operation.doc), commit, operation.doc, lenient=True)
            if not equal(after, self._overlay.get(operation.doc, ABSENT)):
                broken(
                    "C7", self._who, f"{attempt.tag} wrote {self._overlay.get(operation.doc)!r}, its patches {after!r}"
                )


class Books:
    """The books kept about one replica process: its layers and what its feed has told."""

    __slots__ = (
        "_checked",
        "_fresh",
        "_gone",
        "_made",
        "_oracle",
        "_scopes",
        "_shadow",
        "_trace",
        "attempts",
        "replica",
        "session",
        "user",
        "who",
    )

    def __init__(self, who: str, user: str, session: str, replica: Replica, oracle: Oracle, trace: Trace) -> None:
        self.who = who
        self.user = user
        self._scopes = (SPACE_SCOPE, f"user:{user}", f"session:{session}")
        self.session = session
        self.replica = replica
        self._oracle = oracle
        self._trace = trace
        self.attempts: list[Attempt] = []
        self._made: dict[int, Attempt] = {}  # layers that may still be shown
        self._shadow: dict[DocKey, MaybeValue] = {}  # what the feed has told
        self._gone: set[DocKey] = set()  # told, and not here now: after a gap, or because nothing leads to them
        self._fresh: set[DocKey] = set()  # told in this step
        self._checked: tuple[object, ...] = ()
        replica.feed.subscribe(self._heard)

    # ---- layers ------------------------------------------------------------------------------------

    def begun(self, transaction: Transaction) -> CheckedTransaction:
        return CheckedTransaction(transaction, self, self._oracle, self._trace)

    def made(self, attempt: Attempt) -> None:
        self._made[attempt.local_seq] = attempt

    def settled(self, attempt: Attempt, layer: Layer, rejection: Rejection | None) -> None:
        """C6: what the replica believes about a commit is so, and it is told once."""
        attempt.fired += 1
        attempt.rejection = rejection
        if attempt.fired > 1:
            self._trace.broken("callbacks", self.who, f"{attempt.tag} was settled {attempt.fired} times")
        landed = self._oracle.seq_of.get((self.session, layer.local_seq)) if layer.seq else None
        if rejection is None and layer.seq:
            attempt.seq = layer.seq
            if landed != layer.seq and not self._oracle.is_behind:  # the last checks look again
                self._trace.broken("C6", self.who, f"{attempt.tag} landed at {layer.seq}, the log has it at {landed}")

    def told(self, verdicts: tuple[Verdict, ...]) -> None:
        """C6: whoever made a commit hears what the engine said of it; or that it fell with one under it."""
        for verdict in verdicts:
            attempt = self._made.get(verdict.local_seq)
            if attempt is None or isinstance(verdict, Accepted):
                continue
            self._check_reasons(attempt, verdict.rejection)
            heard = attempt.rejection
            fell = isinstance(heard, Conflict) and heard.dead_layers and attempt.local_seq not in heard.dead_layers
            if heard != verdict.rejection and not fell:
                said = f"{attempt.tag} was rejected with {verdict.rejection}, its author heard {heard}"
                self._trace.broken("C6", self.who, said)

    def _check_reasons(self, attempt: Attempt, rejection: Rejection) -> None:
        """A refusal has a reason; a conflict names writes that happened, after what was read."""
        if isinstance(rejection, RuleRefused):
            self._check_rule(attempt, rejection)
        if not isinstance(rejection, Conflict) or self._oracle.is_behind:
            return
        for collision in rejection.collisions:
            seq = collision.seq
            real = seq <= len(self._oracle.log) and (
                seq == 0 or writes(self._oracle.log[seq - 1].commit, collision.doc)
            )
            if not real or (not collision.reason and seq <= collision.basis):
                self._trace.broken("C1", self.who, f"{attempt.tag} was rejected for nothing: {collision}")
        for local_seq in rejection.dead_layers:
            if (self.session, local_seq) in self._oracle.seq_of:
                self._trace.broken("C4", self.who, f"{attempt.tag} was rejected for layer {local_seq}, which landed")

    def _check_rule(self, attempt: Attempt, refused: RuleRefused) -> None:
        oracle, commit = self._oracle, attempt.commit
        if refused.rule == "branch" and self.replica.branch not in oracle.doomed:
            self._trace.broken("C6", self.who, f"{attempt.tag} was refused: {refused}")
        if refused.rule != "access" or commit is None or writes(commit, ACCESS):
            return
        if oracle.access.least(self.user) >= WRITE:
            self._trace.broken("access", self.who, f"{attempt.tag} was refused for nothing: {refused}")

    def living(self) -> list[tuple[int, Commit]]:
        """The layers that must be shown: made, not rejected, and not part of the confirmed state yet."""
        seq = self.replica.confirmed.seq
        for local_seq, attempt in list(self._made.items()):
            if attempt.rejection is not None or 0 < attempt.seq <= seq:
                del self._made[local_seq]
        return [(n, attempt.commit) for n, attempt in self._made.items() if attempt.commit is not None]

    # ---- the feed ----------------------------------------------------------------------------------

    def _heard(self, notification: Notification) -> None:
        """C9: each notification is an exact difference to what was told before."""
        self._fresh.update(change.doc for change in notification.changes)
        for change in notification.changes:
            doc, told = change.doc, change.doc in self._shadow
            if self.replica.is_here(doc) and not equal(self.replica.visible(doc), change.after):
                self._trace.broken("C9", self.who, f"the feed tells of {doc} what is not shown: {change.after!r}")
            if not change.known_before and change.after is ABSENT and not self.replica.is_here(doc):
                self._shadow.pop(doc, None)  # a change of a value that is not here: nothing is known of it any more
                continue
            if told and doc in self._gone and not change.known_before:
                self._shadow[doc] = change.after  # it was let go meanwhile
                continue
            if told != change.known_before:
                self._trace.broken("C9", self.who, f"{doc} was known: {told}, the feed says {change.known_before}")
            elif told and not equal(self._shadow[doc], change.before):
                self._trace.broken("C9", self.who, f"{doc} was {self._shadow[doc]!r}, the feed says {change.before!r}")
            elif told and equal(change.before, change.after):
                self._trace.broken("C9", self.who, f"the feed tells of {doc}, which did not change")
            self._shadow[doc] = change.after

    def heard_of(self, docs: Iterable[DocKey]) -> None:
        """A change of a value that is not here counts as a change: the feed told of it just now."""
        for doc in docs:
            if doc not in self._fresh:
                self._trace.broken("C9", self.who, f"{doc} is not here and changed, the feed did not say so")

    def let_go(self, doc: DocKey) -> None:
        """The replica was told to forget the document, which is no change of it."""
        if any(writes(commit, doc) for _, commit in self.living()):
            self._trace.broken("C4", self.who, f"{doc} was let go with a layer on top of it")
        if not self.replica.is_here(doc):
            self._shadow.pop(doc, None)

    def check_answer(self, query: Query, answer: Answer) -> None:
        """C11: what a query found is what was there, then; and a page leaves nothing out."""
        branch, oracle = self.replica.branch, self._oracle
        at = answer.seq if query.at is None else query.at
        for state in answer.documents:
            expected = oracle.value(state.doc, at, branch)
            if not equal(state.get(), expected):
                self._trace.broken("C11", self.who, f"{state.doc} at {at} was found as {state.get()!r}: {expected!r}")
        if not query.doc and answer.next is None:
            found = {state.doc for state in answer.documents}
            there = {doc for doc in oracle.docs() if doc.scope == query.scope and doc.id > query.after}
            if found != {doc for doc in there if oracle.value(doc, at, branch) is not ABSENT}:
                self._trace.broken("C11", self.who, f"{query} found {sorted(found)} at {at}")

    # ---- after every step --------------------------------------------------------------------------

    def check(self) -> None:
        self._fresh.clear()
        replica, oracle, broken = self.replica, self._oracle, self._trace.broken
        living = self.living()
        seq = replica.confirmed.seq
        shown = replica.snapshot()
        state = (seq, shown, [n for n, _ in living])
        if self._checked and self._checked == state and self._checked[1] is shown:
            return
        self._gone = {doc for doc in self._shadow if doc not in shown}
        if oracle.is_behind and seq > len(oracle.log):
            return
        self._checked = state
        alive = [layer.local_seq for layer in replica.pending.live()]
        if alive != [local_seq for local_seq, _ in living]:
            broken("C4", self.who, f"the layers {alive} are shown, alive are {[n for n, _ in living]}")
        if seq > len(oracle.log):
            broken("C3", self.who, f"confirmed state is at {seq}, the log ends at {len(oracle.log)}")
        numbered = dict(living)
        for local_seq, commit in living:
            self._check_layer(local_seq, commit, numbered, seq)
        for doc, value in shown.items():
            if doc.scope not in self._scopes:
                broken("access", self.who, f"{doc} belongs to somebody else and is shown")
            expected = oracle.value(doc, seq, replica.branch)
            if doc in replica.confirmed and not equal(replica.confirmed.value(doc), expected):
                broken("C3", self.who, f"{doc} at {seq} is {replica.confirmed.value(doc)!r}, the log: {expected!r}")
            written = oracle.written(doc, seq, replica.branch)
            if doc in replica.confirmed and replica.confirmed.written(doc) != written:
                broken("C3", self.who, f"{doc} was last written at {written}, not as it says")
            for _, commit in living:
                expected = folded(expected, commit, doc, lenient=True)
            if not equal(value, expected):
                broken("C9", self.who, f"{doc} is shown as {value!r}, with its layers it is {expected!r}")
            if doc not in self._shadow or not equal(self._shadow[doc], value):
                broken("C9", self.who, f"{doc} is shown as {value!r}, the feed told {self._shadow.get(doc, ABSENT)!r}")

    def _check_layer(self, local_seq: int, commit: Commit, living: dict[int, Commit], seq: int) -> None:
        landed = self._oracle.seq_of.get((self.session, local_seq), 0)
        if not self._made[local_seq].seq and 0 < landed <= seq:
            self._trace.broken(
                "C6", self.who, f"layer {local_seq} is part of the state at {seq} and still on top of it"
            )
        for read in commit.reads:
            for under in numbers(read.layers):
                if under not in living and not self._oracle.seq_of.get((self.session, under)):
                    self._trace.broken(
                        "C4", self.who, f"layer {local_seq} is shown and stands on {under}, which is dead"
                    )
