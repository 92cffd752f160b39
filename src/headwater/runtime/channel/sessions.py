"""The sessions that a runtime acts for: those of its own connections, and sessions without a connection.

Sessions without a connection are the windows that an application names and the sessions of the runtime's further users.
Only their names guard their documents, since no connection opens these sessions. Therefore their names begin with
prefixes that no client may use (`RESERVED`): a client that reads such a name in a stored event, or guesses it, cannot
open a session under it. The session of a connection is guarded in its own space only, so the same window has another
session in another space (`UserSessions.there`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.data.ids import derive
from headwater.engine.log.sessions import BESIDE, RESERVED, WINDOWS
from headwater.errors import AuthoringError

if TYPE_CHECKING:
    from headwater.runtime.channel.channel import EngineChannel


def named(session: str) -> str:
    """Return the session of a window by the application's name for it."""
    if session.startswith(RESERVED):
        listed = ", ".join(map(repr, RESERVED))
        raise AuthoringError(
            f"session={session!r}: an application's name for a window does not begin with {listed}. Name it otherwise"
        )
    return f"{WINDOWS}{session}"


def called(session: str) -> str:
    """Return the application's name for a window, which is the name that authors see."""
    return session.removeprefix(WINDOWS)


def stable_name(session: str) -> str:
    """Return the name by which a later process knows a session: that of a named window; empty for any other session."""
    # fault sessions.windows_share_effects: return ""
    return session if session.startswith(WINDOWS) else ""


def beside(own: str, user: str) -> str:
    """Return the session of a runtime for a second user, or for a user or session that it does not know."""
    return f"{BESIDE}{derive('session', own, user)}"


class UserSessions:
    """Maps each space and user of one runtime to a session."""

    __slots__ = ("_channel", "_origin", "_users")

    def __init__(self, channel: Callable[[str], EngineChannel | None], origin: str) -> None:
        self._channel = channel  # returns the channel of a space by its name; None: the space has no engine
        self._origin = origin
        self._users: dict[str, str] = {}  # the user of the runtime's own session, by space

    def own(self, space: str) -> str:
        """Return the runtime's own session in a space."""
        channel = self._channel(space)
        return self._origin if channel is None else channel.driver.session.key

    def of(self, space: str, user: str) -> str:
        """Return the runtime's session for a user: its own for the first user, one beside it for each other user."""
        own = self.own(space)
        if not user or self._users.setdefault(space, user) == user:
            return own
        return beside(own, user)

    def asked(self, space: str, user: str) -> str:
        """Return the session of a user who only asks a serving runtime, and never gets the runtime's own session."""
        return beside(self.own(space), user) if user else self.own(space)

    def is_own(self, space: str, user: str, session: str) -> bool:
        """True if a session is the runtime's for this user, and no window that an application named."""
        own = self.own(space)
        if session == own:
            return not user or self._users.get(space, user) == user
        return session == beside(own, user)

    def called(self, space: str, user: str, said: str) -> str:
        """Return the session that an application means by its name for a window or by a value of `ctx.session`."""
        return said if not said or self.is_own(space, user, said) else named(said)

    def there(self, here: str, space: str, user: str, session: str) -> str:
        """Return the session of a window in another space, where its session in space `here` is not guarded."""
        if here == space or not session or session.startswith(RESERVED[:-1]):
            return session
        if not self.is_own(here, user, session):
            return beside(session, user)
        # A user who only asked, or came second, must not become the first user of another space by this call.
        is_first = session == self.own(here) or self._users.get(space) == user
        return self.of(space, user) if is_first else self.asked(space, user)
