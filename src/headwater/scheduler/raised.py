"""What an author's function raised, as a failure that can be told. Owns the difference between that and an interrupt.

Only whoever ends the program interrupts it. Everything else that comes out of a function is that function's own, also
what is no `Exception`: a cancelled future that it looked at cancels nothing here.
"""

from __future__ import annotations

from typing import Final

from headwater.errors import AuthoringError

__all__ = ["INTERRUPTS", "as_failure"]

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
