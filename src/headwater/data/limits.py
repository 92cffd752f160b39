"""Bounds on a single value.

Owns `ValueLimits`: how deep, wide and long one value may be where it enters. It never limits documents,
commits or sessions; the engine has limits of its own. Invariant: `depth` never exceeds `MAX_DEPTH`, so
that the recursive functions of this layer stay far from the interpreter's recursion limit.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from headwater.errors import InvalidValueError

__all__ = ["DEFAULT_VALUE_LIMITS", "MAX_DEPTH", "STORED_VALUE_LIMITS", "ValueLimits"]

MAX_DEPTH: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLimits:
    """Bounds checked by `freeze` and `validate_patch`. All are inclusive."""

    depth: int = 64
    """Containers inside one another, and the steps of a path."""

    container_items: int = 1_000_000
    """Elements of one array, or keys of one object."""

    string_bytes: int = 16 * 1024 * 1024
    """UTF-8 bytes of one string, or the length of one `bytes`."""

    key_bytes: int = 16 * 1024
    """UTF-8 bytes of one object key or one text step of a path."""

    total_bytes: int = 64 * 1024 * 1024
    """Rough encoded size of the whole value. Also stops shared parts that unfold without end."""

    def __post_init__(self) -> None:
        for field in fields(self):
            number = getattr(self, field.name)
            if type(number) is not int or number < 1:
                raise InvalidValueError(f"ValueLimits.{field.name} is {number!r}: write an integer of at least 1")
        if self.depth > MAX_DEPTH:
            raise InvalidValueError(f"ValueLimits.depth is {self.depth}: write at most {MAX_DEPTH}")


DEFAULT_VALUE_LIMITS: Final = ValueLimits()

STORED_VALUE_LIMITS: Final = ValueLimits(
    depth=MAX_DEPTH,
    container_items=2**48,
    string_bytes=2**48,
    key_bytes=2**48,
    total_bytes=2**62,
)
"""For reading back values that were accepted earlier, perhaps under larger limits: form is checked, size is not."""
