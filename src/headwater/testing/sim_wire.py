"""What a simulated server says, checked where it leaves the machine.

Owns the memory of what was said: a verdict tells what the log has and is never taken back (C6, C10), a turn that is
over stays over (C5), nobody is told what they may not read, and a session has one connection. A restart forgets a no
that was not stored; one that came with an accepted commit of its session, or before one, was. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.engine import Peer, PeerState
from headwater.protocol.messages import FromEngine, Opened, Problem, Verdicts
from headwater.protocol.verdict import Accepted, Verdict
from headwater.testing.sim_oracle import Oracle
from headwater.testing.sim_trace import Trace

WHO = "server"


def is_mixed(verdicts: tuple[Verdict, ...]) -> bool:
    """Whether a wave was accepted in part, and its end was not."""
    return not isinstance(verdicts[-1], Accepted) and any(isinstance(verdict, Accepted) for verdict in verdicts)


class Wire:
    """Listens to everything that one server says."""

    __slots__ = ("_judged", "_oracle", "_refused", "_stored", "_trace")

    def __init__(self, oracle: Oracle, trace: Trace) -> None:
        self._oracle = oracle
        self._trace = trace
        self._refused: set[tuple[str, int]] = set()
        self._judged: dict[str, int] = {}  # by session: verdicts up to here were said in this life
        self._stored: dict[str, int] = {}  # by session: up to here a restart knows that there was a verdict

    def forget(self) -> None:
        """The server died, or its store failed: it may have forgotten a no that was not stored, and judge again."""
        self._judged.clear()
        self._refused = {(session, number) for session, number in self._refused if number <= self._kept(session)}

    def restored(self, oracle: Oracle) -> None:
        """It was given an older state: what it said since did not happen."""
        self._oracle = oracle
        self._judged.clear()
        self._refused.clear()
        self._stored.clear()

    def _kept(self, session: str) -> int:
        return self._stored.get(session, 0)

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
            last = message.verdicts[-1].local_seq
            self._judged[peer.session] = max(self._judged.get(peer.session, 0), last)
            self._store(peer.session, message.verdicts)
        elif isinstance(message, Opened):
            self._check_judged(message)

    def _store(self, session: str, verdicts: tuple[Verdict, ...]) -> None:
        """C6: what was judged with an accepted commit, or before one, is on the disk before anybody is told."""
        fresh = [verdict for verdict in verdicts if not (isinstance(verdict, Accepted) and verdict.replayed)]
        accepted = [isinstance(verdict, Accepted) for verdict in fresh]
        if any(accepted):
            self._stored[session] = max(self._kept(session), fresh[-1].local_seq)
            self._trace.counts["waves judged in part"] += not all(accepted)

    def _check_judged(self, message: Opened) -> None:
        stored, judged = self._kept(message.session), self._judged.get(message.session, 0)
        self._trace.counts["refusals kept over a restart"] += (message.session, stored) in self._refused
        if message.judged < max(stored, judged):
            said = f"session {message.session} was judged up to {max(stored, judged)} and is told {message.judged}"
            self._trace.broken("C5", WHO, said)

    def _check_problem(self, problem: Problem) -> None:
        """Replicas that keep the protocol are never told that they broke it."""
        if problem.code == "storage":
            self.forget()
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
