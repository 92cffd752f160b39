"""What the stories of runtimes share: several runtimes on one space, over each transport, with cables to cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headwater.runtime import Backend, LocalDirectory, RemoteServer, Runtime, Transport
from headwater.scheduler import Failure
from tests.unit.runtime.kit import Cuttable, address, serving

TRANSPORTS = ("embedded", "websocket")


class Cable:
    """A backend whose connections can be cut, and kept from being made again."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.token = backend.token
        self.life = ""
        self.is_only = False
        self.links: list[Gated] = []

    def transport(self, space: str) -> Transport | None:
        inner = self._backend.transport(space)
        assert inner is not None
        link = Gated(inner)
        self.links.append(link)
        return link

    async def close(self) -> None:
        """Do nothing: the maker of the backend closes it."""

    def cut(self) -> None:
        for link in self.links:
            link.cut()

    def unplug(self) -> None:
        for link in self.links:
            link.plugged.clear()
        self.cut()

    def plug_in(self) -> None:
        for link in self.links:
            link.plugged.set()


class Gated(Cuttable):
    """Connects only while it is plugged in."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self.plugged = asyncio.Event()
        self.plugged.set()

    async def connect(self, heard: Any, lost: Any) -> Any:
        await self.plugged.wait()
        return await super().connect(heard, lost)


class Rig:
    """Runtimes on one set of spaces."""

    def __init__(self, attach: Callable[[], Backend]) -> None:
        self._attach = attach
        self.runtimes: list[Runtime] = []
        self.cables: list[Cable] = []
        self.errors: list[Failure] = []

    def runtime(self) -> tuple[Runtime, Cable]:
        cable = Cable(self._attach())
        runtime = Runtime(cable)
        runtime.on_failure(self.errors.append)
        self.runtimes.append(runtime)
        self.cables.append(cable)
        return runtime, cable

    async def agreed(self, *handles: Any) -> Any:
        """Wait until all runtimes are quiet and durable and these handles read the same; what that is."""
        values: list[Any] = []
        for _ in range(1_000):
            for runtime in self.runtimes:
                await runtime.idle()
                await runtime.durable()
            values = [await handle.pull() for handle in handles]
            if all(value == values[0] for value in values):
                return values[0]
        raise AssertionError(f"they do not agree: {values}")


@asynccontextmanager
async def rig_on(transport: str, folder: Path) -> AsyncIterator[Rig]:
    if transport == "embedded":
        async with LocalDirectory(folder / "data", synchronous="OFF") as data:
            rig = Rig(lambda: data)
            try:
                yield rig
            finally:
                await closed(rig)
    else:
        async with serving(folder / "data", insecure_local=True) as server:
            rig = Rig(lambda: RemoteServer(address(server)))
            try:
                yield rig
            finally:
                await closed(rig)


async def closed(rig: Rig) -> None:
    for cable in rig.cables:
        cable.plug_in()
    for runtime in rig.runtimes:
        await runtime.close()
