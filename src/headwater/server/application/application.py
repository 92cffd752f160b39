"""An application in the process that serves it: its runtime over the server's own spaces, and what pages may ask of it.

The runtime is trusted: it acts for whoever sent an event, and what that person may do is decided before. Pieces that
the application opens itself run as long as the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from headwater.cells.cell import Cell
from headwater.cells.model import Json
from headwater.data.address import check_space
from headwater.data.ids import derive
from headwater.data.value import ABSENT
from headwater.engine.admission.access import ACCESS, Right, right_in
from headwater.engine.log.sessions import PAGES
from headwater.engine.sync.error_codes import LASTING
from headwater.errors import AccessError, AuthoringError, HeadwaterError
from headwater.pieces.piece import Piece
from headwater.protocol.pages import Place
from headwater.replica.document import NOT_HERE
from headwater.runtime.loopback import Loopback, LoopbackConnection
from headwater.runtime.runtime import Runtime
from headwater.runtime.transport import Heard, Lost, Transport
from headwater.server.application.reaction_spaces import Attending
from headwater.server.operation.keys import LOCAL
from headwater.server.operation.rate_limit import Rate
from headwater.server.operation.service import Service


class Served:
    """The spaces of a server, for a runtime of the same process."""

    __slots__ = ("_service", "life", "token")

    def __init__(self, service: Service) -> None:
        self._service = service
        self.life = service.clock.new_token(8)  # of the process that owns the directory
        self.token = ""

    def transport(self, space: str) -> Transport | None:
        check_space(space)
        return _ToService(self._service, space)

    async def close(self) -> None:
        """The server closes its spaces itself."""


class _ToService:
    """Connects to one space of the server."""

    __slots__ = ("_service", "_space")

    def __init__(self, service: Service, space: str) -> None:
        self._service = service
        self._space = space

    async def connect(self, heard: Heard, lost: Lost) -> LoopbackConnection:
        spaces, space = self._service.spaces, self._space
        try:
            await spaces.enter(space)
        except tuple(LASTING.values()):
            raise
        except HeadwaterError as error:
            raise ConnectionError(f"space {space!r} cannot be opened: {error}") from error

        def left(reason: str) -> object:
            spaces.leave(space)
            return lost(reason)

        return await Loopback(lambda _: spaces.host_of(space)).connect(heard, left)


class Application:
    """The application of one server."""

    __slots__ = ("_classes", "_service", "attachment", "attending", "limits", "runtime")

    def __init__(self, service: Service, classes: Iterable[type[Piece]]) -> None:
        self._service = service
        self._classes = {each.__outline__.name: each for each in classes}
        self.limits = service.limits
        self.attachment = Served(service)
        self.runtime = Runtime(self.attachment, clock=service.clock, reacts=bool(self._classes))
        self.attending = Attending(service, self.attachment, self.runtime)
        if self._classes:
            self.attending.begin()
        service.metrics.count_resumed(lambda: self.runtime.pieces.resuming.counts)

    def authenticate(self, token: str, user: str) -> tuple[str, float | None]:
        """Who somebody is, and for how many seconds that is known. Where nobody has to prove it, it is who they say."""
        name, left_s = self._service.authenticate(token)
        return self.called(name, token, user), left_s

    @staticmethod
    def called(name: str, token: str, said: str) -> str:
        """The user of a request: its authenticated name, or without keys the user that the request names."""
        return said if name == LOCAL and said and not token else name

    def new_session(self) -> str:
        return self._service.clock.new_token()

    def new_rate(self) -> Rate:
        """How fast a page may ask."""
        return Rate(self.limits.rate, self.limits.burst, self._service.clock)

    @staticmethod
    def session_of(user: str, said: str) -> str:
        """The session of a window that calls it so. Its name is no secret: it leads its own user there, nobody else."""
        return f"{PAGES}{derive('page', user, said)}"

    def piece(self, place: Place, user: str, session: str) -> Piece:
        """The piece that a page names, for its user and session."""
        cls = self._classes.get(place.cls)
        if cls is None:
            known = next((each for name, each in self._classes.items() if name.rpartition(".")[2] == place.cls), None)
            if known is None:
                there = ", ".join(self._classes)
                raise AuthoringError(f"this application has no class {place.cls!r}. It has: {there}.")
            cls = known
        self.check_space(place.space)
        space = self.runtime.acting(place.space, user, session)
        if place.id:
            home = self.runtime.pieces.known(place.space, place.id)
            if home is None or home.cls is not cls:
                raise AuthoringError(
                    f"{place.space} has no {place.cls} {place.id!r} here: name a child that its parent shows now"
                )
            return home.facet("session", user, session).piece
        return space.piece(cls, place.name)

    def has_classes(self) -> bool:
        """Whether it is an application, or only what answers commands for the spaces of a server."""
        return bool(self._classes)

    def check_space(self, name: str) -> None:
        """Naming a space opens it, which is for the application to do, not for whoever comes along."""
        if name not in {each.name for each in self.runtime.core.spaces()}:
            raise AccessError(
                f"this application has no space {name!r}: let its start(rt) open what pages look at, as in "
                f"await rt.space({name!r}).open(Class, 'name')"
            )

    def is_there(self, name: str) -> bool:
        """Whether there is such a space, here or in the directory. Asking opens nothing."""
        return name in {each.name for each in self.runtime.core.spaces()} or name in self._service.spaces.there()

    def may_make(self, user: str) -> bool:
        """Whether a user may have a space made by naming it."""
        return self._service.insecure_local or user == self._service.owner

    async def right_of(self, space: str, user: str) -> Right:
        """What a user may do in a space, by its access document as this runtime sees it."""
        if not self._service.insecure_local:
            await self.runtime.core.loaded(self.access_of(space).document)
        return self.right_now(space, user)

    def right_now(self, space: str, user: str) -> Right:
        """The same, at once: what is not known yet is no right."""
        if self._service.insecure_local:
            return Right.OWN
        value = self.access_of(space).document.value
        if value is NOT_HERE or (value is ABSENT and user != self._service.owner):
            return Right.NONE  # Not known, or nobody's yet but its owner's to be.
        return right_in(value, user)

    def access_of(self, space: str) -> Cell[Any]:
        """The access document of a space."""
        return self.runtime.cell(space, ACCESS.id, Json, scope=ACCESS.scope)

    async def close(self) -> None:
        ends = await asyncio.gather(self.attending.close(), self.runtime.close(), return_exceptions=True)
        for error in ends:
            if error is not None:
                raise error
