"""What an author's function raised or returned, as far as it can be told. Owns what is a failure and what an interrupt.

Only whoever ends the program interrupts it. Everything else that comes out of a function is that function's own, also
what is no `Exception`: a cancelled future that it looked at cancels nothing here.
"""

from __future__ import annotations

import inspect
from typing import Final

from headwater.errors import AuthoringError

__all__ = ["INTERRUPTS", "as_failure", "check_plain"]

INTERRUPTS: Final = (KeyboardInterrupt, SystemExit)
"""These go through everything, to whoever runs the loop."""


def as_failure(error: BaseException) -> Exception:
    """The failure that it is. What is no Exception is told with one around it, so that nobody else takes it up."""
    if isinstance(error, Exception):
        return error
    failure = AuthoringError(
        f"{type(error).__name__} came out of a function that is called here, and is no Exception: catch it there"
    )
    failure.__cause__ = error
    return failure


def check_plain(who: str, result: object) -> None:
    """What a function returned is a value that is there, not one that somebody would have to wait for."""
    if inspect.iscoroutine(result):
        result.close()
        raise AuthoringError(f"{who} returned a coroutine: a run never awaits. Make it a plain function.")
