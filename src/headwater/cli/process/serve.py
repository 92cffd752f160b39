"""`headwater serve DIRECTORY`: the spaces of a directory for other processes. Needs the extra `server`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headwater.cli.keys import server_extra
from headwater.cli.output import OK
from headwater.cli.owner import announced, url_of
from headwater.cli.parameters import DirectoryPath

SWITCH_INTERVAL_S = 0.000_5


def serve(
    directory: DirectoryPath,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8_900,
    insecure_local: Annotated[bool, Parameter(negative=())] = False,
    owner: str = "",
    anyone_founds: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Serve the spaces of a directory over WebSocket until interrupted.

    Without keys (`headwater keys new`) it listens on this machine only, and only with --insecure-local.

    Example: `headwater serve ./data --port 8900`

    Parameters
    ----------
    host
        The address to listen on. Anything but a loopback address needs keys.
    port
        The port to listen on; 0 takes a free one, which the first line of the log names.
    insecure_local
        Without keys: everybody on this machine is the user `local`.
    owner
        With keys: the user who may make spaces by writing to them, and owns them then.
    anyone_founds
        With keys: every user with a token may make a space by being the first to write to it, and owns it. Without
        this only OWNER may.
    """
    with server_extra():
        import uvloop  # noqa: PLC0415 (an extra)

        from headwater.server.server import Server  # noqa: PLC0415 (an extra)

    async def run() -> None:
        server = Server(
            Path(directory),
            host=host,
            port=port,
            insecure_local=insecure_local,
            owner=owner,
            anyone_founds=anyone_founds,
            classes=(),
        )
        with announced(Path(directory), url_of(*server.address)):
            await server.run_until_stopped(signals=True)

    # The loop's thread and the spaces' threads hand over to each other many times a millisecond.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    uvloop.run(run())
    return OK
