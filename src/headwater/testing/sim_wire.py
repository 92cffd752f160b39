"""What a simulated server says, checked where it leaves the machine.

Owns the memory of what was said in one life of the server: a verdict tells what the log has and is never taken back
(C6, C10), nobody is told what they may not read, and a session has one connection. Believes nobody; changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.engine.peer import Peer, PeerState
from headwater.protocol.messages import FromEngine, Problem, Verdicts
from headwater.protocol.verdict import Accepted, Verdict
from headwater.testing.sim_oracle import Oracle
from headwater.testing.sim_trace import Trace

WHO = "server"


class Wire:
    """Listens to everything that one server says."""

    __slots__ = ("_oracle", "_refused", "_trace")

    def __init__(self, oracle: Oracle, trace: Trace) -> None:
        self._oracle = oracle
        self._trace = trace
        self._refused: set[tuple[str, int]] = set()

    def forget(self) -> None:
        """The server died: it may have forgotten a no that nobody heard, and judge again."""
        self._refused.clear()

    def said(self, peer: Peer | None, message: FromEngine) -> None:
        """A message leaves, to this peer if it is still there."""
        if isinstance(message, Problem):
            self._check_problem(message)
        if peer is None:
            return
        self._oracle.access.check_told(peer.principal, peer.session, message, len(self._oracle.log))
        if isinstance(message, Verdicts):
            for verdict in message.verdicts:
                self._check_verdict((peer.session, verdict.local_seq), verdict)

    def _check_problem(self, problem: Problem) -> None:
        """Replicas that keep the protocol are never told that they broke it."""
        if problem.code == "protocol" and problem.id == 0:
            self._trace.broken("protocol", WHO, f"a replica was refused: {problem.message}")

    def _check_verdict(self, key: tuple[str, int], verdict: Verdict) -> None:
        landed = self._oracle.seq_of.get(key, 0)
        if not isinstance(verdict, Accepted):
            self._refused.add(key)
            if landed:
                self._trace.broken("C6", WHO, f"commit {key} is said to be refused and is in the log at {landed}")
            return
        if key in self._refused:
            self._trace.broken("C6", WHO, f"commit {key} was refused and is accepted when it comes again")
        if verdict.seq <= len(self._oracle.log) and verdict.seq != landed:
            self._trace.broken("C6", WHO, f"commit {key} is said to be at {verdict.seq}, the log has it at {landed}")

    def check_owners(self, peers: Iterable[Peer]) -> None:
        """One connection owns a session."""
        owners = [peer.session for peer in peers if peer.state is PeerState.OPEN]
        if len(owners) != len(set(owners)):
            self._trace.broken("session", WHO, f"a session is open on two connections: {sorted(owners)}")
