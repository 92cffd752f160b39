"""The messages of one life of a simulated process, noted beside its session.

Checks the order of verdicts on a connection (C5), knows the frames that may be sent again, and applies each message to
the books, the watches and the tokens. Sends nothing by itself.
"""

from __future__ import annotations

from headwater.errors import LoadError
from headwater.protocol.messages import (
    Ack,
    Answer,
    FromEngine,
    FromReplica,
    Hello,
    Open,
    Opened,
    Problem,
    Query,
    Renew,
    Renewed,
    Sync,
    Transact,
    Verdicts,
    Watch,
    Watched,
)
from headwater.replica import Reply
from headwater.testing.simulation.intents import Wants
from headwater.testing.simulation.replica_checks import Books
from headwater.testing.simulation.tokens import TokenHolder
from headwater.testing.simulation.trace import Trace


class Conversation:
    """The conversation of one process with the server, over its connections and lives."""

    __slots__ = (
        "_asked",
        "_frames",
        "_opening",
        "_tokens",
        "_told",
        "_trace",
        "_wants",
        "_who",
        "answered_open",
        "doubles_share",
        "problem",
    )

    def __init__(self, who: str, tokens: TokenHolder, wants: Wants, trace: Trace) -> None:
        self._who = who
        self._tokens = tokens
        self._wants = wants
        self._trace = trace
        self._told = 0  # verdicts came up to here, on this connection
        self._frames: list[Transact] = []  # the last that were sent
        self._asked: list[list[object]] = []  # queries, each with its answers
        self._opening: Open | None = None
        self.answered_open: Open | None = None  # the last whose answer came: its token was used
        self.doubles_share = 0.0  # of the frames are sent twice, which a correct replica never does
        self.problem: Problem | None = None  # being taken in

    def begin(self) -> None:
        """Another life."""
        self._frames = []
        self._asked = []

    def connected(self) -> None:
        self._told = 0
        self._tokens.connected()

    def repeatable(self, books: Books) -> list[Transact]:
        """Return the frames that may come again: the session has not excluded them."""
        return [frame for frame in self._frames if frame.commits[0].local_seq > books.released]

    def asks(self, query: Query, books: Books) -> Reply:
        """Return the callback for the answer to a query, of which there is one."""
        heard: list[object] = []
        self._asked.append(heard)

        def reply(answer: Answer | LoadError) -> None:
            heard.append(answer)
            if len(heard) > 1:
                self._trace.broken("query", self._who, f"{query} was answered {len(heard)} times")
            if isinstance(answer, Answer):
                books.check_answer(query, answer)

        return reply

    @property
    def is_answered(self) -> bool:
        return all(self._asked)

    def says(self, message: FromReplica, books: Books) -> None:
        match message:
            case Open(acked=acked):
                self._opening = message
                self._wants.opens(message)
                books.released = max(books.released, acked)
            case Ack(local_seq=local_seq):
                books.released = max(books.released, local_seq)
            case Transact():
                self._frames = [*self._frames[-8:], message]
            case Watch():
                self._wants.says(message)
            case Hello() | Renew():
                self._tokens.says(message)
            case _:
                pass

    def hears(self, message: FromEngine, books: Books) -> None:
        """Apply a message, before the session takes it in."""
        books.arriving = ()
        self.problem = None
        match message:
            case Opened(resumed=resumed):
                self.answered_open = self._opening
                books.opened()
                if not resumed:
                    self._wants.gap()
            case Verdicts(verdicts):
                self._check_order([verdict.local_seq for verdict in verdicts])
            case Watched(documents=documents):
                books.arriving = tuple(state.doc for state in documents)
                self._wants.arrived(message)
            case Sync(arrived=arrived):
                books.arriving = tuple(state.doc for state in arrived)
            case Problem():
                self.problem = message
                self._wants.narrowed(message)
            case Renewed():
                self._tokens.renewed()
            case _:
                pass

    def _check_order(self, local_seqs: list[int]) -> None:
        """C5: on one connection verdicts come in the order of the commits."""
        for local_seq in local_seqs:
            if local_seq <= self._told and not self.doubles_share:
                self._trace.broken("C5", self._who, f"the verdict of {local_seq} came after that of {self._told}")
            self._told = max(self._told, local_seq)
