"""Claims: which runtime does work that one of several is to do, and whether that one can still be at it.

A claim holds until it is released, or runs out because nobody renews it. Whoever was cut off from its server goes on
working, and keeps it as long. One process at a time owns a directory: of a claim that was made in another life of that
process, or by anybody at all if nobody can connect to it, nobody has to wait for the end. Decides; never writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headwater.cells.model import Model

if TYPE_CHECKING:
    from headwater.runtime.attachment import Attachment

CLAIM_US: Final = 30_000_000
"""How long a claim holds that is not renewed."""


class Claim(Model):
    """Who works on it, for which input, and until when that holds."""

    wanted: str
    by: str
    until_us: int


class Worker:
    """What one runtime is called in its claims."""

    __slots__ = ("_is_only", "_life", "name")

    def __init__(self, attachment: Attachment, origin: str) -> None:
        # An attachment need not know: then its runtime is one of any number, here and elsewhere.
        self._life: str = getattr(attachment, "life", "")
        self._is_only: bool = getattr(attachment, "is_only", False)
        self.name = f"{self._life}/{origin}" if self._life else origin

    def has(self, claim: Claim | None) -> bool:
        return claim is not None and claim.by == self.name

    def waits_for(self, claim: Claim, wanted: str, now_us: int) -> bool:
        """Whether the work is somebody else's, who may still be at it."""
        if claim.wanted != wanted or claim.by == self.name or claim.until_us <= now_us:
            return False
        life, is_owner, _ = claim.by.partition("/")
        if not self._life:
            return True
        return life == self._life if is_owner else not self._is_only
