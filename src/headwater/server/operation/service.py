"""What the connections of one server share: its spaces, its keys, its limits, its figures and its log.

The server's log: one JSON object a line on standard error. Says what happened, never what documents hold.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from headwater.clock import Clock, RealClock
from headwater.engine.admission.access import Founders
from headwater.server.operation.keys import LOCAL, Keyring
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS, ServerLimits
from headwater.server.operation.metrics import Metrics
from headwater.server.operation.spaces import Spaces

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Stamp:
    """Adds the time, from the clock that everything else uses."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, _: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event["at"] = (_EPOCH + timedelta(microseconds=self._clock.now_us())).isoformat(timespec="microseconds")
        return event


def logger(clock: Clock, stream: TextIO | None = None, level: int = logging.INFO) -> FilteringBoundLogger:
    """A logger that writes lines of JSON, of a level and above."""
    made: FilteringBoundLogger = structlog.wrap_logger(
        structlog.WriteLogger(stream or sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            Stamp(clock),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )
    return made


class Relay(logging.Handler):
    """Passes on what libraries say through `logging`."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        super().__init__(logging.INFO)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info or None)


class Service:
    """Made on the event loop it serves. `insecure_local`: everybody is the user `local`, no token is looked at."""

    __slots__ = ("_keyring", "clock", "insecure_local", "limits", "log", "metrics", "owner", "ready", "spaces")

    def __init__(
        self,
        directory: str | Path,
        *,
        insecure_local: bool = False,
        clock: Clock | None = None,
        limits: ServerLimits = DEFAULT_SERVER_LIMITS,
        log: FilteringBoundLogger | None = None,
        owner: str = "",
        anyone_founds: bool = False,
        guarded: bool = False,
    ) -> None:
        """`owner` and `anyone_founds`: who may make spaces. `guarded`: this process writes only to its spaces."""
        self.clock = clock or RealClock()
        self.limits = limits
        self.log = log or logger(self.clock)
        self._keyring = Keyring(directory, self.clock)
        self.insecure_local = insecure_local and not len(self._keyring)
        self.owner = LOCAL if self.insecure_local else owner
        self.spaces = Spaces(
            directory,
            clock=self.clock,
            limits=limits,
            on_failed=self._space_failed,
            on_peer_failed=self.connection_failed,
            founders=Founders(
                self.owner, anyone=anyone_founds or self.insecure_local, guarded=guarded and not self.insecure_local
            ),
        )
        self.metrics = Metrics(self.spaces.hosts, self.clock, limits.metrics_s)
        self.ready = True

    def authenticate(self, token: str) -> tuple[str, float | None]:
        """Who bears a token, and for how many seconds it is still good."""
        if self.insecure_local:
            return LOCAL, None
        principal = self._keyring.principal(token)
        return principal.user, (principal.until_us - self.clock.now_us()) / 1e6

    def _space_failed(self, space: str, error: BaseException) -> None:
        """Any thread. A bug of ours or a broken disk: everybody in the space starts over, the server stays up."""
        self.log.error("space failed", space=space, error=repr(error), exc_info=error)

    def connection_failed(self, space: str, error: Exception) -> None:
        """Any thread. A bug of ours about one connection, which ends: everybody else goes on."""
        self.log.error("connection failed", space=space, error=repr(error), exc_info=error)
