"""Named leases: the right to act on something, fenced by a token that rises with every new holder.

A commit that carries `lease_held` with an old token is refused for good, however late it arrives. A holder whose lease
ran out keeps the token until another one takes it over: nothing has to tick.
"""

from __future__ import annotations

from headwater.clock import Clock
from headwater.data.value import MAX_INT
from headwater.engine.store.port import LeaseRow, Store
from headwater.errors import AuthoringError
from headwater.protocol.reactions import LEASE_PREFIX


class Leases:
    """Named leases of one space, on the engine's wall clock. The caller holds an open store transaction."""

    __slots__ = ("_clock", "_store")

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def acquire(self, name: str, holder: str, duration_us: int) -> LeaseRow | None:
        """A new lease with a higher token, or None while another holder's runs."""
        if name.startswith(LEASE_PREFIX):
            raise AuthoringError(
                f"lease {name!r} is a target's, which is claimed and not acquired. Choose another name."
            )
        self._check(duration_us)
        now = self._clock.now_us()
        current = self._store.lease(name)
        if current is not None and current.until_us > now and current.holder != holder:
            return None
        lease = LeaseRow(name, current.token + 1 if current else 1, holder, now + duration_us)
        self._store.put_lease(lease)
        return lease

    def renew(self, name: str, token: int, duration_us: int) -> bool:
        """Extend a lease. False: another holder has it now."""
        self._check(duration_us)
        current = self._store.lease(name)
        if current is None or current.token != token or not current.holder:
            return False
        self._store.put_lease(current._replace(until_us=self._clock.now_us() + duration_us))
        return True

    def release(self, name: str, token: int) -> bool:
        """Let it run out now. The token stays taken, so that late commits are still refused."""
        current = self._store.lease(name)
        if current is None or current.token != token or not current.holder:
            return False
        self._store.put_lease(current._replace(token=token + 1, holder="", until_us=0))
        return True

    def _check(self, duration_us: int) -> None:
        if not 0 < duration_us <= MAX_INT // 2:
            raise AuthoringError(f"a lease lasts from 1 to {MAX_INT // 2} microseconds, not {duration_us}")
