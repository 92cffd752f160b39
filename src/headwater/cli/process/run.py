"""`headwater run APP.py` and `headwater serve DIRECTORY`: a server with an application, and without. Need the extra
`server`.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

import headwater
from headwater.cli.directory import announce_address, format_url
from headwater.cli.keys import server_extra
from headwater.cli.limits import DEFAULT_COMMAND_LIMITS
from headwater.cli.output import FAILED, OK, DirectoryPath, Json, print_answer, print_error, print_json, print_note
from headwater.errors import AuthoringError

if TYPE_CHECKING:
    from headwater.cli.process.reload import Reload
    from headwater.runtime.api.runtime import Runtime
    from headwater.server.server import Server


START: Final = "async def start(rt: headwater.Runtime) -> None"
START_AGAIN: Final = -1
"""Not an exit code: the program has to be started again, with its new code, on the same data."""


def run(
    app: Annotated[str, Parameter(help="The file of the application, or one class of it.")],
    /,
    *,
    data: Path = Path("./data"),
    host: str = "127.0.0.1",
    port: int = 8_900,
    insecure_local: Annotated[bool, Parameter(negative=())] = False,
    owner: str = "",
    anyone_founds: Annotated[bool, Parameter(negative=())] = False,
    host_name: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    reload: Annotated[bool, Parameter(negative=())] = False,
    json: Json = False,
) -> int:
    """Run an application: its pieces, its data and its page.

    APP is the file of the application, `shop.py`, or one class of it, `shop.py:Cart`. If it has `async def start(rt)`,
    that is called with the runtime and opens pieces, and `async def work(rt)` is run beside it; otherwise its
    `async def main()` is run beside the server, on the same data. A folder `page` beside it has the files for browsers.
    It runs until it is interrupted.

    Example: `headwater run examples/board/app.py --insecure-local --reload`

    Parameters
    ----------
    data
        The directory of the data.
    host
        The address to listen on. Anything but a loopback address needs keys (`headwater keys new`).
    port
        The port to listen on; 0 takes a free one.
    insecure_local
        Without keys: every client on this machine is believed which user it is.
    owner
        With keys: the user who owns the spaces that the application makes, and says who else may use them. The
        application refuses to write to a space of others that this user may not write to.
    anyone_founds
        With keys: every user with a token may make a space by being the first to write to it, and owns it. Without
        this only OWNER may.
    host_name
        A name under which browsers reach this server, for example that of a reverse proxy; may be given several times.
        Without it a server on this machine answers to addresses and localhost only, so that no web site can reach it
        by giving its own name the address of this machine.
    reload
        Apply changes of the application's files: state stays, and only members that do something else now
        run again. A change of the shape of a class is a new start on the same data.
    """
    with server_extra():
        import uvloop  # noqa: PLC0415 (an extra)

        from headwater.server.server import Server  # noqa: PLC0415 (an extra)

    from headwater.cli.loading import load_application, page_folder  # noqa: PLC0415 (only where an application runs)

    module, classes, file = load_application(app)
    reloading = _reload(app, file, module) if reload else None  # At once, so that later edits count as changes.
    address: list[int] = []

    async def serving() -> int:
        server = Server(
            data,
            host=host,
            port=port,
            insecure_local=insecure_local,
            owner=owner,
            anyone_founds=anyone_founds,
            hosts=host_name,
            classes=classes,
            pages=page_folder(file),
        )
        address.append(server.address[1])
        return await _serve(server, module, data, owner, json=json, reloading=reloading)

    sys.setswitchinterval(DEFAULT_COMMAND_LIMITS.switch_interval_s)
    code = uvloop.run(serving())
    if code == START_AGAIN:
        flags = [*(["--insecure-local"] if insecure_local else ()), *(["--json"] if json else ()), "--reload"]
        flags += ["--anyone-founds"] if anyone_founds else []
        flags += [part for name in host_name for part in ("--host-name", name)]
        where = ["--data", str(data), "--host", host, "--port", str(address[0]), "--owner", owner]
        os.execv(sys.executable, [sys.executable, "-P", "-m", "headwater.cli", "run", app, *where, *flags])
    return code


def _describe_unwritable(space: str, owner: str, data: Path) -> str:
    access = f'{{"owners": ["{owner}"]}}'
    return (
        f"{owner!r} may not write the space {space}: handlers of this application fail there, and no records are "
        f"delivered. Its owners can change that. If it was made under --insecure-local, hand it over while no process "
        f"serves it: headwater set {data} {space} 'space:$access' '{access}' --app FILE"
    )


def _reload(app: str, file: Path, module: ModuleType) -> Reload:
    from headwater.cli.process.reload import Reload  # noqa: PLC0415 (only where it was asked for)

    return Reload(app, file, module)


async def _serve(
    server: Server, module: ModuleType, data: Path, owner: str, *, json: bool, reloading: Reload | None
) -> int:
    """Serve until a signal, with the application's `start` and background task."""
    from headwater.cli.directory import announce_address, format_url  # noqa: PLC0415 (only where an application runs)
    from headwater.runtime.api import entry_points  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    served = loop.create_task(server.run_until_stopped(signals=True))
    await asyncio.sleep(0)  # From here on signals are handled, before the address is printed.
    runtime = server.application().runtime
    runtime.on_error(lambda error: print_note(f"error: {_describe_error(error)}"))
    begun: asyncio.Task[None] | None = None
    failures: list[BaseException] = []
    broken: list[BaseException] = []  # with --reload: errors that ended the program, until its code changes

    def ended(task: asyncio.Task[None]) -> None:
        if reloading is None or task.cancelled():
            failures.extend(_on_program_end(task, server))
        elif isinstance(task.exception(), Exception):
            broken.extend(_report_until_change(task.exception()))

    watching: asyncio.Task[None] | None = None
    url = format_url(*server.address)
    try:
        with entry_points.served(data, server.application().backend), announce_address(data, url):
            begin, beside = getattr(module, "start", None), _find_background(module, runtime)
            if begin is not None:
                server.service.health.note_starting()
                begun = loop.create_task(_start(begin, runtime))
                await asyncio.wait([begun, served], return_when=asyncio.FIRST_COMPLETED)
                if begun.done():
                    server.service.health.note_started()
                    error = begun.exception()
                    if error is not None and (reloading is None or not isinstance(error, Exception)):
                        raise error
                    broken.extend(_report_until_change(error) if error is not None else ())
            if not broken and (begun is None or begun.done()):
                for space in await server.application().unwritable_spaces():
                    print_note(_describe_unwritable(space, owner, data))
            if beside is not None and not broken and (begun is None or begun.done()):
                begun = loop.create_task(beside())
                begun.add_done_callback(ended)
            if begin is None and beside is None:
                print_note(f"nothing is open: write {START}, and open in it the pieces that are to run")
            if json:
                print_json({"name": module.__name__, "url": url, "data": str(data)})
            else:
                print_answer(f"{module.__name__} is at {url}/")
            if reloading is None:
                _keep_out_of_collections()
            else:
                watching = loop.create_task(
                    reloading.until_reshaped(lambda: (runtime, *entry_points.taking_part()), lambda: bool(broken))
                )
                watching.add_done_callback(lambda _: server.stop())
            await served
    except BaseException:
        server.stop()
        await asyncio.wait([served])
        raise
    finally:
        for task in (begun, watching):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
    if watching is not None and not watching.cancelled():
        watching.result()
        print_note("starting again, on the same data")
        return START_AGAIN
    return FAILED if failures else OK


async def _start(begin: Callable[..., object], runtime: Runtime) -> None:
    """Call the application's `start`, if it has one."""
    try:
        inspect.signature(begin).bind(runtime)
    except TypeError as error:
        raise AuthoringError(f"start cannot be called with the runtime ({error}): write {START}") from None
    made = begin(runtime)
    if not inspect.isawaitable(made):
        raise AuthoringError(f"start is not awaited, and opens nothing: write {START}")
    await made


def _keep_out_of_collections() -> None:
    """Leave the objects that exist after the start out of later garbage collections.

    A full collection holds every thread for the time that it takes to look at all objects. Modules and classes, which
    are most of them, stay for the life of the process.
    """
    gc.collect()
    gc.freeze()


def _find_background(module: ModuleType, runtime: Runtime) -> Callable[[], Coroutine[Any, Any, None]] | None:
    """Return the background task: `work`, or `main` if the application has no `start`."""
    work, main = getattr(module, "work", None), getattr(module, "main", None)
    if inspect.iscoroutinefunction(work):
        return lambda: work(runtime)
    if inspect.iscoroutinefunction(main) and not hasattr(module, "start"):
        return lambda: main()
    return None


def _report_until_change(error: BaseException | None) -> list[BaseException]:
    """Print why a program ended, and return the error. It starts again when its code changes."""
    if error is None:
        return []
    print_error(_describe_error(error))
    print_note("It starts again when its code changes.")
    return [error]


def _on_program_end(task: asyncio.Task[None], server: Server) -> list[BaseException]:
    """Stop the server if the background task failed. A task that ends or is cancelled does not stop it."""
    error = None if task.cancelled() else task.exception()
    if error is None or server.should_exit:
        return []
    print_error(_describe_error(error))
    server.stop()
    return [error]


def _describe_error(error: BaseException) -> str:
    """Describe an error, with its place in the application if known."""
    said = f"{type(error).__name__}: {error}".removesuffix(": ")
    ours, steps = os.path.dirname(headwater.__file__), traceback.extract_tb(error.__traceback__)
    own = [step for step in steps if not step.filename.startswith((ours, os.path.dirname(asyncio.__file__), "<"))]
    return said if not own else f"{said} ({os.path.basename(own[-1].filename)}:{own[-1].lineno}: {own[-1].line})"


def serve(
    directory: DirectoryPath,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8_900,
    insecure_local: Annotated[bool, Parameter(negative=())] = False,
    owner: str = "",
    anyone_founds: Annotated[bool, Parameter(negative=())] = False,
    host_name: Annotated[tuple[str, ...], Parameter(negative=())] = (),
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
    host_name
        A name under which browsers reach this server, for example that of a reverse proxy; may be given several times.
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
            hosts=host_name,
            classes=(),
        )
        with announce_address(Path(directory), format_url(*server.address)):
            _keep_out_of_collections()
            await server.run_until_stopped(signals=True)

    # The loop's thread and the spaces' threads switch many times a millisecond.
    sys.setswitchinterval(DEFAULT_COMMAND_LIMITS.switch_interval_s)
    uvloop.run(run())
    return OK
