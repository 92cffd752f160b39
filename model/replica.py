"""The replica of the model: confirmed state, the stack of pending layers, and its connection.

A state is a value; each function answers the state after a step. Checks C4, C5 and C6 at the moment a commit
is sent or a verdict arrives, and C6 in every state.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple, assert_never

from model.messages import NAMES, Broken, Commit, Frame, Id, Verdict, listed
from model.rules import Naming, Rules
from model.workload import Program

UNDECIDED: Final = 0
REJECTED: Final = -1
REFUSED: Final = -2
"""Fates of a commit beside its seq: the engine said no; the replica took it back before it was sent."""


class Stage(IntEnum):
    UNSENT = 0
    SENT = 1
    ACCEPTED = 2  # and not yet part of the confirmed state


class Layer(NamedTuple):
    commit: Commit
    stage: Stage = Stage.UNSENT
    doomed: bool = False  # stands on a rejected layer: no longer visible, its verdict still to come


class Replica(NamedTuple):
    number: int
    confirmed: tuple[Commit, ...] = ()  # its length is the basis
    stack: tuple[Layer, ...] = ()
    fates: tuple[int, ...] = ()  # of each commit made, by local_seq
    is_connected: bool = True
    up: tuple[Commit, ...] = ()
    down: tuple[Verdict | Frame, ...] = ()
    covered: int = 0  # up to here this connection was sent the log; stays 0 where changes travel without frames
    copies: int = 0  # messages that the network may still repeat

    @property
    def basis(self) -> int:
        return len(self.confirmed)

    @property
    def visible(self) -> tuple[Commit, ...]:
        return self.confirmed + tuple(layer.commit for layer in self.stack if not layer.doomed)

    def __str__(self) -> str:
        return NAMES[self.number]


# ---- local steps -------------------------------------------------------------------------------------


def make(replica: Replica, program: Program, rules: Rules) -> tuple[str, Replica] | None:
    """Run the next transaction of the program on what is visible now; its layer is visible at once."""
    local = len(replica.fates) + 1
    if local > len(program):
        return None
    reads, writes = program[local - 1]
    commit = _read(Commit(replica.number, local, reads, writes, 0, (), ()), replica, rules)
    over = "".join(f" + {replica}{layer}" for layer in commit.layers)
    what = f"reads {reads} at seq {commit.basis}{over} and writes {writes}" if reads else f"writes {writes}"
    made = replica._replace(stack=(*replica.stack, Layer(commit)), fates=(*replica.fates, UNDECIDED))
    return f"{replica} makes {commit}: {what}", made


def _read(commit: Commit, replica: Replica, rules: Rules) -> Commit:
    """The commit with its reads taken now, over the layers under it. Reads nothing, stands on nothing."""
    if not commit.reads:
        return commit
    under = [layer for layer in replica.stack if not layer.doomed and layer.commit.local < commit.local]
    visible = (*replica.confirmed, *(layer.commit for layer in under))
    saw = tuple(tuple(other.id for other in visible if other.writes == path) for path in commit.reads)
    named = _named(under, commit, rules.naming)
    basis = replica.basis
    if not rules.replica_true_basis:
        basis = max([basis, *(replica.fates[layer.commit.local - 1] for layer in under)])
    return commit._replace(basis=basis, layers=tuple(layer.commit.local for layer in named), saw=saw)


def _named(under: list[Layer], commit: Commit, naming: Naming) -> list[Layer]:
    match naming:
        case Naming.STACK:
            return under
        case Naming.WRITERS:
            return [layer for layer in under if layer.commit.writes in commit.reads]
        case Naming.TOP:
            return under[-1:]
        case _:
            assert_never(naming)


def send(replica: Replica) -> tuple[str, Replica] | None:
    """The oldest layer that is not on the wire goes there."""
    for place, layer in enumerate(replica.stack):
        if replica.is_connected and layer.stage is Stage.UNSENT:
            what = f"{replica} sends {layer.commit}"
            for named in layer.commit.layers:
                if replica.fates[named - 1] in (REJECTED, REFUSED):
                    raise Broken(
                        "C4", f"{layer.commit} stands on {replica}{named}, which {replica} knows is dead", what
                    )
            stack = (*replica.stack[:place], layer._replace(stage=Stage.SENT), *replica.stack[place + 1 :])
            return what, replica._replace(stack=stack, up=(*replica.up, layer.commit))
    return None


def hear(replica: Replica, rules: Rules) -> tuple[str, Replica] | None:
    """The next message arrives."""
    if not replica.down:
        return None
    message, replica = replica.down[0], replica._replace(down=replica.down[1:])
    if isinstance(message, Verdict):
        return _hear_verdict(replica, message, rules)
    changes = message.commits[max(0, replica.basis - message.first + 1) :]  # a repeated frame brings nothing new
    what = f"{replica} integrates {listed(tuple(commit.id for commit in changes))}"
    return what, _retired(replica._replace(confirmed=replica.confirmed + changes))


def _hear_verdict(replica: Replica, verdict: Verdict, rules: Rules) -> tuple[str, Replica]:
    fate = replica.fates[verdict.local - 1]
    name = f"{replica}{verdict.local}"
    what = f"{replica} hears{' again' if fate else ''}: {name} was {verdict}"
    if fate:
        if fate != (verdict.seq or REJECTED):
            raise Broken("C6", f"{replica} had concluded otherwise", what)
        return what, replica
    for layer in replica.stack:
        if layer.commit.local < verdict.local and not replica.fates[layer.commit.local - 1]:
            raise Broken("C5", f"{replica} has not heard of {layer.commit}, which it sent before", what)
        if layer.commit.local == verdict.local and layer.doomed and verdict.seq:
            raise Broken("C6", f"{replica} had taken {name} back with what it stood on", what)
    return what, _confirmed(replica, verdict) if verdict.seq else _reverted(replica, verdict.local, rules)


def _confirmed(replica: Replica, verdict: Verdict) -> Replica:
    stack = tuple(
        layer._replace(stage=Stage.ACCEPTED) if layer.commit.local == verdict.local else layer
        for layer in replica.stack
    )
    return _retired(replica._replace(stack=stack, fates=_decided(replica, verdict.local, verdict.seq)))


def _reverted(replica: Replica, local: int, rules: Rules) -> Replica:
    """C4: a rejected layer is dead at its verdict, and so is all that stands on it."""
    fates = list(replica.fates)
    fates[local - 1] = REJECTED
    dead = {local}
    stack = []
    for layer in replica.stack:
        if layer.commit.local in dead:
            continue
        if not (rules.replica_cascades and dead.intersection(layer.commit.layers)):
            stack.append(layer)
            continue
        dead.add(layer.commit.local)
        if layer.stage is Stage.UNSENT:
            fates[layer.commit.local - 1] = REFUSED
        else:
            stack.append(layer._replace(doomed=True))
    return replica._replace(stack=tuple(stack), fates=tuple(fates))


def _decided(replica: Replica, local: int, fate: int) -> tuple[int, ...]:
    return (*replica.fates[: local - 1], fate, *replica.fates[local:])


def _retired(replica: Replica) -> Replica:
    """A layer that the confirmed state contains is a layer no longer."""
    stack = [
        layer
        for layer in replica.stack
        if layer.stage is not Stage.ACCEPTED or replica.fates[layer.commit.local - 1] > replica.basis
    ]
    return replica._replace(stack=tuple(stack))


# ---- the connection ----------------------------------------------------------------------------------


def connected(replica: Replica, landed: dict[int, int], rules: Rules, *, frames: bool) -> Replica:
    """Hear what landed, replay what else was on the wire without a verdict, take back what was never sent."""
    stack: list[Layer] = []
    for layer in replica.stack:
        seq = landed.get(layer.commit.local, 0)
        if layer.stage is Stage.UNSENT and rules.unsent_are_reverted:
            replica = replica._replace(fates=_decided(replica, layer.commit.local, REFUSED))
        elif layer.stage is Stage.SENT and seq:
            if layer.doomed:
                raise Broken("C6", f"{replica} had taken {layer.commit} back with what it stood on", "it reconnects")
            replica = replica._replace(fates=_decided(replica, layer.commit.local, seq))
            stack.append(layer._replace(stage=Stage.ACCEPTED))
        elif layer.stage is Stage.SENT and not rules.replay_byte_for_byte:
            stack.append(layer._replace(commit=_read(layer.commit, replica._replace(stack=tuple(stack)), rules)))
        else:
            stack.append(layer)
    up = tuple(layer.commit for layer in stack if layer.stage is Stage.SENT)
    covered = replica.basis if frames else 0
    return _retired(replica._replace(stack=tuple(stack), up=up, covered=covered, is_connected=True))


def disconnected(replica: Replica) -> Replica:
    """What is under way is lost, in both directions."""
    return replica._replace(is_connected=False, up=(), down=(), covered=0)


def duplicated(replica: Replica) -> Iterator[tuple[str, Replica]]:
    """A copy of a message will arrive after all that is under way."""
    if replica.copies:
        left = replica._replace(copies=replica.copies - 1)
        for commit in replica.up:
            yield f"the network repeats {commit}", left._replace(up=(*replica.up, commit))
        for message in replica.down:
            news = f"the verdict on {replica}{message.local}" if isinstance(message, Verdict) else "a frame"
            yield f"the network repeats {news}", left._replace(down=(*replica.down, message))


def integrate(replica: Replica, log: tuple[Commit, ...], rules: Rules) -> tuple[str, Replica] | None:
    """The next change of the log arrives, an own commit only after its verdict. A frame of several is several steps."""
    if replica.basis >= len(log) or not replica.is_connected:
        return None
    commit = log[replica.basis]
    if commit.replica == replica.number and replica.fates[commit.local - 1] == UNDECIDED and rules.verdict_before_frame:
        return None
    arrived = _retired(replica._replace(confirmed=(*replica.confirmed, commit)))
    return f"{replica} integrates {commit}, seq {arrived.basis}", arrived


def frames_for(
    replica: Replica, log: tuple[Commit, ...], owed: set[int], rules: Rules
) -> Iterator[tuple[str, Replica]]:
    """The same in two steps: a frame leaves, and is heard in its turn.

    It covers no own commit whose verdict is still owed: one that this connection has brought, or will, in its replay,
    and that has not been answered there.
    """
    for seq in range(replica.covered + 1, len(log) + 1):
        commit = log[seq - 1]
        if commit.replica == replica.number and commit.local in owed and rules.verdict_before_frame:
            return
        frame = Frame(replica.covered + 1, log[replica.covered : seq])
        sent = replica._replace(down=(*replica.down, frame), covered=seq)
        yield f"a frame leaves for {replica}, up to seq {seq}", sent


def acknowledgeable(replica: Replica, rules: Rules) -> int:
    """Up to where the replica has every verdict, and names no layer in a commit it may still send or name."""
    if not replica.is_connected:
        return 0
    undecided = [layer for layer in replica.stack if replica.fates[layer.commit.local - 1] == UNDECIDED]
    bounds = [commit.local for commit in replica.up] + [layer.commit.local for layer in undecided]
    if rules.acknowledges_late:
        bounds += [layer.commit.local for layer in replica.stack]
        bounds += [named for layer in undecided for named in layer.commit.layers]
    return min(bounds, default=len(replica.fates) + 1) - 1


def check_agreement(replica: Replica, log: tuple[Commit, ...], history: tuple[Commit, ...]) -> None:
    """C6: in every state, whatever the replica has concluded is so in the log."""
    if replica.confirmed != log[: replica.basis]:
        raise Broken("C6", f"what {replica} holds as confirmed is not what the log has")
    seqs = {commit.local: seq for seq, commit in enumerate(history, 1) if commit.replica == replica.number}
    for local, fate in enumerate(replica.fates, 1):
        if fate > 0 and seqs.get(local) != fate:
            raise Broken(
                "C6", f"{replica} was told that {replica}{local} is at seq {fate}, and the log does not have it"
            )
        if fate < 0 and local in seqs:
            raise Broken("C6", f"{replica} holds {replica}{local} for dead, and the log has it at seq {seqs[local]}")
    for layer in replica.stack:
        if layer.doomed and layer.commit.local in seqs:
            raise Broken("C6", f"{replica} has taken back {layer.commit}, and the log has it")
    seen: set[Id] = set()
    for commit in replica.visible:
        if commit.id in seen:
            raise Broken("C6", f"{replica} sees {commit} twice: as pending and as confirmed")
        seen.add(commit.id)
