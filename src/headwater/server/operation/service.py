"""What the connections of one server share: its spaces, its keys, its limits, its figures and its log."""

from __future__ import annotations

from pathlib import Path

from structlog.typing import FilteringBoundLogger

from headwater.clock import Clock, RealClock
from headwater.engine.admission.access import Founders
from headwater.server.operation.keys import LOCAL, Keyring
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS, ServerLimits
from headwater.server.operation.log import logger
from headwater.server.operation.metrics import Metrics
from headwater.server.operation.spaces import Spaces


class Service:
    """Made on the event loop it serves. `insecure_local`: everybody is the user `local`, no token is looked at."""

    __slots__ = ("_keyring", "clock", "insecure_local", "limits", "log", "metrics", "owner", "ready", "spaces")

    def __init__(
        self,
        directory: str | Path,
        *,
        insecure_local: bool = False,
        clock: Clock | None = None,
        limits: ServerLimits = DEFAULT_SERVER_LIMITS,
        log: FilteringBoundLogger | None = None,
        owner: str = "",
        anyone_founds: bool = False,
        guarded: bool = False,
    ) -> None:
        """`owner` and `anyone_founds`: who may make spaces. `guarded`: this process writes only to its spaces."""
        self.clock = clock or RealClock()
        self.limits = limits
        self.log = log or logger(self.clock)
        self._keyring = Keyring(directory, self.clock)
        self.insecure_local = insecure_local and not len(self._keyring)
        self.owner = LOCAL if self.insecure_local else owner
        self.spaces = Spaces(
            directory,
            clock=self.clock,
            limits=limits,
            on_failed=self._space_failed,
            on_peer_failed=self.connection_failed,
            founders=Founders(
                self.owner, anyone=anyone_founds or self.insecure_local, guarded=guarded and not self.insecure_local
            ),
        )
        self.metrics = Metrics(self.spaces.hosts, self.clock, limits.metrics_s)
        self.ready = True

    def authenticate(self, token: str) -> tuple[str, float | None]:
        """Who bears a token, and for how many seconds it is still good."""
        if self.insecure_local:
            return LOCAL, None
        principal = self._keyring.principal(token)
        return principal.user, (principal.until_us - self.clock.now_us()) / 1e6

    def _space_failed(self, space: str, error: BaseException) -> None:
        """Any thread. A bug of ours or a broken disk: everybody in the space starts over, the server stays up."""
        self.log.error("space failed", space=space, error=repr(error), exc_info=error)

    def connection_failed(self, space: str, error: Exception) -> None:
        """Any thread. A bug of ours about one connection, which ends: everybody else goes on."""
        self.log.error("connection failed", space=space, error=repr(error), exc_info=error)
