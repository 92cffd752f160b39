"""Every step of a replica, alone and together with the engine, under given rules and conditions.

Puts the steps of `model.replica` and `model.engine` together. A step is a value: what happens, and both after it.
Numbers nothing, searches nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from model import engine as engines
from model import replica as replicas
from model.engine import Engine
from model.messages import Acknowledging, Event, Judging
from model.replica import Replica
from model.rules import Rules
from model.workload import Conditions, Workload


class Move(NamedTuple):
    """A step of one replica, alone or with the engine: what happens, and both after it."""

    what: str
    engine: Engine
    replica: Replica
    is_progress: bool
    event: Event | None = None


class Moves:
    """The steps of one workload."""

    __slots__ = ("_checks", "_conditions", "_rules", "_workload")

    def __init__(self, workload: Workload, rules: Rules, conditions: Conditions, *, checks: bool = True) -> None:
        self._checks = checks  # False: decisions are taken as they are, right or wrong
        self._workload = workload
        self._rules = rules
        self._conditions = conditions

    def alone(self, engine: Engine, replica: Replica) -> Iterator[Move]:
        """What a replica and its connection do without the engine."""
        made = replicas.make(replica, self._workload[replica.number], self._rules)
        if made is not None:
            yield Move(made[0], engine, made[1], False)
        for taken in (replicas.send(replica), replicas.hear(replica, self._rules)):
            if taken is not None:
                yield Move(taken[0], engine, taken[1], True)
        for what, copied in replicas.duplicated(replica):
            yield Move(what, engine, copied, False)

    def together(self, engine: Engine, replica: Replica) -> Iterator[Move]:
        """What it does with the engine, or the engine with it."""
        yield from self._connection(engine, replica)
        if not replica.is_connected:
            return
        yield from self._changes(engine, replica)
        if replica.up:
            yield from self._judging(engine, replica)
        local = replicas.acknowledgeable(replica, self._rules)
        if self._conditions.acknowledgements and local > engine.sessions[replica.number].acked and not engine.group:
            what = f"{replica} acknowledges its verdicts up to {replica}{local}"
            after = engines.acknowledged(engine, replica.number, local)
            yield Move(what, after, replica, True, Acknowledging(replica.number, local))

    def _changes(self, engine: Engine, replica: Replica) -> Iterator[Move]:
        """The log reaches a replica: in one step, or in frames that travel behind the verdicts."""
        if self._conditions.frames:
            owed = {judged.verdict.local for judged in engine.group if judged.replica == replica.number}
            owed.update(commit.local for commit in replica.up)
            for what, sent in replicas.frames_for(replica, engine.log, owed, self._rules):
                yield Move(what, engine, sent, True)
        else:
            arrived = replicas.integrate(replica, engine.log, self._rules)
            if arrived is not None:
                yield Move(arrived[0], engine, arrived[1], True)

    def _connection(self, engine: Engine, replica: Replica) -> Iterator[Move]:
        """A connection is lost and made again: in one step, or in two with all that may happen between them."""
        number, in_one_step = replica.number, not self._conditions.offline
        if replica.is_connected:
            engine, replica = engines.disconnected(engine, number), replicas.disconnected(replica)
            if not in_one_step:
                yield Move(f"{replica} loses its connection", engine, replica, False)
                return
        yield Move(f"{replica} reconnects", *self._connected(engine, replica), is_progress=not in_one_step)
        if not self._rules.keys_outlive_connection:
            there = self._connected(engines.expired(engine, number), replica)
            yield Move(f"{replica} reconnects after a long time", *there, is_progress=not in_one_step)

    def _connected(self, engine: Engine, replica: Replica) -> tuple[Engine, Replica]:
        engine = engines.connected(engine, replica.number, self._rules)
        landed = engines.landed(engine, replica.number, self._rules)
        return engine, replicas.connected(replica, landed, self._rules, frames=self._conditions.frames)

    def restarted(self, engine: Engine, replica: Replica) -> Replica:
        """What it means for a replica that the engine has crashed and restarted as it is now."""
        if not self._rules.restart_ends_connections:
            return replica
        lost = replicas.disconnected(replica)
        return lost if self._conditions.offline else self._connected(engine, lost)[1]

    def _judging(self, engine: Engine, replica: Replica) -> Iterator[Move]:
        commit, waiting = replica.up[0], replica._replace(up=replica.up[1:])
        for outcome in engines.judge(engine, commit, self._rules, self._conditions.refusals):
            what, judged, verdict, _ = outcome
            if self._checks:
                engines.check_decision(engine, commit, outcome, self._rules)
            if verdict is None:
                yield Move(what, judged, waiting, True)
                continue
            event = Judging(commit, verdict)
            if not self._rules.verdict_after_fsync:
                after = engines.disconnected(judged, replica.number)  # nothing more is owed
                yield Move(what, after, waiting._replace(down=(*waiting.down, verdict)), True, event)
            elif self._conditions.groups:
                yield Move(what, judged, waiting, True, event)
            else:
                after, leaving = engines.flushed(judged)
                yield Move(what, after, waiting._replace(down=waiting.down + leaving[replica.number]), True, event)
