"""What a session remembers of the log, and says when it takes itself up again on another connection.

A log may have been replaced meanwhile by an older state of it, as by restoring a backup, and have grown past what was
seen here: then neither what is shown nor what was promised is in it, although every number looks right. So the engine
names its log wherever it tells up to where it is (`chain`), and a session says the last name that it heard. Never
decides what becomes of a session whose log is another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from headwater.protocol.messages import Opened, Problem, Transact
from headwater.replica.pending import Layer

EXPIRED: Final = frozenset({"session_gone", "stale_token", "revoked"})
"""Problems after which this session cannot be taken up again by us."""


class Seen:
    """The log as a session heard of it last: a seq and its name there, and the last commit that is said to be in it."""

    __slots__ = ("_chain", "_landed", "_seq")

    def __init__(self) -> None:
        self._seq = 0
        self._chain: int | None = None
        self._landed = (0, 0)  # the local_seq and the seq of the last own commit that was accepted

    def heard(self, seq: int, chain: int | None) -> None:
        self._seq, self._chain = seq, chain

    def accepted(self, local_seq: int, seq: int) -> None:
        self._landed = max(self._landed, (local_seq, seq))

    def chain_at(self, seq: int) -> int | None:
        """What names the log at the seq that is shown. None: no engine has said it."""
        return self._chain if seq == self._seq else None

    def sent(self, layers: Iterable[Layer], seq: int) -> tuple[int, ...]:
        """The commits to ask for: those without a verdict, and the last that landed, if what is shown lacks it."""
        numbers = {layer.local_seq for layer in layers}
        return tuple(sorted(numbers | {self._landed[0]} if self._landed[1] > seq else numbers))

    def broken_promise(self, message: Opened, seq: int) -> Problem | None:
        """Whether a commit that was accepted is not where it was: this is another log than the one that took it."""
        if self._landed[1] <= seq or self._landed in message.landed:
            return None
        return Problem(
            "session_gone",
            f"commit {self._landed[0]} was accepted at seq {self._landed[1]}, and is not in the log any more. The "
            "server was given an older state of it, as by restoring a backup. Open a new session.",
        )


def replayed(layers: Iterable[Layer]) -> Iterator[Transact]:
    """C10: what was on the wire, byte for byte, and a frame as the frame it was: its commits lean on each other."""
    frame: list[Layer] = []
    # fault resuming.replays_reversed: for layer in [*layers][::-1]:
    for layer in layers:
        # fault resuming.waves_split: if frame:
        if frame and layer.frame != frame[0].frame:
            yield Transact(tuple([other.commit for other in frame]))
            frame = []
        # fault+ resuming.renumbered: layer.send(layer.commit.__replace__(local_seq=layer.local_seq + 999), layer.frame)
        frame.append(layer)
    if frame:
        yield Transact(tuple([other.commit for other in frame]))
