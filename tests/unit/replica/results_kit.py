"""Nodes whose results are in the tier of a client of the kit, and short ways to look at waves. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.data.address import Depth
from headwater.data.patch import replace
from headwater.data.path import Path
from headwater.data.reader_trie import Spot
from headwater.data.value import MaybeValue
from headwater.engine import DEFAULT_LIMITS, Limits
from headwater.protocol.commit import Commit, CommitPart, parts_of
from headwater.protocol.messages import Transact
from headwater.protocol.verdict import Conflict, Rejection
from headwater.replica.document import Document, TierEntry
from headwater.replica.feed import Kind
from tests.unit.replica.kit import Client, World, doc

DOCS = ("x", "y", "a", "b", "c", "d", "e")


def spot_of(client: Client, id: str, path: Path = ()) -> Spot:
    return Spot(client.replica.documents.of(doc(id)), path, Depth.DEEP)


class Node:
    """A node as the tier sees it: an identity with three answers, which the scheduler gives in the product."""

    fingerprint = "code"

    def __init__(self, client: Client, output: str, *reads: str, second: str = "") -> None:
        self.client = client
        self.id = f"{output}-node"
        self.output = client.replica.documents.of(doc(output))
        self.second = client.replica.documents.of(doc(second)) if second else None
        self.spots = [spot_of(client, id) for id in reads]
        self.is_current = True
        self.is_demanded = True

    def show(
        self,
        value: MaybeValue,
        *,
        spots: Iterable[Spot] | None = None,
        causes: Iterable[Spot] = (),
        hops: int = 0,
        note: MaybeValue | None = None,
    ) -> TierEntry | None:
        """Show a result, as a run of the node does."""
        beside = None if self.second is None or note is None else (self.second, note)
        read = self.spots if spots is None else list(spots)
        return self.client.replica.show_result(
            self.output, value, read, self, self.id, dict.fromkeys(causes), hops, beside
        )

    def stop(self) -> None:
        self.client.replica.stop_result(self.output, self, is_current=self.is_current)


class Calls:
    """What the tier of a client reports to the scheduler."""

    def __init__(self, client: Client) -> None:
        self.overwritten: list[str] = []
        self.refused: list[tuple[str, int, Rejection, bool]] = []
        client.replica.on_overwritten(self._overwritten)
        client.replica.on_refused = self._refused

    def _overwritten(self, document: Document, _kind: Kind, _ways: object) -> None:
        self.overwritten.append(document.key.id)

    def _refused(self, entry: TierEntry, local_seq: int, rejection: Rejection, is_newest: bool) -> None:
        self.refused.append((entry.document.key.id, local_seq, rejection, is_newest))


def attach(client: Client) -> None:
    """Have the tier ask the nodes of this kit."""
    tier = client.replica.tier
    tier.is_clean = lambda node: isinstance(node, Node) and node.is_current
    tier.is_current = lambda node: isinstance(node, Node) and node.is_current
    tier.is_demanded = lambda node: isinstance(node, Node) and node.is_demanded


def started(*names: str, limits: Limits = DEFAULT_LIMITS) -> tuple[World, list[Client]]:
    """A world in which all clients watch all documents; x is 1 and y is 10."""
    world = World(*names, limits=limits)
    for client in world.clients:
        attach(client)
        client.watch(*DOCS)
    world.settle()
    put(world.clients[0], "x", 1)
    put(world.clients[0], "y", 10)
    world.settle()
    return world, world.clients


def put(client: Client, id: str, value: MaybeValue) -> None:
    client.do(lambda t: t.write(doc(id), replace((), value)))


def frames(client: Client) -> list[tuple[Commit, ...]]:
    """The frames with commits that wait to be sent."""
    said = [message.commits for message in client.session.outgoing if isinstance(message, Transact)]
    return [commits for commits in said if commits]


def all_frames(client: Client) -> list[tuple[Commit, ...]]:
    """The frames with commits that were sent and that wait to be sent."""
    return [message.commits for message in client.sent if isinstance(message, Transact)] + frames(client)


def flushed(client: Client) -> list[tuple[Commit, ...]]:
    """Flush, and return the frames with commits that this added."""
    before = len(frames(client))
    client.session.flush()
    return frames(client)[before:]


def sent_results(client: Client) -> list[CommitPart]:
    """Flush, and return the results of the wave that this sent."""
    waves = [commit for frame in flushed(client) for commit in frame if commit.results]
    assert len(waves) < 2
    return [part for wave in waves for part in parts_of(wave)]


def logged(world: World, session: str = "ann") -> list[CommitPart]:
    """The accepted results of a session in the log."""
    items = world.engine.changes().items
    commits = [each.commit for each in items if each.session == session and each.commit.provenance.derived]
    return [part for commit in commits for part in parts_of(commit) if part.operations]


def reads_of(commit: Commit | CommitPart) -> list[str]:
    return [read.doc.id for read in commit.reads]


def settled(world: World) -> None:
    """Deliver all messages and send all results, until no client has anything to send."""
    for _ in range(100):
        world.settle()
        before = [len(client.sent) for client in world.clients]
        for client in world.clients:
            client.session.flush()
        world.settle()
        if before == [len(client.sent) for client in world.clients]:
            return
    raise AssertionError("results are sent without end")


def take_back_a_write(client: Client) -> None:
    """Make a commit that is rejected before it is sent."""
    layer = client.replica.write_whole(client.replica.documents.of(doc("y")), 99, ())
    assert layer is not None
    client.session.outgoing.clear()
    client.replica.rejected(layer.local_seq, Conflict(dead_layers=(layer.local_seq,)))
