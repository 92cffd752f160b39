"""Diff and merge of a branch with its parent.

A diff compares the branch with the documents of its parent. A change collides when the parent has an overlapping write
since the fork, by the same index that admission asks. A merge without collisions is one ordinary commit on the parent;
with collisions it writes nothing and reports them all.

Derived values are not merged. A document that only derived commits changed on the branch is no part of a diff, and does
not collide: the parent's nodes read what is merged, and derive their values again when they are demanded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headwater.data.address import Depth, DocKey
from headwater.data.diff import diff
from headwater.data.patch import Patch
from headwater.data.value import ABSENT, Absent, MaybeValue
from headwater.engine.admission.admission import Admission
from headwater.engine.limits import Limits
from headwater.engine.log.branches import Branch, Branches
from headwater.engine.log.heads import Heads
from headwater.engine.log.history import History
from headwater.engine.log.log import Log
from headwater.engine.log.sessions import StoredSession, merge_session
from headwater.engine.log.write_index import NO_SESSION_ID
from headwater.engine.store.port import HeadRow, Store
from headwater.errors import AuthoringError, CorruptionError, LimitError
from headwater.protocol.commit import Commit, Operation, Provenance, Read
from headwater.protocol.verdict import Accepted, Collision, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentDiff:
    """One document that a branch changed, and the patches that lead there from its parent."""

    doc: DocKey
    patches: tuple[Patch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchDiff:
    """The changes that a branch would bring to its parent, and the collisions that prevent it."""

    branch: str
    parent: str
    since: int  # the branch's seq that the parent already knows
    through: int  # the branch's seq that this diff includes
    changes: tuple[DocumentDiff, ...]
    collisions: tuple[Collision, ...]  # of these changes
    next: str | None  # the cursor that continues after these documents; None: there are no more


class Merge:
    """Compares branches and prepares the commit that merges one."""

    __slots__ = ("_admission", "_branches", "_heads", "_history", "_limits", "_log", "_store")

    def __init__(
        self,
        store: Store,
        log: Log,
        heads: Heads,
        branches: Branches,
        admission: Admission,
        history: History,
        limits: Limits,
    ) -> None:
        self._admission = admission
        self._heads = heads
        self._branches = branches
        self._history = history
        self._store = store
        self._log = log
        self._limits = limits

    def diff(self, branch: Branch, after: str, limit: int | None) -> BranchDiff:
        """A page of changed documents, in the order in which the space first wrote them."""
        return self._diff(branch, _number_of_cursor(after), self._history.page_size(limit))

    def _diff(self, branch: Branch, after: int, size: int | None) -> BranchDiff:
        parent = branch.parent
        if parent is None:
            raise AuthoringError(f"branch {branch.name!r} has no parent to compare with")
        since = branch.row.merged_seq or branch.fork_seq
        through = self._history.checked_seq(branch, None)
        self._heads.write_back()
        changes: list[DocumentDiff] = []
        collisions: list[Collision] = []
        following: str | None = None
        for row in self._changed(branch, since, after):
            if len(changes) == size:
                following = str(after)
                break
            after = row.doc
            key = self._store.key_of(row.doc)
            if key is None:
                raise CorruptionError(f"document {row.doc} has a head but no name")
            if self._log.only_derived(row.seq, key, after=since):
                continue
            before = self._known_to(parent, branch, key, row.doc, since)
            patches = diff(before, self._heads.get(branch, key).value)
            if patches:
                changes.append(DocumentDiff(doc=key, patches=patches))
                # fault merge.collisions_ignored: pass
                collisions += self._collisions(branch, parent, key, patches)
            self._heads.trim()
        return BranchDiff(
            branch=branch.name,
            parent=parent.name,
            since=since,
            through=through,
            changes=tuple(changes),
            collisions=tuple(collisions),
            next=following,
        )

    def prepare_commit(self, branch: Branch, session: StoredSession) -> tuple[BranchDiff, Commit | None]:
        """The diff, and the commit that would merge it: None if it is empty or collides."""
        found = self._diff(branch, 0, None)  # one commit, or nothing: a merge has no pages
        if found.collisions or not found.changes:
            return found, None
        if len(found.changes) > self._limits.commit_operations:
            raise LimitError(
                f"branch {branch.name!r} changed {len(found.changes)} documents; one commit may change "
                f"{self._limits.commit_operations}. Raise `commit_operations` to merge it."
            )
        return found, Commit(
            session.last + 1,
            # fault merge.one_document_only: tuple(Operation(each.doc, each.patches) for each in found.changes[-1:]),
            tuple(Operation(change.doc, change.patches) for change in found.changes),
            branch=found.parent,
            provenance=Provenance(f"merge of {branch.name}"),
        )

    def record_merge(self, branch: Branch, verdict: Verdict, merged: BranchDiff) -> None:
        """Record the branch's seq that the parent has now, so that the next merge brings only newer changes."""
        if isinstance(verdict, Accepted):
            self._branches.record_merge(branch, merged.through)

    def _known_to(self, parent: Branch, branch: Branch, key: DocKey, doc: int, since: int) -> MaybeValue:
        """The value of the branch that its parent already has: none of a document that earlier merges left out."""
        head = self._heads.get(parent, key)
        if not head.seq and isinstance(head.value, Absent):
            return ABSENT
        return self._heads.value_at(branch, key, doc, since)[0]

    def _changed(self, branch: Branch, since: int, after: int) -> Iterator[HeadRow]:
        while rows := self._store.heads_of_branch(branch.id, after, self._limits.page):
            yield from (row for row in rows if row.seq > since)
            after = rows[-1].doc

    def _collisions(self, branch: Branch, parent: Branch, key: DocKey, patches: tuple[Patch, ...]) -> list[Collision]:
        """Find the parent's writes since the fork, which the branch never saw, that its changes would overwrite.

        Merges of this very branch are left out: the branch made those changes.
        """
        head = self._heads.get(parent, key)
        if head.seq <= branch.fork_seq:
            return []
        # As a whole, the document is merged over what the parent derived meanwhile: a deleted piece is one case.
        is_whole = all(not patch.path for patch in patches)
        if is_whole and self._log.only_derived(head.seq, key, after=branch.fork_seq):
            return []
        merges = self._store.session_of(merge_session(branch.name))
        marks = self._heads.complete_index(parent, head)
        found = []
        for patch in patches:
            seq = marks.latest(patch.path, Depth.DEEP, merges.session if merges is not None else NO_SESSION_ID)
            if seq > branch.fork_seq:
                found.append(self._admission.collision(Read(key, patch.path, Depth.DEEP, branch.fork_seq), seq))
        return found


def _number_of_cursor(cursor: str) -> int:
    """Where a page of a difference begins: after this document's number."""
    if not cursor:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):
        raise AuthoringError(f"{cursor!r} is not a cursor of a difference: pass `next` of the previous page")
    return int(cursor)
