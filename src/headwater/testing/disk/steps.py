"""The steps of the work that a crash interrupts, and how each is asked of an engine.

A step is plain data, so that the same step can be asked again of a recovered engine. Decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from headwater.engine import Engine, Outcome
from headwater.protocol import reactions
from headwater.protocol.commit import Frame, TopicRecord
from headwater.protocol.observations import Observation
from headwater.protocol.reactions import Claim, Claimed, Finish, Hold, Since, Subscribe, lease_name

PRINTER: Final = "printer"
JOB: Final = TopicRecord("jobs", "job", None)
LEASE: Final = lease_name(PRINTER, JOB.key)
"""The lease of the target that a worker holds."""
LEASE_US: Final = 60_000_000


@dataclass(frozen=True, slots=True)
class OpenSession:
    key: str


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames of several sessions in one group, and the observations of nodes with each of them."""

    batch: tuple[tuple[str, Frame], ...]
    observed: tuple[tuple[Observation, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Fork:
    name: str
    parent: str


@dataclass(frozen=True, slots=True)
class MergeBranch:
    name: str


@dataclass(frozen=True, slots=True)
class DeleteBranch:
    name: str


@dataclass(frozen=True, slots=True)
class Acquire:
    """A worker claims the printer's target, and is given it under this token."""

    worker: str
    token: int


@dataclass(frozen=True, slots=True)
class Release:
    """The worker gives the target back, with its record undelivered."""

    token: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    key: str
    local_seq: int


@dataclass(frozen=True, slots=True)
class Compact:
    before: int


@dataclass(frozen=True, slots=True)
class Listen:
    """A reaction wants the records of a topic, from now on or from the beginning."""

    reaction: str
    topic: str
    since: Since


@dataclass(frozen=True, slots=True)
class LookThrough:
    """Records from before a reaction was declared are given their targets; nothing is claimed."""

    reaction: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Close the engine in good order and open it again."""


Step: TypeAlias = (
    OpenSession
    | Frames
    | Fork
    | MergeBranch
    | DeleteBranch
    | Acquire
    | Release
    | Acknowledge
    | Compact
    | Listen
    | LookThrough
    | Restart
)


def ask(engine: Engine, step: Step) -> list[Outcome]:
    """Give one step to the engine, and return the answers to its frames. A restart is not the engine's."""
    match step:
        case OpenSession(key):
            engine.open_session(key)
        case Frames(batch, observed):
            runs = {at: (batch[at][1][0].branch, each) for at, each in enumerate(observed) if each}
            return engine.submit_group(batch, observed=runs)
        case Fork(name, parent):
            engine.fork(name, parent=parent)
        case MergeBranch(name):
            engine.merge(name)
        case DeleteBranch(name):
            engine.delete_branch(name)
        case Acquire(worker, token):
            granted = engine.deliver(Claim(1, worker, (PRINTER,), lease_us=LEASE_US))
            assert isinstance(granted, Claimed)
            assert [grant.hold.token for grant in granted.grants] == [token]
        case Release(token):
            engine.deliver(Finish(1, (reactions.Outcome(Hold(PRINTER, JOB.key, token)),)))
        case Acknowledge(key, local_seq):
            engine.acknowledge(key, local_seq)
        case Compact(before):
            engine.compact(before)
        case Listen(reaction, topic, since):
            engine.deliver(Subscribe(1, reaction, topic, since))
        case LookThrough(reaction):
            engine.deliver(Claim(1, "nobody", (reaction,), limit=0))
        case Restart():
            pass
        case _:
            assert_never(step)
    return []
