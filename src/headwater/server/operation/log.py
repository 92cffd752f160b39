"""The server's log: one JSON object a line on standard error. Says what happened, never what documents hold."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime, timedelta
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from headwater.clock import Clock

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
