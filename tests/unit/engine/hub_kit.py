"""A connection to a hub without a replica behind it, for tests of the engine's end alone."""

from __future__ import annotations

from headwater.data.address import DocKey
from headwater.data.patch import replace
from headwater.engine.sync.peer import Peer
from headwater.protocol.commit import MAIN, Commit, Operation
from headwater.protocol.messages import (
    FromEngine,
    FromReplica,
    Open,
    Selector,
    Transact,
    Watch,
)
from tests.unit.engine.kit import write
from tests.unit.replica.kit import World


class Raw:
    """A connection without a replica behind it: says what it is told to say and keeps what it hears."""

    def __init__(self, world: World, session: str = "", *, principal: str = "", branch: str = MAIN) -> None:
        self.world = world
        self.heard: list[FromEngine] = []
        self.peer = Peer(self.heard.append, world.limits)
        self.peer.greet(principal)
        self.token = ""
        if session:
            self.open(session, branch=branch)

    def open(self, session: str, resume: str = "", *, seen: int = 0, branch: str = MAIN) -> None:
        self.token = f"token-{session}-{len(self.heard)}-{id(self)}"
        self.say(Open("x", session, resume, self.token, branch, seen))

    def say(self, *messages: FromReplica) -> list[FromEngine]:
        """Say it, and answer what was heard because of it."""
        start = len(self.heard)
        self.world.hub.process([(self.peer, message) for message in messages])
        return self.heard[start:]

    def watch(self, *keys: DocKey, id: int = 1, follow: bool = False) -> list[FromEngine]:
        return self.say(Watch(id, tuple(Selector(key, follow) for key in keys)))

    def write(self, local_seq: int, *operations: Operation) -> list[FromEngine]:
        return self.say(Transact((Commit(local_seq, operations),)))

    def only(self, kind: type) -> list[FromEngine]:
        return [message for message in self.heard if isinstance(message, kind)]


def put(id: str, value: object) -> Operation:
    return write(id, replace((), value))
