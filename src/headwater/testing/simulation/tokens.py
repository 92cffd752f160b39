"""Access tokens of a simulated space: their users, and their ends.

`TokenHolder` has the tokens of a user, and gets the next one: mostly in time, on the present connection
(`Session.renew`), sometimes too late. The content of a token is written in it; the server checks it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headwater.clock import Random, VirtualClock
from headwater.errors import AccessError
from headwater.protocol.messages import Hello, Problem, Renew
from headwater.testing.simulation.trace import Trace

LASTING_US: Final = (400_000, 1_500_000, 30_000_000)
SHORT_TOKENS: Final = 6  # of one process; then it is given one that never ends, so that a history ends
OVER: Final = "the token is over"


def token_of(user: str, until_us: int = 0) -> str:
    """A token that is good until a moment; 0: for ever."""
    return f"{user}/{until_us}" if until_us else user


def read_token(token: str) -> tuple[str, int]:
    user, _, until_us = token.partition("/")
    return user, int(until_us or 0)


def authenticated(token: str, now_us: int) -> str:
    """Whose token it is. AccessError: it is over."""
    user, until_us = read_token(token)
    if 0 < until_us <= now_us:
        raise AccessError(f"{OVER}. Renew it before that, or connect again with a new one.")
    return user


class TokenHolder:
    """The tokens of one process, one after the other."""

    __slots__ = ("_clock", "_draws", "_is_unsaid", "_left", "_renewed", "_sent", "_trace", "_user", "_who", "token")

    def __init__(self, who: str, user: str, clock: VirtualClock, draws: Random, trace: Trace) -> None:
        self._who = who
        self._user = user
        self._clock = clock
        self._draws = draws
        self._trace = trace
        self._left = SHORT_TOKENS if draws.random() < 0.25 else 0
        self._sent: list[str] = []  # renewals on this connection without an answer
        self._renewed = ""  # the last that was answered on it
        self._is_unsaid = False  # one is to go out now
        self.token = ""
        self.next()

    def next(self) -> str:
        """Another token for the same user."""
        until_us = 0
        if self._left > 0:
            self._left -= 1
            until_us = self._clock.now_us() + self._draws.choice(LASTING_US)
        self.token = token_of(self._user, until_us)
        return self.token

    def is_endless(self) -> bool:
        return not read_token(self.token)[1]

    def calm(self) -> None:
        """From now on tokens last."""
        self._left = 0

    def later(self, renew: Callable[[], object]) -> None:
        """Get the next one in time; sometimes that is too late."""
        token, now_us = self.token, self._clock.now_us()
        until_us = read_token(token)[1]

        def unless_renewed() -> None:
            if self.token == token:
                renew()

        if until_us:
            wait_us = int((until_us - now_us) * self._draws.choice((0.3, 0.5, 0.7, 1.2)))
            self._clock.call_at(now_us + max(0, wait_us), unless_renewed)

    # ---- messages ------------------------------------------------------------------------------------

    def connected(self) -> None:
        """Another connection, which begins with a greeting."""
        self._sent.clear()
        self._renewed = ""

    def says(self, message: Hello | Renew) -> None:
        """Note the newest token, which the process uses when it introduces itself."""
        self._is_unsaid &= not isinstance(message, Renew)
        if message.token != self.token:
            self._trace.broken("token", self._who, f"it says {message.token!r} and has {self.token!r}")

    def renewing(self) -> None:
        """The next token goes out on a live connection, and is owed an answer."""
        self._sent.append(self.token)
        self._is_unsaid = True

    def check_said(self) -> None:
        """A token that is renewed while there is a connection goes out on it."""
        if self._is_unsaid and self._sent:
            self._trace.broken("token", self._who, f"{self.token!r} is not told, although there is a connection")
        self._is_unsaid = False

    def renewed(self) -> None:
        if not self._sent:
            self._trace.broken("token", self._who, "a token was renewed that it never sent")
            return
        self._renewed = self._sent.pop(0)
        self._trace.counts["tokens renewed on a live connection"] += 1

    @property
    def is_answered(self) -> bool:
        return not self._sent

    def was_over(self, problem: Problem) -> bool:
        """Whether a connection was ended because of its token, which must not happen to one that was renewed."""
        if not problem.message.startswith(OVER):
            return False
        self._trace.counts["tokens that were over"] += 1
        until_us, now_us = read_token(self._renewed)[1] if self._renewed else 1, self._clock.now_us()
        is_late = any(0 < read_token(sent)[1] <= now_us for sent in self._sent)  # one was over when it arrived
        if (not until_us or until_us > now_us) and not is_late:
            self._trace.broken("token", self._who, f"it was renewed until {until_us} and ended as if it was over")
        return True
