"""The checks of a replica after every step.

A replica is compared with the log (`Oracle`): its confirmed state is the log at its seq (C3), its shown state is that
with its living layers on top (read your writes, C4), its feed tells exactly these differences in order (C9). Results
that are derived without the right to write stay local and yield to writes of others. `Books` has its own list of
layers, and believes the replica about nothing but its seq. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwater.data.address import SPACE_SCOPE, DocKey
from headwater.data.value import ABSENT, MaybeValue, equal, same
from headwater.engine import ACCESS
from headwater.engine.verify import numbers, writes
from headwater.protocol.commit import Commit, Read
from headwater.protocol.messages import Answer, Query
from headwater.protocol.verdict import Accepted, Conflict, Rejection, RuleRefused, Verdict
from headwater.replica import Fate, Layer, Notification, Replica, Transaction
from headwater.testing.simulation.access import WRITE
from headwater.testing.simulation.attempts import Attempt, CheckedTransaction, CheckedWhole, View, wrote_plainly
from headwater.testing.simulation.oracle import Oracle, folded
from headwater.testing.simulation.trace import Trace


class Books:
    """The books kept about one replica process: its layers and the notifications of its feed."""

    __slots__ = (
        "_checked",
        "_fresh",
        "_gone",
        "_judged",
        "_keeps_derived",
        "_kept_reads",
        "_made",
        "_may_write",
        "_numbered",
        "_oracle",
        "_scopes",
        "_shadow",
        "_trace",
        "_untold",
        "arriving",
        "attempts",
        "released",
        "replacing",
        "replica",
        "session",
        "user",
        "who",
    )

    def __init__(
        self,
        who: str,
        user: str,
        session: str,
        replica: Replica,
        oracle: Oracle,
        trace: Trace,
        *,
        keeps_derived: bool,
    ) -> None:
        """`keeps_derived`: results that may not be sent are derived again, and stay local."""
        self._keeps_derived = keeps_derived
        self._may_write = True  # as far as this session was told
        self._judged: set[int] = set()
        self._kept_reads: set[Read] = set()  # of layers that stay here, or did
        self.released = 0  # no commit to come names a layer up to here
        self.arriving: tuple[DocKey, ...] = ()  # documents in the message that is being taken in
        self.replacing: frozenset[DocKey] = frozenset()  # these are being replaced by derived values
        self.who = who
        self.user = user
        self._scopes = (SPACE_SCOPE, f"user:{user}", f"session:{session}")
        self.session = session
        self.replica = replica
        self._oracle = oracle
        self._trace = trace
        self.attempts: list[Attempt] = []
        self._made: dict[int, Attempt] = {}  # layers that may still be shown
        self._numbered: dict[int, Attempt] = {}  # all that became layers
        self._shadow: dict[DocKey, MaybeValue] = {}  # the state by the feed
        self._gone: set[DocKey] = set()  # told, and not here now: after a gap, or because nothing leads to them
        self._fresh: set[DocKey] = set()  # told in this step
        self._checked: tuple[object, ...] = ()
        replica.feed.subscribe(self._heard)

    # ---- layers ------------------------------------------------------------------------------------

    def _view(self) -> View:
        return View(self.who, self.replica, self.living(), self._oracle, self._trace)

    def begun(self, transaction: Transaction) -> CheckedTransaction:
        return CheckedTransaction(transaction, self._view(), self.who, self._trace)

    def begin_replacement(self, doc: DocKey) -> CheckedWhole:
        """Return the checked snapshot from which an author replaces a document."""
        return CheckedWhole(doc, self.replica, self._view(), self.who, self._trace)

    def made(self, attempt: Attempt, layer: Layer, derived: bool, whole: CheckedWhole | None = None) -> None:
        """Note that a layer is shown from now on. Whether it stays local was decided by messages to this session."""
        counts = self._trace.counts
        attempt.made_at = self.replica.confirmed.seq
        attempt.is_local = derived and not self._may_write
        if attempt.is_local != (layer.fate is Fate.LOCAL):
            said = f"{attempt.tag} is {layer.fate.value}; this session may write: {self._may_write}"
            self._trace.broken("access", self.who, said)
        self._made[attempt.local_seq] = self._numbered[attempt.local_seq] = attempt
        counts["layers kept here"] += attempt.is_local
        if whole is not None:
            counts["whole writes"] += 1
            whole.check(attempt, layer)
        self._check_commit(attempt)

    def _check_commit(self, attempt: Attempt) -> None:
        """Check the commit of a layer: it names nothing that this session said it will not name any more (C4)."""
        commit = attempt.commit
        if commit is None:
            return
        if attempt.is_local:
            self._kept_reads.update(commit.reads)
            return
        named = [n for read in commit.reads if read not in self._kept_reads for n in numbers(read.layers)]
        if min(named, default=self.released + 1) <= self.released:
            said = (
                f"{attempt.tag} names layer {min(named)}, and the engine may have forgotten all up to {self.released}"
            )
            self._trace.broken("C4", self.who, said)

    def settled(self, attempt: Attempt, layer: Layer, rejection: Rejection | None) -> None:
        """Check C6: the replica's belief about a commit is true, and is reported once."""
        attempt.fired += 1
        attempt.rejection = rejection
        if attempt.fired > 1:
            self._trace.broken("callbacks", self.who, f"{attempt.tag} was settled {attempt.fired} times")
        if attempt.is_local:
            self._settled_here(attempt, rejection)
        landed = self._oracle.seq_of.get((self.session, layer.local_seq)) if layer.seq else None
        if rejection is None and layer.seq:
            attempt.seq = layer.seq
            if landed != layer.seq and not self._oracle.is_behind:  # the last checks look again
                self._trace.broken("C6", self.who, f"{attempt.tag} landed at {layer.seq}, the log has it at {landed}")

    def _settled_here(self, attempt: Attempt, rejection: Rejection | None) -> None:
        """Check that a local layer yields to a write in its place, and is taken back when it may be sent."""
        if rejection is not None:
            self._trace.counts["layers taken back when the right was given"] += 1
            return
        self._trace.counts["layers that yielded"] += 1
        attempt.is_yielded = True
        seq, branch = self.replica.confirmed.seq, self.replica.branch
        docs = [operation.doc for operation in attempt.commit.operations] if attempt.commit is not None else []
        if docs and self.replacing.issuperset(docs):
            return  # earlier results are derived again
        if not any(doc in self.arriving or self._oracle.written(doc, seq, branch) > attempt.made_at for doc in docs):
            self._trace.broken("access", self.who, f"{attempt.tag} gave way, and nobody wrote {docs}")

    def undo(self, end: int, attempts: Iterable[Attempt]) -> None:
        """Note that the server was given an older state, which ends there: later messages are not in it, or may be."""
        for attempt in attempts:
            attempt.is_undone |= not 0 < attempt.seq <= end

    @property
    def newest(self) -> int:
        """Return the last seq that this replica was told of, by its shown state or by a verdict."""
        return max([self.replica.confirmed.seq, *(layer.seq for layer in self.living())])

    def go_on(self, oracle: Oracle) -> None:
        """All that was told is in the older state: this replica goes on with it."""
        self._oracle = oracle

    def opened(self) -> None:
        """A connection: the right to write may have been given meanwhile, so that nothing stays here."""
        self._may_write = True

    def check_nothing_kept(self) -> None:
        """Check that a resumed session has no local layers: they are taken back, and may be sent."""
        kept = [layer.local_seq for layer in self.living() if layer.is_local]
        if kept:
            self._trace.broken("access", self.who, f"the layers {kept} still stay here, although they may be sent")

    def told(self, verdicts: tuple[Verdict, ...]) -> None:
        """Check C6: the maker of a commit hears the engine's verdict; or that it fell with a layer under it."""
        for verdict in verdicts:
            attempt, is_first = self._numbered.get(verdict.local_seq), verdict.local_seq not in self._judged
            self._judged.add(verdict.local_seq)
            if attempt is None or isinstance(verdict, Accepted):
                continue
            refused, commit = verdict.rejection, attempt.commit
            self._check_reasons(attempt, refused)
            heard = attempt.rejection
            fell = isinstance(heard, Conflict) and heard.dead_layers and attempt.local_seq not in heard.dead_layers
            stays = (
                self._keeps_derived
                and isinstance(refused, RuleRefused)
                and refused.rule == "access"
                and commit is not None
                and commit.provenance.derived
            )
            if stays and is_first:
                self._may_write = False
            made_again = stays and heard == Conflict(dead_layers=(attempt.local_seq,))
            if heard != refused and not (fell or made_again) and is_first:
                said = f"{attempt.tag} was rejected with {refused}, its author heard {heard}"
                self._trace.broken("C6", self.who, said)

    def _check_reasons(self, attempt: Attempt, rejection: Rejection) -> None:
        """Check that a refusal has a reason, and that a conflict names writes that happened after its reads."""
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

    def living(self) -> Sequence[Attempt]:
        """The layers that must be shown: made, not rejected, and not part of the confirmed state yet."""
        seq = self.replica.confirmed.seq
        for local_seq, attempt in list(self._made.items()):
            if attempt.rejection is not None or attempt.is_yielded or 0 < attempt.seq <= seq:
                del self._made[local_seq]
        return tuple(self._made.values())

    # ---- the feed ----------------------------------------------------------------------------------

    def _heard(self, notification: Notification) -> None:
        """Check C9: each notification is an exact difference to the state before."""
        self._fresh.update(change.doc for change in notification.changes)
        for change in notification.changes:
            doc, told = change.doc, change.doc in self._shadow
            if self.replica.is_here(doc) and not same(self.replica.visible(doc), change.after):
                self._trace.broken("C9", self.who, f"the feed tells of {doc} what is not shown: {change.after!r}")
            if not change.known_before and change.after is ABSENT and not self.replica.is_here(doc):
                self._shadow.pop(doc, None)  # a change of a value that is not here: nothing is known of it any more
                continue
            if told and doc in self._gone and not change.known_before:
                self._shadow[doc] = change.after  # it was let go meanwhile
                continue
            if told != change.known_before:
                self._trace.broken("C9", self.who, f"{doc} was known: {told}, the feed says {change.known_before}")
            elif told and not same(self._shadow[doc], change.before):
                self._trace.broken("C9", self.who, f"{doc} was {self._shadow[doc]!r}, the feed says {change.before!r}")
            elif told and same(change.before, change.after):
                self._trace.broken("C9", self.who, f"the feed tells of {doc}, which did not change")
            self._shadow[doc] = change.after

    def heard_of(self, docs: Iterable[DocKey]) -> None:
        """A change of a value that is not here counts as a change: the feed told of it just now."""
        for doc in docs:
            if doc not in self._fresh:
                self._trace.broken("C9", self.who, f"{doc} is not here and changed, the feed did not say so")

    def let_go(self, doc: DocKey) -> None:
        """The replica was told to forget the document, which is no change of it."""
        if any(writes(layer.commit, doc) for layer in self.living() if layer.commit is not None):
            self._trace.broken("C4", self.who, f"{doc} was let go with a layer on top of it")
        if not self.replica.is_here(doc):
            self._shadow.pop(doc, None)

    def check_answer(self, query: Query, answer: Answer) -> None:
        """Check C11: the answer to a query is the state at its seq; and a page leaves nothing out."""
        branch, oracle = self.replica.branch, self._oracle
        if oracle.is_behind:
            return
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
        state = (seq, shown, [layer.local_seq for layer in living])
        if self._checked and self._checked == state and self._checked[1] is shown:
            return
        self._gone = {doc for doc in self._shadow if doc not in shown}
        if oracle.is_behind and seq > len(oracle.log):
            return
        self._checked = state
        self._check_alive(living)
        if seq > len(oracle.log):
            broken("C3", self.who, f"confirmed state is at {seq}, the log ends at {len(oracle.log)}")
        for layer in living:
            self._check_layer(layer, seq)
        for doc, value in shown.items():
            if doc.scope not in self._scopes:
                broken("access", self.who, f"{doc} belongs to somebody else and is shown")
            expected = oracle.value(doc, seq, replica.branch)
            if doc in replica.confirmed and not equal(replica.confirmed.value(doc), expected):
                broken("C3", self.who, f"{doc} at {seq} is {replica.confirmed.value(doc)!r}, the log: {expected!r}")
            written = oracle.written(doc, seq, replica.branch)
            if doc in replica.confirmed and replica.confirmed.written(doc) != written:
                broken("C3", self.who, f"{doc} was last written at {written}, not as it says")
            expected = self.shown(doc, expected)
            if not equal(value, expected):
                broken("C9", self.who, f"{doc} is shown as {value!r}, with its layers it is {expected!r}")
            if doc not in self._shadow or not equal(self._shadow[doc], value):
                broken("C9", self.who, f"{doc} is shown as {value!r}, the feed told {self._shadow.get(doc, ABSENT)!r}")

    def shown(self, doc: DocKey, value: MaybeValue) -> MaybeValue:
        """Return the value that must be shown of a document with this confirmed value."""
        for layer in self.living():
            if layer.commit is not None:
                value = folded(value, layer.commit, doc, lenient=True)
        return value

    def _check_alive(self, living: Sequence[Attempt]) -> None:
        for local, layers in ((False, self.replica.layers()), (True, self.replica.local_layers())):
            shown = [layer.local_seq for layer in layers]
            alive = [layer.local_seq for layer in living if layer.is_local is local]
            if shown != alive:
                where = "kept here" if local else "pending"
                self._trace.broken("C4", self.who, f"the layers {shown} are {where}, alive are {alive}")

    def _check_layer(self, layer: Attempt, seq: int) -> None:
        oracle, commit, broken = self._oracle, layer.commit, self._trace.broken
        landed = oracle.seq_of.get((self.session, layer.local_seq), 0)
        if commit is None:
            return
        if layer.is_local:
            self._check_kept(layer, commit, seq, landed)
            return
        if not layer.seq and 0 < landed <= seq:
            broken("C6", self.who, f"layer {layer.local_seq} is part of the state at {seq} and still on top of it")
        for read in commit.reads:
            if read in self._kept_reads:
                continue  # a local layer may have stood on one that fell since
            for under in numbers(read.layers):
                if under < self._covering(read):
                    continue
                if under not in self._made and not oracle.seq_of.get((self.session, under)):
                    broken("C4", self.who, f"layer {layer.local_seq} is shown and stands on {under}, which is dead")

    def _covering(self, read: Read) -> int:
        """Return the last layer whose plain write is all that a read saw: the layers under it had no say."""
        for under in reversed(numbers(read.layers)):
            layer = self._made.get(under)
            if layer is not None and layer.commit is not None and wrote_plainly(layer.commit, read.doc, read.path):
                return under
        return 0

    def _check_kept(self, layer: Attempt, commit: Commit, seq: int, landed: int) -> None:
        """Check that a local layer never left, and is on top of no later write of another session."""
        oracle, broken, branch = self._oracle, self._trace.broken, self.replica.branch
        if landed:
            broken("access", self.who, f"layer {layer.local_seq} stays here and is in the log at {landed}")
        if oracle.access.least(self.user) >= WRITE and not oracle.is_behind:
            broken("access", self.who, f"layer {layer.local_seq} stays here, and {self.user!r} may write")
        for operation in commit.operations:
            doc = operation.doc
            newer = oracle.written(doc, seq, branch) > layer.made_at and oracle.value(doc, seq, branch) is not ABSENT
            if newer and doc in self.replica.confirmed:
                broken("access", self.who, f"layer {layer.local_seq} stays here and hides what was written to {doc}")
