"""The engine's end of one connection. All transports share it, so that they cannot disagree about the protocol.

Does no input or output: the transport passes decoded messages in, and turns errors that are raised into a `Problem` and
a closed connection.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.data.address import check_space
from headwater.engine.limits import Limits
from headwater.engine.sync.host import Host
from headwater.engine.sync.peer import Peer, PeerState, Send
from headwater.errors import AccessError, InvalidValueError, ProtocolError
from headwater.protocol.messages import (
    VERSION,
    FromEngine,
    FromReplica,
    Hello,
    Open,
    Renew,
    Renewed,
    Transact,
    Verdicts,
    Welcome,
)

CAPABILITIES = frozenset({"waves", "follow"})

Authenticate = Callable[[str], str]
"""Returns the principal of a token. Raises AccessError for a token that is not valid."""


class ConnectionEnd:
    """The engine's end of one connection.

    Answers `Hello`, authenticates, finds the host, passes every later message to it, and counts commits without a
    verdict.
    """

    __slots__ = (
        "_answer",
        "_answered",
        "_authenticate",
        "_host",
        "_host_of",
        "_limits",
        "_posted",
        "_send",
        "_space",
        "peer",
    )

    def __init__(
        self,
        send: Send,
        authenticate: Authenticate,
        host_of: Callable[[str], Host],
        limits: Limits,
        *,
        answer: Send | None = None,
        is_own: bool = False,
    ) -> None:
        """Send messages of the hub with `send` (its thread), its own with `answer` (in `receive`).

        `is_own`: the session is in the same process as the engine.
        """
        self.peer = Peer(self._told, limits, is_own=is_own)
        self._send = send
        self._answer = answer or send
        self._authenticate = authenticate
        self._host_of = host_of
        self._limits = limits
        self._host: Host | None = None
        self._space = ""
        self._posted = 0  # commits; counted on the thread that calls `receive`
        self._answered = 0  # commits; counted on the host's thread

    @property
    def is_greeted(self) -> bool:
        return self.peer.state is not PeerState.NEW

    @property
    def has_room(self) -> bool:
        """True if fewer commits wait for their verdict than a session may have in flight."""
        return self._posted - self._answered < self._limits.in_flight

    @property
    def is_idle(self) -> bool:
        """True if every commit has its verdict."""
        return self._posted == self._answered

    @property
    def is_open(self) -> bool:
        return self.peer.state is PeerState.OPEN

    def receive(self, message: FromReplica) -> None:
        """Take in a message. LimitError: too many messages wait for the space, and this one was not taken in."""
        match message:
            case Hello():
                self._greet(message)
            case Open():
                self._open(message)
            case Renew():
                self._renew(message)
            case _:
                if self._host is None:
                    raise ProtocolError(f"{type(message).__name__} before a session is open. Send Hello, then Open.")
                self._host.post(self.peer, message)
                if isinstance(message, Transact):
                    self._posted += len(message.commits)

    def lost(self) -> None:
        """Tell the host that the connection is gone."""
        if self._host is not None:
            self._host.lost(self.peer)

    def _greet(self, message: Hello) -> None:
        if self.is_greeted:
            raise ProtocolError("a connection says hello once")
        if VERSION not in message.versions:
            spoken = ", ".join(map(str, message.versions)) or "none"
            raise ProtocolError(f"this end speaks version {VERSION} of the protocol, the other: {spoken}")
        self.peer.greet(self._authenticate(message.token))
        self._answer(Welcome(VERSION, tuple(sorted(CAPABILITIES.intersection(message.capabilities)))))

    def _renew(self, message: Renew) -> None:
        """Check a new token of the same user like the first one: a token that is not valid ends the connection."""
        if not self.is_greeted:
            raise ProtocolError("the first message is Hello")
        user = self._authenticate(message.token)
        # fault+ reception.renewed_as_another_user: self.peer.principal = user
        if user != self.peer.principal:
            raise AccessError(
                f"this connection is of {self.peer.principal!r}, the token is of {user!r}. Make another connection."
            )
        if self._host is None:
            self._answer(Renewed())
        else:
            self._host.post(self.peer, message)  # answered in order, like every other message

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
        self._send(message)
