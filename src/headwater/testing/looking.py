"""C11, compared: every way of reading a space, now, in the past and on every branch, equals folding its log."""

from __future__ import annotations

from collections import Counter

from headwater.data.value import Absent, equal
from headwater.engine import Document, Engine
from headwater.engine.verify import NaiveSpace
from headwater.errors import AbsentError
from headwater.protocol.commit import Commit
from headwater.testing.agreement import Disagreement
from headwater.testing.draws import DOCS


class Looking:
    """Reads everything through an engine and compares it with the naive model."""

    __slots__ = ("_counts", "_engine", "_naive")

    def __init__(self, engine: Engine, naive: NaiveSpace, counts: Counter[str]) -> None:
        self._engine = engine
        self._naive = naive
        self._counts = counts

    def at(self, at: int) -> None:
        """Compare the present, and the past at a seq that is still kept."""
        naive, engine = self._naive, self._engine
        for branch, line in naive.branches.items():
            if branch in naive.deleted:
                self._expect_absent(branch, naive.last_seq)
                continue
            moment = max(at, line.fork_seq)
            if line.fork_seq:
                self._expect_absent(branch, line.fork_seq - 1)
            for doc in DOCS:
                self._same(branch, naive.last_seq, engine.read(doc, branch=branch))
                self._same(branch, moment, engine.read(doc, branch=branch, at=moment))
            self._look_at_pages(branch)
            self._look_at_events(branch)
        self._look_at_changes(at)

    def _same(self, branch: str, at: int, read: Document) -> None:
        self._counts["reads"] += 1
        folded, written = self._naive.value(read.doc, branch, at), self._naive.written(read.doc, branch, at)
        if not equal(read.value, folded) or read.seq != written:
            raise Disagreement(
                f"C11: {read.doc} on {branch} at {at} is {folded!r}, written at {written}; the engine has {read}"
            )

    def _expect_absent(self, branch: str, at: int) -> None:
        try:
            self._engine.read(DOCS[0], branch=branch, at=at)
        except AbsentError:
            return
        raise Disagreement(f"C11: {branch} can be read at {at}, where it does not exist")

    def _look_at_pages(self, branch: str) -> None:
        for scope in ("space", "user:ann"):
            found: list[Document] = []
            after: str | None = ""
            while after is not None:
                page = self._engine.documents(scope, branch=branch, after=after, limit=2)
                found += page.items
                after = page.next
            present = [
                doc
                for doc in sorted(DOCS)
                if doc.scope == scope and not isinstance(self._naive.value(doc, branch), Absent)
            ]
            if [document.doc for document in found] != present:
                raise Disagreement(f"C11: the documents of {scope} on {branch} are {present}, not {found}")
            for document in found:
                self._same(branch, self._naive.last_seq, document)

    def _look_at_events(self, branch: str) -> None:
        """Sent on this branch, and handled by no later commit of it; those that are due, in pages."""
        expected = sorted((seq, event.id, event.due_us) for event, seq in self._naive.events(branch))
        for due_by_us in (0, 4, 8):
            found: list[tuple[int, str, int]] = []
            after: tuple[int, str] | None = (0, "")
            while after is not None:
                page = self._engine.events(branch=branch, due_by_us=due_by_us, after=after, limit=2)
                found += [(event.seq, event.id, event.due_us) for event in page.items]
                after = page.next
                next_due = min([due for _, _, due in expected if due > due_by_us], default=None)
                if page.next_due_us != next_due:
                    raise Disagreement(f"the next event of {branch} is due at {next_due}, not at {page.next_due_us}")
            if found != [each for each in expected if each[2] <= due_by_us]:
                raise Disagreement(f"the events of {branch} due by {due_by_us} are {expected}, not {found}")
            self._counts["events"] += len(found)

    def _look_at_changes(self, since: int) -> None:
        live = [name for name in self._naive.branches if name not in self._naive.deleted]
        for branch in (None, *live):
            found: list[tuple[int, str, Commit]] = []
            after: str | None = str(since)
            while after is not None:
                page = self._engine.changes(since=int(after), branch=branch, limit=3)
                found += [(logged.seq, logged.session, logged.commit) for logged in page.items]
                after = page.next
            expected = [
                tuple(past) for past in self._naive.history if past.seq > since and branch in (None, past.commit.branch)
            ]
            if found != expected:
                raise Disagreement(f"C11: the changes of {branch} since {since} are {expected}, not {found}")
