"""What a shared program has to show: the naive model replays the log of the engine.

The log says which events, transactions and plain writes landed, and in which order: handlers and transactions add their
ids to a cell, plain writes write unique values. Each answer is compared with the model at its place in the log. A
refused event has no place: the model has to refuse it somewhere between the state that its sender had seen and its
answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from headwater.data.address import DocKey
from headwater.engine import Engine
from headwater.testing.author.stored import log_of
from tests.simulation.programs.build import NaiveProgram
from tests.simulation.programs.description import By, Program, Send, Transact, Write
from tests.simulation.programs.draw_shared import plain_writes_in
from tests.simulation.programs.record import DONE, Mismatch, apply

__all__ = ["Answer", "Landed", "Replayed", "Sender", "check_order", "landed_in", "replayed"]


@dataclass(frozen=True, slots=True)
class Landed:
    """An action, and the place in the log at which it landed."""

    seq: int
    eid: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an action, and the places in the log that its runtime had seen before and after."""

    kind: str
    value: Any
    since: int
    until: int


@dataclass(slots=True)
class Replayed:
    """The model after all that landed."""

    naive: NaiveProgram
    count: int


def landed_in(program: Program, engine: Engine) -> list[Landed]:
    """The actions of a program that a log has, in its order."""
    logs = {f"{piece.name}:log" for piece in program.pieces}
    steps = [each.step for each in program.shared if isinstance(each, By)]
    plain = {each.eid: f"{each.piece}:{each.member}" for each in steps if isinstance(each, Write)}
    found: list[Landed] = []
    known: dict[DocKey, tuple[int, ...]] = {}
    for logged in log_of(engine):
        is_logged = any(operation.doc.id in logs for operation in logged.commit.operations)
        for operation in logged.commit.operations:
            if operation.doc.id in logs:
                value: Any = engine.read(operation.doc, at=logged.seq).value
                before = known.get(operation.doc, ())
                found += [Landed(logged.seq, eid) for eid in value[len(before) :]]
                known[operation.doc] = value
            elif not is_logged:
                eids = [eid for patch in operation.patches for eid in plain_writes_in(patch.arg)]
                for eid in eids:
                    if plain.get(eid) == operation.doc.id:
                        found.append(Landed(logged.seq, eid))
                        del plain[eid]
    return found


class Sender(Protocol):
    """A runtime that made actions."""

    name: str
    is_gone: bool  # its process was killed


def check_order(
    actions: Mapping[int, Send | Write | Transact], senders: Mapping[int, Sender], landed: Iterable[Landed]
) -> None:
    """Compare the order of the log with the order in which one runtime made the actions that write one cell.

    Events of one piece all write its log. Events of two pieces may not meet in any cell: one of them may be rejected
    and land after the other. A plain write lands, unless its process was killed.
    """
    last: dict[tuple[Sender, str], int] = {}
    seen = set()
    for each in landed:
        action, sender = actions[each.eid], senders[each.eid]
        seen.add(each.eid)
        if isinstance(action, Transact):
            continue
        member = "log" if isinstance(action, Send) else action.member
        place = f"{action.piece}.{member}"
        if last.get((sender, place), 0) > each.eid:
            before = actions[last[sender, place]]
            raise Mismatch(f"{sender.name}: {action} landed at {each.seq}, after {before}, which was made later")
        last[sender, place] = each.eid
    for eid, action in actions.items():
        if isinstance(action, Write) and eid not in seen and not senders[eid].is_gone:
            raise Mismatch(f"{senders[eid].name}: {action} never landed")


def replayed(
    program: Program,
    actions: Mapping[int, Send | Write | Transact],
    answers: Mapping[int, Answer],
    landed: Iterable[Landed],
) -> Replayed:
    """Replay a log on the model and compare all answers."""
    naive = NaiveProgram(program)
    states: list[tuple[int, Any]] = [(0, naive.world.cells)]
    seen: set[int] = set()
    for each in landed:
        if each.eid in seen:
            raise Mismatch(f"{actions[each.eid]} landed twice")
        seen.add(each.eid)
        kind, value = apply(naive, actions[each.eid])
        if kind != DONE:
            raise Mismatch(f"{actions[each.eid]} landed at {each.seq}, and the model answered that it is {kind} there")
        answer = answers.get(each.eid)
        if answer is not None and (answer.kind, answer.value) != (kind, value):
            raise Mismatch(f"{actions[each.eid]} answered {answer}, and the model answers {value!r} at {each.seq}")
        states.append((each.seq, naive.world.cells))
    final = naive.world.cells
    for eid, answer in answers.items():
        if eid in seen:
            continue
        if answer.kind == DONE:
            raise Mismatch(f"{actions[eid]} answered {answer}, and nothing of it landed")
        _check_refusal(naive, actions[eid], answer, states)
    naive.world.restore(final)
    return Replayed(naive, len(seen))


def _check_refusal(naive: NaiveProgram, action: Any, answer: Answer, states: list[tuple[int, Any]]) -> None:
    """A refused or failed event has to be refused or to fail in one of the states that its runtime saw meanwhile."""
    first = max((at for at, (seq, _) in enumerate(states) if seq <= answer.since), default=0)
    got = []
    for seq, state in states[first:]:
        if seq > answer.until:
            break
        naive.world.restore(state)
        got.append(apply(naive, action)[0])
        if got[-1] == answer.kind:
            return
    raise Mismatch(f"{action} answered {answer}, and the model has {got}")
