"""Short ways to say what nodes did. Decides and checks nothing."""

from __future__ import annotations

from headwater.data.address import Depth, DocKey
from headwater.engine.engine import Engine
from headwater.protocol.commit import MAIN, Commit, Read
from headwater.protocol.observations import (
    About,
    Backlog,
    Footprint,
    ForeignRead,
    NodeKey,
    Observation,
    Observations,
    Observed,
    PieceBacklog,
    QueryBacklog,
    QueryObservations,
    QueryReaders,
    Readers,
    Touched,
    encode_part,
)
from headwater.protocol.verdict import Verdict
from tests.unit.engine.kit import doc

DEEP = Depth.DEEP


def node(name: str, *, generation: int = 1, child: str = "", scope: str = "", principal: str = "") -> NodeKey:
    """`piece.member`."""
    piece, _, member = name.partition(".")
    return NodeKey(piece, generation, member, child, scope, principal)


def looked(id: str, *path: str | int, seq: int, depth: Depth = DEEP, layers: tuple[tuple[int, int], ...] = ()) -> Read:
    return Read(doc(id), path, depth, seq, layers)


class Runner:
    """A session that runs nodes: numbers its commits and its runs."""

    def __init__(self, engine: Engine, key: str = "s", *, principal: str = "", branch: str = MAIN) -> None:
        self.engine = engine
        self.key = key
        self.branch = branch
        engine.open_session(key, principal)
        self.order = 0
        self.next = 1

    def run(
        self,
        name: str | NodeKey,
        *reads: Read,
        local_seq: int = 0,
        fingerprint: str = "code",
        foreign: tuple[ForeignRead, ...] = (),
        children: tuple[str, ...] = (),
        cause: DocKey | None = None,
        failed: str = "",
        took_us: int = 0,
        gone: bool = False,
    ) -> Observation:
        """What a run of a node is observed to be."""
        self.order += 1
        key = node(name) if isinstance(name, str) else name
        layers = tuple(read.layers for read in reads) if any(read.layers for read in reads) else ()
        return Observation(
            encode_part(About(key, "computed", fingerprint)),
            encode_part(Footprint(tuple(Touched(read.doc, read.path, read.depth) for read in reads), children)),
            self.order,
            local_seq,
            min((read.seq for read in reads), default=self.engine.last_seq),
            layers,
            failed,
            None if cause is None else (cause, ()),
            foreign,
            took_us,
            gone,
        )

    def send(self, *commits: Commit, observed: tuple[Observation, ...] = ()) -> tuple[Verdict, ...]:
        runs = {0: (self.branch, observed)} if observed else None
        outcome = self.engine.submit_group([(self.key, commits)], observed=runs)[0]
        assert not isinstance(outcome, Exception), outcome
        return outcome

    def observe(self, *observed: Observation) -> None:
        assert self.send(observed=observed) == ()


def observed(engine: Engine, piece: str = "", *, branch: str = MAIN, limit: int = 1_000) -> list[Observed]:
    """Everything that is known, in pages."""
    found: list[Observed] = []
    after: NodeKey | None = None
    while True:
        page = engine.query_observations(QueryObservations(1, piece, after=after, limit=limit), branch=branch)
        assert isinstance(page, Observations)
        assert len(page.observed) <= limit
        found += page.observed
        if page.next is None:
            return found
        after = page.next


def clean(engine: Engine, branch: str = MAIN) -> dict[str, bool]:
    return {_name(each.node): not each.stale for each in observed(engine, branch=branch)}


def _name(key: NodeKey) -> str:
    return f"{key.piece}.{key.member}{f'[{key.child}]' if key.child else ''}"


def backlog(engine: Engine, branch: str = MAIN, *, limit: int = 100) -> dict[str, PieceBacklog]:
    found: dict[str, PieceBacklog] = {}
    after: str | None = ""
    while after is not None:
        page = engine.query_observations(QueryBacklog(1, after, limit), branch=branch)
        assert isinstance(page, Backlog)
        found |= {each.piece: each for each in page.pieces}
        after = page.next
    return found


def readers(engine: Engine, id: str, branch: str = MAIN, *, limit: int = 100) -> list[str]:
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = engine.query_observations(QueryReaders(1, doc(id), after, limit), branch=branch)
        assert isinstance(page, Readers)
        found += page.pieces
        after = page.next
    return found
