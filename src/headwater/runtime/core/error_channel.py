"""The error channel of a runtime: reports every failure that no caller awaits to the listeners.

Without a listener a failure is logged by the logger `headwater`, which writes to standard error unless the program
configures logging otherwise, and the last `unheard_failures` are kept for the first listener that comes later. A
failure is reported once: a node that only read a value that could not be computed (`UpstreamFailedError`) adds no
second report. The failure of a listener is reported to the other listeners. The channel makes no decisions.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from headwater.cells.runtime_port import Subscription
from headwater.errors import AuthoringError, UpstreamFailedError, cut_frames
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.scheduler.failures import INTERRUPTS, Failure, as_failure

LISTENER: Final = "a listener of errors"
_LOG: Final = logging.getLogger("headwater")


class ErrorChannel:
    """The listeners of one runtime, and the failures that no listener has received yet."""

    __slots__ = ("_listeners", "_unheard")

    def __init__(self) -> None:
        self._listeners: list[Callable[[Failure], object]] = []
        self._unheard: deque[Failure] = deque(maxlen=RUNTIME_LIMITS.unheard_failures)

    def listen(self, listener: Callable[[Failure], object]) -> Subscription:
        """Call `listener` with every failure, including kept failures from before the first listener."""
        if inspect.iscoroutinefunction(listener):
            raise AuthoringError("a listener of errors is not awaited: write a plain function that starts a task")
        self._listeners.append(listener)
        for _ in range(len(self._unheard)):
            self._tell(listener, self._unheard.popleft())

        def close() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return Subscription(close)

    def warn(self, warning: str) -> None:
        """Log a warning. It is no failure, so that no listener is called."""
        _LOG.warning("%s", warning)

    def tell(self, failure: Failure) -> None:
        if isinstance(failure.error, UpstreamFailedError) and failure.error.__cause__ is not None:
            return
        cut_frames(failure.error)
        if not self._listeners:
            self._log(failure)
        for listener in tuple(self._listeners):
            self._tell(listener, failure)

    def _tell(self, listener: Callable[[Failure], object], failure: Failure) -> None:
        try:
            result = listener(failure)
            if inspect.iscoroutine(result):
                result.close()
                raise AuthoringError("it returned a coroutine, which is never awaited: start a task in it")
        except INTERRUPTS:
            raise
        except BaseException as error:  # Reported to the other listeners, or kept for a later one.
            told = Failure(LISTENER, as_failure(error), (f"it was called for {failure.node}: {failure.error}",))
            others = [other for other in self._listeners if other is not listener]
            if not others or failure.node == LISTENER:
                self._log(told)
            else:
                for other in others:
                    self._tell(other, told)

    def _log(self, failure: Failure) -> None:
        """Log a failure that has no listener, and keep it for a later one."""
        self._unheard.append(failure)
        because = f" (because of {', '.join(failure.causes)})" if failure.causes else ""
        _LOG.error("%s failed%s", failure.node, because, exc_info=failure.error)
