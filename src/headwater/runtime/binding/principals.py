"""Whether a name is this connection's own: then what it stored before is believed as it is believed now.

A connection is not told whose it is. What is one user's alone is answered to that user, so that this is found out by
asking for it, once per connection and name. The application itself may read everything, and is nobody by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.data.address import check_scope
from headwater.errors import InvalidValueError, LoadError
from headwater.protocol.messages import Query

if TYPE_CHECKING:
    from headwater.runtime.attached import Attached
    from headwater.runtime.core import Core


class Principals:
    """Whose one connection to a space is."""

    __slots__ = ("_channel", "_core", "_is_everybody", "_line", "_own")

    def __init__(self, core: Core, channel: Attached) -> None:
        self._core = core
        self._channel = channel
        self._line = -1  # the connection that this was found out on
        self._is_everybody: bool | None = None  # it may read what is anybody's; None: it was not asked yet
        self._own = ""  # the name that it has, if that is known

    def is_own(self, name: str) -> bool:
        """Whether it is known that a name is this connection's."""
        return bool(name) and name == self._own

    async def find_out(self, name: str) -> None:
        """LoadError: the connection was lost meanwhile."""
        line = self._channel.driver.reconnects
        if line != self._line:
            self._line, self._is_everybody, self._own = line, None, ""
        if not name or self._own or self._is_everybody:
            return
        if self._is_everybody is None:
            self._is_everybody = await self._may_read(self._core.clock.new_token())
        if not self._is_everybody and await self._may_read(name):
            self._own = name

    async def _may_read(self, name: str) -> bool:
        """Whether what is one user's alone is answered here."""
        try:
            scope = check_scope(f"user:{name}")
        except InvalidValueError:
            return False
        driver = self._channel.driver
        line = driver.reconnects
        try:
            await driver.query(Query(0, scope, limit=1))
        except LoadError:
            if driver.reconnects != line or not self._channel.is_up():
                raise
            return False
        return True
