"""Failures: the message to the error channel, and the classification of errors and results of author functions.

Only `KeyboardInterrupt` and `SystemExit` interrupt the program. Every other error that leaves an author function is a
failure of that function, including errors that are not an `Exception`: for example, the `CancelledError` of a future
that the function inspected cancels nothing in the scheduler.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Final

from headwater.errors import AuthoringError

__all__ = ["INTERRUPTS", "Failure", "UndeclaredWriteError", "as_failure", "check_plain"]

INTERRUPTS: Final = (KeyboardInterrupt, SystemExit)
"""Errors that pass through every handler up to the caller that runs the event loop."""


class UndeclaredWriteError(AuthoringError):
    """A node writes an address that it did not declare."""

    def __init__(self, message: str, address: str) -> None:
        super().__init__(message)
        self.address = address


@dataclass(frozen=True, slots=True)
class Failure:
    """A message to the error channel: the node, the error, and the causes of the run."""

    node: str
    error: Exception
    causes: tuple[str, ...] = ()

    def noted(self) -> Exception:
        """Return the error with the node and the causes as notes, which a traceback shows."""
        note = f"in {self.node}"
        if note not in getattr(self.error, "__notes__", ()):
            self.error.add_note(note)
            for cause in self.causes:
                self.error.add_note(f"because of {cause}")
        return self.error


def as_failure(error: BaseException) -> Exception:
    """Return an error as a failure.

    An error that is not an `Exception` is wrapped in an `AuthoringError`, so that no handler further out mistakes it
    for its own signal.
    """
    if isinstance(error, Exception):
        return error
    failure = AuthoringError(
        f"{type(error).__name__} was raised by a function that is called here, and is not an Exception: catch it there"
    )
    failure.__cause__ = error
    return failure


def check_plain(who: str, result: object) -> None:
    """Raise `AuthoringError` if a function returned a coroutine: the caller needs a value, and a run never awaits."""
    if inspect.iscoroutine(result):
        result.close()
        raise AuthoringError(f"{who} returned a coroutine: a run never awaits. Make it a plain function.")
