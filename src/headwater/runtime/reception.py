"""The reception: the engine's end of one connection, before the hub takes over.

Greets, asks who it is, finds the host of the space, and hands everything else to it. The same for every
transport, so that they cannot disagree about the protocol. Does no input or output: whoever moves the bytes gives
it messages, and turns what it raises into a `Problem` and a closed connection.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.data.address import check_space
from headwater.engine.host import Host
from headwater.engine.limits import Limits
from headwater.engine.peer import Peer, PeerState, Send
from headwater.errors import InvalidValueError, ProtocolError
from headwater.protocol.messages import VERSION, FromEngine, FromReplica, Hello, Open, Transact, Verdicts, Welcome
from headwater.protocol.verdict import Conflict, Rejected

CAPABILITIES = frozenset({"waves", "follow"})

Authenticate = Callable[[str], str]
"""The principal that a token stands for. Raises AccessError for one that is good for nothing."""


class Reception:
    """One connection's way to its space."""

    __slots__ = (
        "_answered",
        "_authenticate",
        "_host",
        "_host_of",
        "_limits",
        "_posted",
        "_send",
        "_space",
        "behind",
        "peer",
    )

    def __init__(self, send: Send, authenticate: Authenticate, host_of: Callable[[str], Host], limits: Limits) -> None:
        self.peer = Peer(self._told, limits)
        self._send = send
        self._authenticate = authenticate
        self._host_of = host_of
        self._limits = limits
        self._host: Host | None = None
        self._space = ""
        self._posted = 0  # commits; counted by whoever calls `receive`
        self._answered = 0  # commits; counted on the host's thread
        self.behind = 0  # how often in a row its commits were rejected for being stale

    @property
    def is_greeted(self) -> bool:
        return self.peer.state is not PeerState.NEW

    @property
    def has_room(self) -> bool:
        """Whether fewer commits wait for their verdict than a session may have in flight."""
        return self._posted - self._answered < self._limits.in_flight

    def receive(self, message: FromReplica) -> None:
        match message:
            case Hello():
                self._greet(message)
            case Open():
                self._open(message)
            case _:
                if self._host is None:
                    raise ProtocolError(f"{type(message).__name__} before a session is open. Send Hello, then Open.")
                if isinstance(message, Transact):
                    self._posted += len(message.commits)
                self._host.post(self.peer, message, self.behind)

    def lost(self) -> None:
        """The connection is gone."""
        if self._host is not None:
            self._host.lost(self.peer)

    def _greet(self, message: Hello) -> None:
        if self.is_greeted:
            raise ProtocolError("a connection says hello once")
        if VERSION not in message.versions:
            spoken = ", ".join(map(str, message.versions)) or "none"
            raise ProtocolError(f"this end speaks version {VERSION} of the protocol, the other: {spoken}")
        self.peer.principal = self._authenticate(message.token)
        self.peer.state = PeerState.GREETED
        self._send(Welcome(VERSION, tuple(sorted(CAPABILITIES.intersection(message.capabilities)))))

    def _open(self, message: Open) -> None:
        if not self.is_greeted:
            raise ProtocolError("the first message is Hello")
        if self._host is None:
            try:
                check_space(message.space)
            except InvalidValueError as error:
                raise ProtocolError(str(error)) from error
            self._host, self._space = self._host_of(message.space), message.space
        elif message.space != self._space:
            raise ProtocolError(f"this connection is in space {self._space!r}. Make another one for {message.space!r}.")
        self._host.post(self.peer, message)

    def _told(self, message: FromEngine) -> None:
        if isinstance(message, Verdicts):
            self._answered += len(message.verdicts)
            last = message.verdicts[-1]
            stale = isinstance(last, Rejected) and isinstance(last.rejection, Conflict)
            self.behind = self.behind + 1 if stale else 0
        self._send(message)
