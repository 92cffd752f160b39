"""Accounts: how much of the server each user has in use. No user can use all of it.

`Accounts` counts connections, open spaces and questions of commands by user, and refuses those beyond the budgets of
`ServerLimits`. Users whom the server trusts have no account: every client of a server without keys, and the owner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from headwater.errors import LimitError
from headwater.server.operation.limits import ServerLimits


class Account:
    """The use of one user."""

    __slots__ = ("connections", "questions", "spaces", "unwritten")

    def __init__(self) -> None:
        self.connections = 0
        self.questions = 0
        self.spaces: Counter[str] = Counter()  # connections, by space
        self.unwritten: set[str] = set()  # of these, spaces that had no file when the user entered them

    @property
    def is_empty(self) -> bool:
        return not (self.connections or self.questions or self.spaces)


class Accounts:
    """The accounts of all users of one server. Used by the event loop's thread alone."""

    __slots__ = ("_accounts", "_limits", "_trusted")

    def __init__(self, limits: ServerLimits, trusted: Collection[str]) -> None:
        self._limits = limits
        self._trusted = frozenset(trusted)
        self._accounts: dict[str, Account] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    def connect(self, user: str) -> None:
        """Count one more connection of a user, which has to call `disconnect` at its end."""
        account = self._account(user)
        most = self._limits.token.connections
        # fault accounts.connections_uncounted: if False:
        if account.connections >= most and user not in self._trusted:
            raise LimitError(f"you have {most} connections, which is the limit. Close some first.")
        account.connections += 1

    def disconnect(self, user: str) -> None:
        self._accounts[user].connections -= 1
        self._drop_empty(user)

    def enter_space(self, user: str, space: str, *, is_written: bool) -> None:
        """Count one more connection of a user to a space, which has to call `leave_space` at its end."""
        account = self._account(user)
        if user not in self._trusted:
            self._check_spaces(account, space, is_written=is_written)
        if not is_written and space not in account.spaces:
            account.unwritten.add(space)
        account.spaces[space] += 1

    def _check_spaces(self, account: Account, space: str, *, is_written: bool) -> None:
        token, right = self._limits.token, self._limits.right
        if account.spaces[space] >= right.connections:
            raise LimitError(f"you have {right.connections} connections to this space, which is the limit. Close some.")
        if account.spaces[space]:
            return
        # fault accounts.spaces_uncounted: if False:
        if len(account.spaces) >= right.spaces or (not is_written and len(account.unwritten) >= token.spaces):
            # One text for both: it must not tell whether a space exists.
            raise LimitError("you have as many spaces open as the limit allows. Close some first.")

    def leave_space(self, user: str, space: str) -> None:
        account = self._accounts[user]
        account.spaces[space] -= 1
        if not account.spaces[space]:
            del account.spaces[space]
            account.unwritten.discard(space)
        self._drop_empty(user)

    @contextmanager
    def question(self, user: str) -> Iterator[None]:
        """Count one question of a command while it is answered."""
        account = self._account(user)
        most = self._limits.token.questions
        if account.questions >= most and user not in self._trusted:
            raise LimitError(f"you have {most} questions without an answer, which is the limit. Wait for one.")
        account.questions += 1
        try:
            yield
        finally:
            account.questions -= 1
            self._drop_empty(user)

    def _account(self, user: str) -> Account:
        return self._accounts.setdefault(user, Account())

    def _drop_empty(self, user: str) -> None:
        if self._accounts[user].is_empty:
            del self._accounts[user]
