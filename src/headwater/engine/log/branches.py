"""The branches of a space: named lines of its history.

A fork is one row: a document that the branch has not written is read from its parent, as of the fork. Branch names are
never reused, and every space has `main`, which cannot be deleted. Seqs are one sequence for the whole space, so that a
seq is a moment on every branch.
"""

from __future__ import annotations

import re
from typing import Final

from headwater.engine.limits import Limits
from headwater.engine.store.port import BranchRow, Store
from headwater.errors import AbsentError, AuthoringError, CorruptionError
from headwater.protocol.commit import MAIN

_NAME: Final = re.compile(r"[a-z][a-z0-9._-]{0,63}")
MAIN_ID: Final = 1


class Branch:
    """One branch. `parent` is None for main only."""

    __slots__ = ("depth", "id", "parent", "row")

    def __init__(self, row: BranchRow, parent: Branch | None) -> None:
        self.row = row
        self.id = row.branch
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent is not None else 0

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def fork_seq(self) -> int:
        return self.row.fork_seq

    def shows(self, branch: int, seq: int) -> bool:
        """C11: True if this branch shows a commit that was made on `branch` at `seq`."""
        at: Branch | None = self
        while at is not None:
            # fault branches.every_branch_shown: if True:
            if at.id == branch:
                return True
            if seq > at.fork_seq:
                return False
            at = at.parent
        return False


class Branches:
    """All branches of a space, deleted ones included, since their names stay taken."""

    __slots__ = ("_by_id", "_by_name", "_limits", "_store")

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self.reload()

    def reload(self) -> None:
        """Read all branches from the store again."""
        self._by_id: dict[int, Branch] = {}
        self._by_name: dict[str, Branch] = {}
        for row in self._store.branches():
            self._remember(row)

    def _remember(self, row: BranchRow) -> Branch:
        if row.parent and row.parent not in self._by_id:
            raise CorruptionError(f"branch {row.name!r} has a parent that is not stored. Restore a backup.")
        branch = Branch(row, self._by_id.get(row.parent))
        self._by_id[row.branch] = branch
        self._by_name[row.name] = branch
        return branch

    def get(self, name: str) -> Branch:
        """Return a branch by its name. AbsentError: there is none."""
        branch = self._by_name.get(name)
        if branch is None or branch.row.deleted:
            gone = "was deleted" if branch is not None else "does not exist"
            raise AbsentError(f"branch {name!r} {gone}. `headwater branch list` shows those that do.")
        return branch

    def find(self, name: str) -> Branch | None:
        """Return a branch by its name, if there is one."""
        branch = self._by_name.get(name)
        # fault branches.deleted_branch_found: return branch
        return None if branch is None or branch.row.deleted else branch

    def is_deleted(self, branch: int) -> bool:
        """Return whether the branch with a number was deleted."""
        if branch not in self._by_id:
            raise CorruptionError(
                f"the log has commits on branch number {branch}, which is not stored. Restore a backup."
            )
        return self._by_id[branch].row.deleted

    def live(self) -> list[Branch]:
        """Return the branches that were not deleted."""
        return [branch for branch in self._by_id.values() if not branch.row.deleted]

    def children(self, branch: Branch) -> list[Branch]:
        """Return the branches that were forked from a branch."""
        return [other for other in self.live() if other.parent is branch]

    def ensure_main(self, now_us: int) -> None:
        """Called inside the transaction that makes a new space."""
        if MAIN_ID not in self._by_id:
            row = BranchRow(MAIN_ID, MAIN, 0, 0, now_us, False, 0)
            self._store.put_branch(row)
            self._remember(row)

    def fork(self, name: str, parent: Branch, at_seq: int, now_us: int) -> Branch:
        """One row, however long the history is."""
        if not _NAME.fullmatch(name):
            raise AuthoringError(
                f"{name!r} is not a branch name: use 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter"
            )
        if name in self._by_name:
            taken = "was the name of a deleted branch" if self._by_name[name].row.deleted else "already exists"
            raise AuthoringError(f"branch {name!r} {taken}. Names are never reused: choose another.")
        if parent.depth >= self._limits.branch_depth:
            raise AuthoringError(
                f"branch {parent.name!r} is {parent.depth} forks away from {MAIN!r}, which is the limit: merge first"
            )
        row = BranchRow(max(self._by_id) + 1, name, parent.id, at_seq, now_us, False, 0)
        self._store.put_branch(row)
        return self._remember(row)

    def record_merge(self, branch: Branch, through: int) -> None:
        """Store the seq up to which a branch was merged into its parent."""
        branch.row = branch.row._replace(merged_seq=through)
        self._store.put_branch(branch.row)

    def delete(self, branch: Branch) -> None:
        """Delete a branch without branches of its own. Its rows of the log stay."""
        if branch.parent is None:
            raise AuthoringError(f"branch {MAIN!r} cannot be deleted")
        children = self.children(branch)
        if children:
            names = ", ".join(sorted(child.name for child in children))
            raise AuthoringError(f"branch {branch.name!r} has branches of its own ({names}): delete those first")
        branch.row = branch.row._replace(deleted=True)
        self._store.put_branch(branch.row)
        self._store.drop_branch_data(branch.id)
