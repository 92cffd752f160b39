"""The state that all connections of one server share: spaces, keys, limits, metrics and the log.

The log has one JSON object a line on standard error. It names events and spaces, and never contains values of
documents.
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


class Timestamp:
    """A log processor that adds the time of the server's clock to each entry."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, _: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event["at"] = (_EPOCH + timedelta(microseconds=self._clock.now_us())).isoformat(timespec="microseconds")
        return event


def make_logger(clock: Clock, stream: TextIO | None = None, level: int = logging.INFO) -> FilteringBoundLogger:
    """Return a logger that writes entries of `level` and above as lines of JSON."""
    made: FilteringBoundLogger = structlog.wrap_logger(
        structlog.WriteLogger(stream or sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            Timestamp(clock),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )
    return made


class LogRelay(logging.Handler):
    """A handler that passes entries of `logging`, as libraries write them, on to the server's log."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        super().__init__(logging.INFO)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info or None)


class Service:
    """Shared state of one server. Created on the event loop that serves the connections."""

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
        """`owner` and `anyone_founds` decide who may create spaces; with `guarded` this process writes only to spaces
        of its owner.

        With `insecure_local`, on a directory without keys, every client is the user `local` and no token is checked.
        """
        self.clock = clock or RealClock()
        self.limits = limits
        self.log = log or make_logger(self.clock)
        self._keyring = Keyring(directory, self.clock, limits)
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
        """Return the user of a token and the seconds until the token expires."""
        if self.insecure_local:
            return LOCAL, None
        principal = self._keyring.principal(token)
        return principal.user, (principal.until_us - self.clock.now_us()) / 1e6

    def _space_failed(self, space: str, error: BaseException) -> None:
        """Log that a space stopped, by a defect or a broken disk. Its clients reconnect; the server goes on. Any
        thread.
        """
        self.log.error("space failed", space=space, error=repr(error), exc_info=error)

    def connection_failed(self, space: str, error: Exception) -> None:
        """Log a defect that ends one connection; the others go on. Any thread."""
        self.log.error("connection failed", space=space, error=repr(error), exc_info=error)
