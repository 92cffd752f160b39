"""Reads of the present and the past: documents now, at a seq and on a branch; the log since a seq; all of it in pages.

A page has the cursor of the next one, or None at the end. Reading changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import nsmallest
from typing import Generic, TypeVar

from headwater.data.address import DocKey
from headwater.data.value import MAX_INT, Absent, MaybeValue, size_of
from headwater.engine.limits import Limits
from headwater.engine.log.branches import Branch, Branches
from headwater.engine.log.heads import Heads
from headwater.engine.log.log import Log, entries_of
from headwater.engine.log.sessions import Sessions
from headwater.engine.store.port import LogRow, Store
from headwater.errors import AbsentError, AuthoringError
from headwater.protocol.commit import Commit
from headwater.protocol.log_record import DROPPED

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoricDocument:
    """A document as of `as_of`. `seq` is the commit that wrote it last, 0 if none did."""

    doc: DocKey
    value: MaybeValue
    seq: int
    as_of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """One accepted commit with its place in the log."""

    seq: int
    at_us: int
    session: str
    commit: Commit
    dropped: frozenset[DocKey] = frozenset()  # documents that it wrote without effect


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage(Generic[T]):
    """Some rows, and the cursor that continues after them (None: there are no more)."""

    items: tuple[T, ...]
    next: str | None


def every(page: Callable[[str], HistoryPage[T]]) -> Iterator[T]:
    """All rows, page by page, for a call that takes the cursor to go on after; the first one is empty."""
    after: str | None = ""
    while after is not None:
        found = page(after)
        yield from found.items
        after = found.next


def _name(branch: Branch) -> str:
    return branch.name


class History:
    """Answers questions about the space. Upholds C11 with `Heads.value_at`."""

    __slots__ = ("_branches", "_heads", "_limits", "_log", "_sessions", "_store")

    def __init__(
        self, store: Store, log: Log, heads: Heads, branches: Branches, sessions: Sessions, limits: Limits
    ) -> None:
        self._store = store
        self._log = log
        self._heads = heads
        self._branches = branches
        self._sessions = sessions
        self._limits = limits

    def read(self, doc: DocKey, branch_name: str, at: int | None) -> HistoricDocument:
        branch = self._branches.get(branch_name)
        if at is None:
            head = self._heads.get(branch, doc)
            return HistoricDocument(
                doc=doc, value=head.value, seq=head.seq or head.inherited_seq, as_of=self._log.last_seq
            )
        seq = self.checked_seq(branch, at)
        number = self._store.doc_of(doc)
        if number is None:
            return HistoricDocument(doc=doc, value=Absent.ABSENT, seq=0, as_of=seq)
        value, written = self._heads.value_at(branch, doc, number, seq)
        return HistoricDocument(doc=doc, value=value, seq=written, as_of=seq)

    def checked_seq(self, branch: Branch, at: int | None) -> int:
        """A moment that this branch can be read at."""
        last = self._log.last_seq
        seq = last if at is None else at
        if seq < 0 or seq > last:
            raise AbsentError(f"there is no seq {seq}: the log of this space ends at {last}")
        if seq < branch.fork_seq:
            parent = branch.parent.name if branch.parent is not None else ""
            raise AbsentError(f"branch {branch.name!r} begins at seq {branch.fork_seq}. Read {parent!r} for seq {seq}.")
        kept_from = self._log.kept_from
        if seq < kept_from - 1:
            raise AbsentError(f"history before seq {kept_from - 1} was compacted away; seq {seq} cannot be read")
        return seq

    def documents(
        self, scope: str, branch_name: str, after: str, limit: int | None, most_bytes: int | None = None
    ) -> HistoryPage[HistoricDocument]:
        branch = self._branches.get(branch_name)
        size = self.page_size(limit)
        # C8: one call answers as of one seq, since nothing is accepted while it runs.
        rows = self._store.docs_of_scope(scope, after, size)
        found: list[HistoricDocument] = []
        held, last = 0, rows[-1][1] if len(rows) == size else None
        for place, head in enumerate(self._heads.many(branch, [DocKey(scope, id) for _, id in rows])):
            if isinstance(head.value, Absent):
                continue
            if most_bytes is not None:
                held += size_of(head.value)
                if held > most_bytes and found:
                    last = rows[place - 1][1]  # The next page begins with this one.
                    break
            seq = head.seq or head.inherited_seq
            found.append(HistoricDocument(doc=head.key, value=head.value, seq=seq, as_of=self._log.last_seq))
        self._heads.trim()
        return HistoryPage(items=tuple(found), next=last)

    def changes(self, since: int, branch_name: str | None, limit: int | None) -> HistoryPage[Logged]:
        """Pages by accepted commits; a branch's own, not those it inherited."""
        branch = self._branches.get(branch_name) if branch_name is not None else None
        kept_from = self._log.kept_from
        if not 0 <= since <= MAX_INT:
            raise AuthoringError(f"changes are read since a seq from 0 to {MAX_INT}, not {since}")
        if since < kept_from - 1:
            raise AbsentError(
                f"history before seq {kept_from} was compacted away. Ask for changes since {kept_from - 1}, after "
                "reading the documents as they were then."
            )
        size = self.page_size(limit)
        found: list[Logged] = []
        last = since
        # C9: in the order of the log, and nothing that is not in the log.
        for row in self._rows_from(since, size):
            for place, entry in enumerate(entries_of(row)):
                seq = row.seq + place
                if seq <= since or len(found) == size:
                    continue
                last = seq
                if branch is None or row.branch == branch.id:
                    commit = self._log.decoded(seq, entry.commit)
                    key = self._sessions.key_of(row.session)
                    dropped = frozenset(
                        [op.doc for op, at in zip(commit.operations, entry.previous, strict=False) if at == DROPPED]
                    )
                    found.append(Logged(seq=seq, at_us=row.at_us, session=key, commit=commit, dropped=dropped))
        return HistoryPage(items=tuple(found), next=str(last) if last < self._log.last_seq else None)

    def _rows_from(self, since: int, size: int) -> list[LogRow]:
        """Return the whole rows that hold the commits after `since`; the first may be a wave that began before it."""
        first = self._store.row_at(since + 1)
        begin = first.seq - 1 if first is not None else since
        return self._store.rows_after(begin, size)

    def branches(self, after: str, limit: int | None) -> HistoryPage[Branch]:
        size = self.page_size(limit)
        found = nsmallest(size + 1, [each for each in self._branches.live() if each.name > after], key=_name)
        return HistoryPage(items=tuple(found[:size]), next=found[size - 1].name if len(found) > size else None)

    def page_size(self, limit: int | None) -> int:
        """How many rows a page holds that was asked to hold at most this many."""
        if limit is not None and limit < 1:
            raise AuthoringError(f"a page holds at least one row, not {limit}")
        return min(limit or self._limits.page, self._limits.page)
