"""The rules that the model obeys, as switches. `TRUE_RULES` is the protocol; variants turn one switch each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Naming(Enum):
    """Which pending layers a read names."""

    WRITERS = "every layer that wrote what it read"
    STACK = "every layer of the stack"
    TOP = "the top layer only"


class Lookup(Enum):
    """Which earlier commits the engine knows when one is sent again."""

    SESSION = "all of the session"
    CONNECTION = "those of this connection"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Each field at its default is the rule; its comment says what the other value does instead."""

    naming: Naming = Naming.WRITERS  # C3. TOP: the layers under the top one are not named
    replica_true_basis: bool = True  # C3. False: the basis is rounded up to the newest own accepted seq
    engine_true_basis: bool = True  # C3. False: staleness is counted from the top layer's seq
    replica_cascades: bool = True  # C4. False: what stands on a rejected layer stays, and is sent
    engine_checks_layers: bool = True  # C4. False: a named layer that was not accepted is overlooked
    verdict_after_fsync: bool = True  # C6. False: it leaves when the commit is judged
    lookup: Lookup = Lookup.SESSION  # C10. Otherwise a replay is judged like a new commit
    replay_is_answered: bool = True  # False: a replay that is recognised is dropped without a word
    rejection_is_final: bool = True  # C5. False: a replay of a rejected commit is judged again
    keys_outlive_connection: bool = True  # C10. False: a lost connection may cost the session its keys
    replay_byte_for_byte: bool = True  # C10. False: a replay reads again and sends the new reads
    verdict_before_frame: bool = True  # C6. False: a frame may cover a commit whose verdict is under way
    landed_is_told: bool = True  # False: on reconnect, commits that were accepted are replayed like all others
    restart_ends_connections: bool = True  # C6. False: the engine's memory is lost, and connections go on
    acknowledges_late: bool = True  # C3. False: a verdict is acknowledged although a commit still names it
    unsent_are_reverted: bool = True  # False: on reconnect, layers never sent stay and are sent

    @property
    def names_are_true(self) -> bool:
        return self.naming is not Naming.TOP and self.replica_true_basis


TRUE_RULES: Final = Rules()
