"""The transactions that a simulated author wants done, and the documents that its process watches.

`Intents` runs them in one process: it runs a transaction, commits it, runs it again after a rejection that is worth a
retry, and waits for documents that are not loaded. An intent is accepted once or fails, after any number of attempts.

`Wants` has the watched documents and those that were released on purpose. A refused watch that would have widened an
existing one leaves that one as it was. `Wants` asks for nothing; it checks that no watch is refused without a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from headwater.backoff import Backoff
from headwater.clock import Random, VirtualClock
from headwater.data.address import DocKey
from headwater.data.patch import PatchError
from headwater.data.value import MaybeValue
from headwater.engine import DEFAULT_LIMITS
from headwater.protocol.messages import Open, Problem, Selector, Watch, Watched
from headwater.protocol.verdict import Conflict, Rejection
from headwater.replica import Layer, NotHere, Replica, Session, Settled
from headwater.testing.simulation.attempts import Attempt, CheckedTransaction, CheckedWhole
from headwater.testing.simulation.replica_checks import Books
from headwater.testing.simulation.trace import Trace


class Wants:
    """The watches of one life of a process."""

    __slots__ = ("_numbers", "_plain", "_scopes", "_stopped", "_trace", "_who", "dropped", "follow_documents", "wanted")

    def __init__(self, who: str, trace: Trace) -> None:
        self._who = who
        self._trace = trace
        self._scopes: tuple[str, ...] = ()
        self._numbers: dict[int, tuple[Selector, ...]] = {}
        self._plain: set[DocKey] = set()  # have arrived by a watch of their own, and are told since
        self._stopped: set[DocKey] = set()  # links from there are not followed any more, however often it is asked for
        self.follow_documents = DEFAULT_LIMITS.follow_documents  # to how many links may lead
        self.wanted: dict[DocKey, bool] = {}  # watched, and whether with the targets of its links
        self.dropped: set[DocKey] = set()  # let go on purpose, so that following links need not bring them back

    def begin(self, scopes: tuple[str, ...]) -> None:
        """Another life."""
        self._scopes = scopes
        self._numbers.clear()
        self._plain.clear()
        self._stopped.clear()
        self.wanted.clear()
        self.dropped.clear()

    def watch(self, doc: DocKey, *, follow: bool) -> None:
        self.wanted[doc] = (follow and doc not in self._stopped) or self.wanted.get(doc, False)
        self.dropped.discard(doc)

    def drop(self, doc: DocKey) -> None:
        self.wanted.pop(doc, None)
        self._plain.discard(doc)
        self._stopped.discard(doc)
        self._numbers = {n: selectors for n, selectors in self._numbers.items() if selectors[0].doc != doc}
        self.dropped.add(doc)

    def says(self, message: Watch) -> None:
        self._numbers[message.id] = message.selectors

    def opens(self, message: Open) -> None:
        """Take in an `Open`: a resumed session goes on watching the same documents."""
        for doc in self._plain:
            numbers = [number for number, selectors in self._numbers.items() if selectors[0].doc == doc]
            if message.watching is not None and max(numbers, default=0) not in message.watching:
                self._trace.broken("watch", self._who, f"{doc} is shown and not watched any more")

    def arrived(self, message: Watched) -> None:
        self._plain.update(selector.doc for selector in self._numbers.get(message.id, ()))

    def gap(self) -> None:
        """Nothing is watched any more: all of it is asked for again, as it was asked for last."""
        self._plain.clear()
        self._stopped.clear()

    # ---- refusals ------------------------------------------------------------------------------------

    def narrowed(self, problem: Problem) -> None:
        """Links lead too far: present watches go on, and no more will follow."""
        if problem.code == "limit" and problem.id and self.follow_documents < DEFAULT_LIMITS.follow_documents:
            for selector in self._numbers.get(problem.id, ()):
                if self.wanted.get(selector.doc):
                    self._trace.counts["watches that stopped following"] += 1
                    self.wanted[selector.doc] = False
                    self._stopped.add(selector.doc)

    def refused(self, docs: tuple[DocKey, ...], problem: Problem | None, replica: Replica) -> None:
        """A load failed."""
        is_far = problem is not None and problem.code == "limit"
        is_bounded = self.follow_documents < DEFAULT_LIMITS.follow_documents
        for doc in docs:
            self._trace.counts["watches refused"] += 1
            if doc.scope in self._scopes and not (is_far and is_bounded):
                self._trace.broken("watch", self._who, f"{doc} was refused: {problem}")
            if doc in self._plain and replica.is_here(doc):
                self._trace.counts["watches refused while they were widened"] += 1
                self.wanted[doc] = False
            else:
                self._plain.discard(doc)
                self.wanted.pop(doc, None)


RETRY: Final = Backoff.exponential(base_ms=25, max_ms=1_000, jitter=0.2)
MAX_ATTEMPTS: Final = 20
PASS_US: Final = 50_000

Work = Callable[[CheckedTransaction], Generator[int, None, None] | None]
"""A transaction's body. A generator may yield microseconds: the transaction stays open meanwhile (C8)."""

WholeWork = Callable[[CheckedWhole], MaybeValue]
"""Makes the new value of a document from reads of others. It has no pauses: nothing happens meanwhile."""

Status = Literal["running", "waiting", "sent", "kept", "landed", "failed", "lost"]


@dataclass(slots=True, eq=False)
class Intent:
    """Something an author wants done once."""

    tag: str
    work: Work | WholeWork
    derived: bool
    retries: int
    whole: DocKey | None = None  # replaces this document
    status: Status = "running"
    attempts: list[Attempt] = field(default_factory=list)
    missing: DocKey | None = None  # waits for this document
    conflict: Conflict | None = None  # waits until retrying is useful
    not_before_us: int = 0

    @property
    def is_over(self) -> bool:
        return self.status in ("kept", "landed", "failed", "lost")


class Host(Protocol):
    """The process that intents run in."""

    name: str
    replica: Replica
    session: Session
    books: Books
    wants: Wants

    def fetch(self, doc: DocKey) -> None:
        """Ask for a document that an intent waits for."""
        ...

    def flush(self) -> None: ...

    def stepped(self) -> None:
        """Something happened."""
        ...


class Intents:
    """All intents of one process, over all its lives."""

    __slots__ = ("_clock", "_draws", "_host", "_trace", "all")

    def __init__(self, host: Host, clock: VirtualClock, draws: Random, trace: Trace) -> None:
        self._host = host
        self._clock = clock
        self._draws = draws
        self._trace = trace
        self.all: list[Intent] = []

    def begin(
        self, tag: str, work: Work | WholeWork, *, derived: bool, retries: int, whole: DocKey | None = None
    ) -> Intent:
        intent = Intent(tag, work, derived, retries, whole)
        self.all.append(intent)
        self._run(intent)
        return intent

    def retry(self) -> None:
        """Run the first intent that waits for nothing any more."""
        host, now = self._host, self._clock.now_us()
        for intent in self.all:
            if intent.status != "waiting" or intent.not_before_us > now:
                continue
            if intent.missing is not None and not host.replica.is_here(intent.missing):
                if intent.missing not in host.wants.wanted:  # it was released meanwhile
                    host.fetch(intent.missing)
                continue
            if intent.conflict is not None and not self._is_ready(intent, intent.conflict):
                continue
            self._run(intent)
            return  # running it was a step of its own, which went on with the others

    def _is_ready(self, intent: Intent, conflict: Conflict) -> bool:
        """Whether the session says that retrying is useful, which it may not before the winner is here."""
        ready = self._host.session.ready(conflict)
        newest = max((collision.seq for collision in conflict.collisions), default=0)
        if ready and newest > self._host.replica.confirmed.seq:
            said = f"{intent.tag} lost against {newest}, which is not here, and may be tried again"
            self._trace.broken("ready", self._host.name, said)
        return ready

    def _run(self, intent: Intent) -> None:
        intent.status, intent.missing, intent.conflict = "running", None, None
        if intent.whole is not None:
            self._replace(intent, intent.whole)
            self._host.stepped()
            return
        transaction = self._host.replica.begin(node=intent.tag, derived=intent.derived)
        self._go_on(intent, self._host.books.begun(transaction), None)
        self._host.stepped()

    def _go_on(self, intent: Intent, checked: CheckedTransaction, pausing: Generator[int, None, None] | None) -> None:
        """Run the body up to its end or its next pause."""
        try:
            if pausing is None:
                pausing = intent.work(checked)  # type: ignore[arg-type, assignment]
            pause_us = next(pausing, None) if pausing is not None else None
        except NotHere as missing:
            intent.status, intent.missing = "waiting", missing.docs[0]
            self._host.fetch(missing.docs[0])
            return
        except PatchError:
            intent.status = "failed"  # its target is not there; nothing was committed
            return
        if pause_us is None:
            self._commit(intent, checked)
            return
        session, body = self._host.session, pausing

        def resume() -> None:
            if session is self._host.session and not intent.is_over:
                self._go_on(intent, checked, body)
                self._host.stepped()

        self._clock.call_at(self._clock.now_us() + pause_us, resume)

    def _commit(self, intent: Intent, checked: CheckedTransaction) -> None:
        host, books = self._host, self._host.books
        attempt, settled = self._attempt(intent)
        books.attempts.append(attempt)
        books.replacing = frozenset(checked.transaction.written_docs()) if intent.derived else frozenset()
        found = host.replica.commit(checked.transaction, settled)
        books.replacing = frozenset()
        checked.answered(attempt, found)
        if isinstance(found, Layer):
            self._made(intent, attempt, found, None)

    def _replace(self, intent: Intent, doc: DocKey) -> None:
        """Replace a document without a transaction."""
        host, books = self._host, self._host.books
        looked = books.begin_replacement(doc)
        try:
            if not host.replica.is_here(doc):
                raise NotHere(doc)
            looked.value = intent.work(looked)  # type: ignore[arg-type, assignment]
        except NotHere as missing:
            intent.status, intent.missing = "waiting", missing.docs[0]
            host.fetch(missing.docs[0])
            return
        attempt, settled = self._attempt(intent)
        document = host.replica.documents.of(doc)
        layer = host.replica.write_whole(document, looked.value, looked.spots, None, None, intent.tag, settled)
        if layer is None:
            intent.status = "landed"  # there was nothing to write
            intent.attempts.pop()
            return
        books.attempts.append(attempt)
        looked.made(attempt, layer)
        self._made(intent, attempt, layer, looked)

    def _attempt(self, intent: Intent) -> tuple[Attempt, Settled]:
        books = self._host.books
        attempt = Attempt(intent.tag, self._host.session.key)
        intent.attempts.append(attempt)
        intent.status = "sent"

        def settled(layer: Layer, rejection: Rejection | None) -> None:
            books.settled(attempt, layer, rejection)
            self._settled(intent, attempt, rejection)

        return attempt, settled

    def _made(self, intent: Intent, attempt: Attempt, layer: Layer, whole: CheckedWhole | None) -> None:
        host = self._host
        self._trace.note(host.name, "commits", intent.tag, layer.local_seq)
        host.books.made(attempt, layer, intent.derived, whole)
        if attempt.is_local:
            intent.status = "kept"
        elif intent.derived:  # the pass ends soon; then derived commits leave, if they were not sent before
            self._clock.call_at(self._clock.now_us() + self._draws.randrange(PASS_US), host.flush)

    def _settled(self, intent: Intent, attempt: Attempt, rejection: Rejection | None) -> None:
        self._trace.note(self._host.name, "hears of", intent.tag, attempt.seq, rejection or "")
        if rejection is None:
            intent.status = "landed"
        elif isinstance(rejection, Conflict) and len(intent.attempts) <= intent.retries:
            intent.status, intent.conflict = "waiting", rejection
            delay_us = RETRY.delay_us(len(intent.attempts) - 1, self._draws)
            intent.not_before_us = self._clock.now_us() + delay_us
            self._clock.call_at(intent.not_before_us, self._host.stepped)
        else:
            intent.status = "failed"
