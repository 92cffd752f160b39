"""What a resource shows: it is under way, it is there, or it failed; with the last value where there is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Failed", "Pending", "Ready"]

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Pending(Generic[T_co]):
    """Under way. Never stored: whoever looks while nothing is there sees it."""

    last: T_co | None = None
    __match_args__ = ("last",)


@dataclass(frozen=True, slots=True)
class Ready(Generic[T_co]):
    """There."""

    value: T_co
    __match_args__ = ("value",)


@dataclass(frozen=True, slots=True)
class Failed(Generic[T_co]):
    """It could not be had; `error` says why."""

    error: str
    last: T_co | None = None
    __match_args__ = ("error",)
