"""How long to wait before trying again.

Owns the project's only backoff formulas: conflicted commits, reactions and reconnecting sessions all use
them. Never waits and never counts attempts; the caller does both.
"""

from __future__ import annotations

import enum
import functools
import inspect
import math
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, assert_never

from headwater.clock import Random
from headwater.errors import AuthoringError

__all__ = ["Backoff", "BackoffKind", "check_backoff"]

_P = ParamSpec("_P")

# A year. Longer waits are typing errors (seconds for milliseconds), and the bound keeps results in 64 bits.
LONGEST_MS = 31_536_000_000


class BackoffKind(enum.Enum):
    """Which formula a `Backoff` follows."""

    NONE = "none"
    FIXED = "fixed"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


def _authored(make: Callable[_P, Backoff]) -> Callable[_P, Backoff]:
    """Turns a call that does not fit the signature into an AuthoringError that shows the call to write."""
    parameters = inspect.signature(make).parameters
    required = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    called = f"Backoff.{make.__name__}"

    @functools.wraps(make)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> Backoff:
        problems = [
            *(f"{value!r} needs the name of its parameter" for value in args),
            *(f"there is no parameter {name}" for name in kwargs if name not in parameters),
            *(f"{name} is missing" for name in required if name not in kwargs and not args),
        ]
        if problems:
            write = ", ".join(f"{name}=..." for name in parameters)
            raise AuthoringError(f"{called}: {'; '.join(problems)}. Write {called}({write})")
        return make(*args, **kwargs)

    return checked


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """A schedule of delays. Make one with `none`, `fixed`, `linear` or `exponential`.

    With r = 0 at the first failure, the delay d is:

        none         0
        fixed        base_ms
        linear       min(base_ms * (r + 1), max_ms)
        exponential  min(base_ms * 2^r, max_ms)

    With jitter, each delay is drawn uniformly between d * (1 - jitter) and d * (1 + jitter), or `max_ms` if that is
    less: no delay is ever longer than `max_ms`, and at the cap jitter only shortens, so that callers that failed
    together do not try again together. A caller need not bound the number of failures that it counts.
    """

    kind: BackoffKind
    base_ms: float = 0
    max_ms: float = LONGEST_MS
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.kind, BackoffKind):
            raise AuthoringError(
                f"kind={self.kind!r} is not a BackoffKind: use Backoff.none, fixed, linear or exponential"
            )
        self._check("base_ms", self.base_ms, 0, LONGEST_MS, "milliseconds")
        self._check("max_ms", self.max_ms, self.base_ms, LONGEST_MS, "milliseconds, and at least base_ms")
        self._check("jitter", self.jitter, 0, 1, "a fraction")

    @staticmethod
    @_authored
    def none() -> Backoff:
        """Try again at once."""
        return Backoff(kind=BackoffKind.NONE)

    @staticmethod
    @_authored
    def fixed(*, base_ms: float, jitter: float = 0.0) -> Backoff:
        """Wait `base_ms` every time."""
        return Backoff(kind=BackoffKind.FIXED, base_ms=base_ms, jitter=jitter)

    @staticmethod
    @_authored
    def linear(*, base_ms: float, max_ms: float, jitter: float = 0.0) -> Backoff:
        """Wait `base_ms` longer after each failure, at most `max_ms`."""
        return Backoff(kind=BackoffKind.LINEAR, base_ms=base_ms, max_ms=max_ms, jitter=jitter)

    @staticmethod
    @_authored
    def exponential(*, base_ms: float, max_ms: float, jitter: float = 0.0) -> Backoff:
        """Wait twice as long after each failure, from `base_ms` to at most `max_ms`."""
        return Backoff(kind=BackoffKind.EXPONENTIAL, base_ms=base_ms, max_ms=max_ms, jitter=jitter)

    def delay_us(self, attempt: int, source: Random) -> int:
        """How long to wait after failure number `attempt`, counted from 0. Draws from `source` only if the
        schedule has jitter."""
        # fault+ retry.no_delay: return 20_000
        if isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 0:
            raise AuthoringError(f"Backoff.delay_us: attempt={attempt!r} must be an integer of 0 or more")
        try:
            wait_ms = min(self._uncapped_ms(attempt), self.max_ms)
        except OverflowError:
            wait_ms = self.max_ms
        if self.jitter:
            # fault backoff.no_spread_at_the_cap: low = wait_ms * (1 - self.jitter * (wait_ms < self.max_ms))
            low = wait_ms * (1 - self.jitter)
            wait_ms = low + (min(wait_ms * (1 + self.jitter), self.max_ms) - low) * source.random()
        return round(min(wait_ms, self.max_ms) * 1_000)

    def _uncapped_ms(self, attempt: int) -> float:
        match self.kind:
            case BackoffKind.NONE:
                return 0.0
            case BackoffKind.FIXED:
                return float(self.base_ms)
            case BackoffKind.LINEAR:
                return float(self.base_ms) * (attempt + 1)
            case BackoffKind.EXPONENTIAL:
                return math.ldexp(self.base_ms, attempt)
        assert_never(self.kind)

    def _check(self, name: str, value: float, low: float, high: float, unit: str) -> None:
        # Types are checked too: these values are written by hand, often in programs without a type checker.
        # `not (low <= value <= high)` is also true of NaN.
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not (low <= value <= high):
            raise AuthoringError(
                f"Backoff.{self.kind.value}: {name}={value!r} must be a number from {low} to {high} ({unit})"
            )


def check_backoff(option: str, value: object) -> Backoff:
    """Return `value` if it is a `Backoff`, and raise an AuthoringError that names the option otherwise.

    An option is checked where it is written: it is first used by a background task after a failure, where an error
    would reach no caller.
    """
    # fault backoff.unchecked: if False:
    if not isinstance(value, Backoff):
        raise AuthoringError(
            f"{option}={reprlib.repr(value)} is not a Backoff: write Backoff.none(), Backoff.fixed(base_ms=...), "
            "Backoff.linear(base_ms=..., max_ms=...) or Backoff.exponential(base_ms=..., max_ms=...)"
        )
    return value
