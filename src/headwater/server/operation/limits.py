"""Every bound of the server, and the rate limit of one connection. The engine's bounds are in `engine.limits`."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.backoff import Backoff
from headwater.clock import Clock
from headwater.engine.limits import DEFAULT_LIMITS, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The cost of one peer to the server, by what the peer has proved. `ServerLimits` has one budget for each proof.

    A peer that has proved nothing is a stranger; a token proves a user; a right is what the access document of a space
    gives that user. The bounds on stored things of one user in one space are `Limits.user_...` of the engine.
    """

    connections: int  # sockets of all strangers together; connections of one user; of one user in one space
    message_bytes: int  # of one message; a longer one is refused by the header of its frame
    body_bytes: int  # of the body of one request
    seconds: float  # for a request or Hello, and for taking an answer; for a body, or Open after Hello
    questions: int  # questions at once: commands of one user; watches and queries of one connection without an answer
    spaces: int  # open at once for one user: spaces without a commit; all spaces


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Bounds on the requests of connections and on their cost."""

    engine: Limits = field(default=DEFAULT_LIMITS)
    nothing: Budget = Budget(
        connections=1_000, message_bytes=64 * 1024, body_bytes=0, seconds=10.0, questions=0, spaces=0
    )
    token: Budget = Budget(
        connections=1_000, message_bytes=1024 * 1024, body_bytes=1_000_000, seconds=10.0, questions=16, spaces=8
    )
    right: Budget = Budget(
        connections=256, message_bytes=64 * 1024 * 1024, body_bytes=1_000_000, seconds=10.0, questions=64, spaces=64
    )

    connections: int = 10_000
    spaces: int = 256  # with commits, open at once; beyond it a space without connections is closed
    unwritten_spaces: int = 64  # the same for spaces without a commit
    space_questions: int = 32  # of commands to one space without an answer; a further one is refused
    refusals_logged: int = 10  # a second, on average; all are counted
    message_bytes: int = 24 * 1024 * 1024  # a longer message is rejected; a commit has at most 12 MiB, more as JSON
    answer_bytes: int = 128 * 1024 * 1024  # of one message to a peer; a longer one is replaced by a problem
    rate: int = 20_000  # messages a second from one connection; a faster one is read more slowly
    burst: int = 40_000  # messages at once before `rate` applies
    in_flight_bytes: int = 64 * 1024 * 1024  # frames without a verdict; beyond it the connection is not read
    frames_at_once: int = 64  # frames of commits of one read that are submitted together
    long_answer_bytes: int = (
        64 * 1024
    )  # an answer of this length halves `questions`, one of twice this length leaves a third
    outgoing_bytes: int = 64 * 1024 * 1024  # waiting for the peer, except answers; beyond it the connection is closed
    renewal_cost: int = 200  # messages that the check of a renewed token counts as
    busy_s: float = 0.005  # a message waits so long while its space has much to do
    token_characters: int = 8_192
    listen_backlog: int = 2_048  # connections that the operating system accepts before the server does
    page_bytes: int = 4 * 1024 * 1024  # of one message of a page; a longer call fails
    page_looks: int = 2_000  # members that one page looks at
    page_calls: int = 256  # calls of one page under way; the page is read no further until one ends
    page_answers: int = 1_000  # answers that wait for one page; the page is read no further until it takes some
    aside_bytes: int = 64 * 1024  # a longer message, page or question is decoded on another thread
    copies: int = 4  # copies of spaces for `verify` that exist at once
    copy_s: float = 3_600.0  # an older copy is deleted
    ping_s: float = 20.0  # between two pings, and for the answer to one
    metrics_s: float = 1.0  # /metrics waits so long for a space, and shows its last figures for as long
    drain_s: float = 10.0  # a shutdown waits so long for peers to take their answers
    stop_s: float = 30.0  # a process that was asked to end ends after so long, with work unfinished if need be
    free_bytes: int = 64 * 1024 * 1024  # on the disk of the data; with fewer the server is not ready
    loop_every_s: float = 0.02  # between two looks at how long the event loop was held
    loop_held_s: float = 0.05  # a longer hold is counted
    token_s: int = 30 * 24 * 3_600  # a new token lasts so long, unless its maker says otherwise
    visit_topics: int = 500  # topics in one question about the reactions of a space
    visits: Backoff = field(default_factory=lambda: Backoff.exponential(base_ms=200, max_ms=30_000, jitter=0.2))
    question_reads: int = 1_000  # reads of another space in one question of a command to it
    question_failures: int = 1_000  # attempts in one question of a command about failures
    log_searched: int = 100_000  # newest commits that are searched for those of one branch
    listed_events: int = 1_000  # stored events in one answer to a command
    nodes_of_one_name: int = 100  # searched for a last run: an effect has one for each user and runtime
    suggestions: int = 8  # names in the message about a place that does not exist
    suggestion_page: int = 200  # documents of one page that is searched for such names
    suggestion_pages: int = 10


DEFAULT_SERVER_LIMITS = ServerLimits()


class RateLimit:
    """A token bucket: `burst` messages at once and `rate` a second in the long run."""

    __slots__ = ("_burst", "_clock", "_filled_us", "_left", "_rate")

    def __init__(self, rate: int, burst: int, clock: Clock) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._left = float(burst)
        self._filled_us = clock.monotonic_us()

    def charge(self, messages: int) -> None:
        """Count a message that costs as much as this many more."""
        self._left -= messages

    def is_spent(self) -> bool:
        """Count one message, unless that would exceed the rate now. Return whether it would."""
        if self.admit() == 0.0:
            return False
        self._left += 1
        return True

    def admit(self) -> float:
        """Count one message, and return the seconds to wait before it is processed."""
        now_us = self._clock.monotonic_us()
        self._left = min(self._burst, self._left + (now_us - self._filled_us) * self._rate / 1e6)
        self._filled_us = now_us
        self._left -= 1
        return -self._left / self._rate if self._left < 0 else 0.0
