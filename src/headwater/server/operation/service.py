"""The state that all connections of one server share: spaces, keys, limits, metrics and the log.

The log has one JSON object a line on standard error. It names events, spaces and places in the code, and never contains
values of documents: of an error it has the class and the functions that raised it, not the message, which is written
for the user whose values it may quote. Errors of storage are the exception; their messages are about files.
"""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from headwater.clock import Clock, RealClock
from headwater.engine.admission.access import Founders
from headwater.errors import StorageError
from headwater.server.operation.accounts import Accounts
from headwater.server.operation.health import Health
from headwater.server.operation.keys import LOCAL, Keyring
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS, RateLimit, ServerLimits
from headwater.server.operation.loop_watch import LoopWatch
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
            format_places,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )
    return made


def describe_error(error: BaseException) -> str:
    """Return the class of an error; of an error of storage also its message."""
    named = type(error).__qualname__
    # fault service.values_in_log: return repr(error)
    return f"{named}: {error}" if isinstance(error, StorageError | OSError) else named


def format_places(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Replace an exception by the functions that raised it, its own last, and those of its causes. A log processor."""
    error = event.pop("exc_info", None)
    if isinstance(error, tuple):
        error = error[1]
    if isinstance(error, BaseException):
        event["error"] = describe_error(error)
        event["places"] = [
            f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
            for each in _with_causes(error)
            for frame in traceback.extract_tb(each.__traceback__, limit=-PLACES)
        ]
    return event


PLACES: Final = 20


def _with_causes(error: BaseException) -> list[BaseException]:
    """Return the causes of an error, the first one first, and the error."""
    found: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in found and len(found) < PLACES:
        found.append(each)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return found[::-1]


class LogRelay(logging.Handler):
    """A handler that passes entries of `logging`, as libraries write them, on to the server's log."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        super().__init__(logging.INFO)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info or None)


class Service:
    """Shared state of one server. Created on the event loop that serves the connections."""

    __slots__ = (
        "_keyring",
        "_refusal_rate",
        "accounts",
        "clock",
        "health",
        "insecure_local",
        "limits",
        "log",
        "loop_watch",
        "metrics",
        "owner",
        "spaces",
    )

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
        self.accounts = Accounts(limits, [self.owner] if self.owner else [])
        self._refusal_rate = RateLimit(limits.refusals_logged, 10 * limits.refusals_logged, self.clock)
        self.loop_watch = LoopWatch(self.clock, every_s=limits.loop_every_s, bound_s=limits.loop_held_s)
        self.metrics = Metrics(self.spaces.hosts, self.clock, limits.metrics_s)
        self.health = Health(directory, self.spaces, self.clock, limits)
        self.metrics.watch_server(self.loop_watch, self.spaces.count_broken, self.health.free_bytes)

    def authenticate(self, token: str) -> tuple[str, float | None]:
        """Return the user of a token and the seconds until the token expires."""
        if self.insecure_local:
            return LOCAL, None
        principal = self._keyring.principal(token)
        return principal.user, (principal.until_us - self.clock.now_us()) / 1e6

    def note_refusal(self, code: str, kind: str, space: str) -> None:
        """Count a connection that was refused, and log it unless strangers would fill the log with such lines."""
        self.metrics.refused.labels(code).inc()
        if not self._refusal_rate.is_spent():
            self.log.info("refused", code=code, kind=kind, space=space)

    def request_failed(self, route: str, error: Exception) -> None:
        """Log a defect that ends one request."""
        self.log.error("request failed", route=route[:100], exc_info=error)

    def _space_failed(self, space: str, error: BaseException) -> None:
        """Log that a space stopped, by a defect or a broken disk. Its clients reconnect; the server goes on. Any
        thread.
        """
        self.log.error("space failed", space=space, exc_info=error)

    def connection_failed(self, space: str, error: Exception) -> None:
        """Log a defect that ends one connection; the others go on. Any thread."""
        self.log.error("connection failed", space=space, exc_info=error)
