"""Why everything settles: a rank that every step of progress makes smaller, and what settled means.

Steps of progress are those that neither a fault nor an author decides: reconnecting, sending, judging, flushing,
hearing, integrating, acknowledging. A rank is a vector compared from the left, the sum of the engine's and the
replicas'. No entry of a sum is below zero, so steps of progress come to an end, in whatever order they happen;
the checker sees to it that where they end, all is settled. So once faults cease, every schedule settles.
"""

from __future__ import annotations

from model.engine import Engine
from model.messages import Broken
from model.replica import Replica, Stage

Rank = tuple[int, ...]


def rank_of(engine: Engine, replicas: list[Replica]) -> Rank:
    """Of the engine and some of its replicas: what the others add does not change in a step that leaves them be."""
    lost = unsent = going = coming = 0
    to_cover = to_integrate = len(engine.log) * len(engine.sessions)
    to_acknowledge = -sum(session.acked for session in engine.sessions)
    for replica in replicas:
        lost += not replica.is_connected
        unsent += sum(layer.stage is Stage.UNSENT for layer in replica.stack)
        going += len(replica.up)
        coming += len(replica.down)
        to_cover -= replica.covered
        to_integrate -= replica.basis
        to_acknowledge += len(replica.fates)
    return lost, unsent, going, len(engine.group), to_cover, coming, to_integrate, to_acknowledge


def check_progress(what: str, before: Rank, after: Rank) -> None:
    if not after < before:
        raise Broken("settles", "this step makes nothing smaller and could be repeated for ever", what)


def is_settled(engine: Engine, replica: Replica) -> bool:
    """Nothing is under way, every commit has its fate, and what is confirmed is the whole log."""
    return (
        replica.is_connected
        and not (replica.stack or replica.up or replica.down or engine.group)
        and replica.confirmed == engine.log
    )


def unsettled(engine: Engine, replica: Replica) -> str:
    """What is left over, in words."""
    if replica.stack:
        return f"{', '.join(str(layer.commit) for layer in replica.stack)} waits for ever for what becomes of it"
    return f"{replica} is at seq {replica.basis} for ever, and the log at {len(engine.log)}"
