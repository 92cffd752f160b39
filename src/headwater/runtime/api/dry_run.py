"""Runtimes for previews and shadow runs: without an engine, over pictures of spaces, in which no node runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headwater.runtime.api.runtime import Runtime
from headwater.runtime.resume.dry_nodes import Read, Standing, stand_in


@asynccontextmanager
async def open_dry(read: Read) -> AsyncIterator[Standing]:
    """Open a runtime in which the nodes of pieces are registered and held. `read` returns the stored documents."""
    async with Runtime(None) as runtime:
        yield stand_in(runtime.pieces, read)
