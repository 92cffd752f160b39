"""Sessions that are no connection: the windows that an application has names for, and those of its further users.

Their documents are guarded by nothing but their names, since nobody opens them as sessions. So these names begin in a
way that no client may: whoever reads one in a stored event, or guesses it, cannot open a session under it. Names only.
"""

from __future__ import annotations

from headwater.data.ids import derive
from headwater.engine.sessions import RESERVED, WINDOWS


def named(session: str) -> str:
    """The session of a window that an application calls so. The same for one that was named before; empty: none."""
    return session if not session or session.startswith(RESERVED) else f"{WINDOWS}{session}"


def called(session: str) -> str:
    """What the application calls that window: the name that authors meet."""
    return session.removeprefix(WINDOWS)


def beside(own: str, user: str) -> str:
    """The session that a runtime is for a second user, or that somebody has whom nobody knows."""
    return f"{WINDOWS}{derive('session', own, user)}"
