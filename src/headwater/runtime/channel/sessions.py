"""Windows: the sessions that a runtime acts for. Its own connections are some; the others are no connection at all.

Those others are the windows that an application has names for, and those of its further users. Their documents are
guarded by nothing but their names, since nobody opens them as sessions. So these names begin in a way that no client
may: whoever reads one in a stored event, or guesses it, cannot open a session under it. The session of a connection is
guarded in its own space only, so that it is another one where it leads into another space.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.data.ids import derive
from headwater.engine.log.sessions import BESIDE, RESERVED, WINDOWS
from headwater.errors import AuthoringError

if TYPE_CHECKING:
    from headwater.runtime.api.runtime import Runtime


def named(session: str) -> str:
    """The session of a window that an application calls so."""
    if session.startswith(RESERVED):
        listed = ", ".join(map(repr, RESERVED))
        raise AuthoringError(
            f"session={session!r}: an application's name for a window does not begin with {listed}. Name it otherwise"
        )
    return f"{WINDOWS}{session}"


def called(session: str) -> str:
    """What the application calls that window: the name that authors meet."""
    return session.removeprefix(WINDOWS)


def beside(own: str, user: str) -> str:
    """The session that a runtime is for a second user, or that somebody has whom nobody knows."""
    return f"{BESIDE}{derive('session', own, user)}"


class UserSessions:
    """Which session one runtime is, in each of its spaces and for each of its users."""

    __slots__ = ("_origin", "_runtime", "_users")

    def __init__(self, runtime: Runtime, origin: str) -> None:
        self._runtime = runtime
        self._origin = origin
        self._users: dict[str, str] = {}  # whose the runtime's own session is, by space

    def own(self, space: str) -> str:
        """The session that the runtime is to a space."""
        channel = self._runtime.channel(space)
        return self._origin if channel is None else channel.driver.session.key

    def of(self, space: str, user: str) -> str:
        """The session that it is for a user: its own, and for a second user one beside it."""
        own = self.own(space)
        if not user or self._users.setdefault(space, user) == user:
            return own
        return beside(own, user)

    def asked(self, space: str, user: str) -> str:
        """The session of somebody who only asks a serving runtime, and never has its own."""
        return beside(self.own(space), user) if user else self.own(space)

    def is_own(self, space: str, user: str, session: str) -> bool:
        """Whether nobody named it: it is the one that the runtime is for this user."""
        own = self.own(space)
        return session == beside(own, user) or (session == own and (not user or self._users.get(space, user) == user))

    def called(self, space: str, user: str, said: str) -> str:
        """The session that an application means: what it calls a window, or what `ctx.session` told it."""
        return said if not said or self.is_own(space, user, said) else named(said)

    def there(self, here: str, space: str, user: str, session: str) -> str:
        """The session that a window of one space is in another one, where nobody guards it under its own name."""
        if here == space or not session or session.startswith(RESERVED[:-1]):
            return session
        if not self.is_own(here, user, session):
            return beside(session, user)
        # Whoever only asked, or came second, is not made the first user of another space by what follows from it.
        is_first = session == self.own(here) or self._users.get(space) == user
        return self.of(space, user) if is_first else self.asked(space, user)
