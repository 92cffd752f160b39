"""Entry points: `open` a directory, `connect` to a server, `run` a program, `open_dry` for previews and shadow runs.

`open` and `connect` return an `Opening`, which can be awaited or entered; leaving it waits until the runtime's work is
done. This module makes no decisions.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from os import PathLike
from os.path import realpath
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar
from weakref import WeakSet

from headwater.errors import AuthoringError, author_call, cut_frames
from headwater.runtime.api.runtime import Runtime
from headwater.runtime.channel.backend import Backend
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.core.policy import Policy

if TYPE_CHECKING:
    from headwater.runtime.resume.dry_nodes import DryNodes, Read

__all__ = ["Opening", "connect", "open", "open_dry", "run"]

T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")


class Opening(Generic[T_co]):
    """A runtime that is being opened: await it and close the runtime yourself, or enter it with `async with`."""

    __slots__ = ("_call", "_made", "_make")

    def __init__(self, call: str, make: Callable[[], Runtime]) -> None:
        self._call = call  # the function that returned it, for messages
        self._make = make
        self._made: Runtime | None = None

    def __repr__(self) -> str:
        return f"<{self._call}(...), {'opened' if self._made is not None else 'not awaited yet'}>"

    if not TYPE_CHECKING:  # Type checkers refuse all three.

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or not hasattr(Runtime, name):
                raise AttributeError(f"{self!r} has no attribute {name!r}")
            raise self._not_awaited(f"{self._call}(...).{name}")

        def __enter__(self) -> NoReturn:
            raise self._not_awaited(f"with {self._call}(...)")

        def __exit__(self, *_: object) -> None:
            """Do nothing: it cannot be entered."""

    def _not_awaited(self, wrong: str) -> AuthoringError:
        return AuthoringError(
            f"{wrong}: {self._call} returns a runtime only when it is awaited. Write async with {self._call}(...) as "
            f"rt, or rt = await {self._call}(...)"
        )

    @author_call
    async def _open(self) -> Any:
        if self._made is not None:
            raise AuthoringError("this was opened already: call open() again for another runtime")
        self._made = self._make()
        return self._made

    def __await__(self) -> Generator[Any, None, T_co]:
        return self._open().__await__()

    @author_call
    async def __aenter__(self) -> T_co:
        """Make the runtime, and wait until it is open."""
        made: T_co = await self._open()
        return made

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if self._made is not None:
            await self._made.close()


_SERVED: dict[str, Backend] = {}
"""Directories that this process serves to others: a program that opens one gets a runtime over the same spaces."""
_TAKING_PART: WeakSet[Runtime] = WeakSet()
"""The runtimes that programs opened over served directories."""


@contextmanager
def served(path: str | PathLike[str], backend: Backend) -> Iterator[None]:
    """Serve a directory from this process: until the context ends, `open` of it gives runtimes over the same spaces."""
    name = realpath(path)
    _SERVED[name] = backend
    try:
        yield
    finally:
        del _SERVED[name]


def open(
    path: str | PathLike[str],
    /,
    *,
    policy: Policy | None = None,
    branches: Mapping[str, str] | None = None,
    close_s: float = RUNTIME_LIMITS.close_s,
) -> Opening[Runtime]:
    """Open a runtime over a directory of this machine: one file per space, made with its first write.

    `branches` names the branch of each space that is not shown as it is on `main`. Closing waits `close_s` seconds at
    most for unfinished work.
    """
    return Opening("headwater.open", lambda: _opened(path, policy, branches, close_s))


def _opened(
    path: str | PathLike[str], policy: Policy | None, branches: Mapping[str, str] | None, close_s: float
) -> Runtime:
    backend = _SERVED.get(realpath(path))
    made = Runtime(path if backend is None else backend, policy=policy, reacts=True, branches=branches, close_s=close_s)
    if backend is not None:
        _TAKING_PART.add(made)
    return made


def taking_part() -> tuple[Runtime, ...]:
    """Return the runtimes that programs of this process opened over directories it serves, and did not close yet."""
    return tuple(each for each in _TAKING_PART if not each.core.is_closed)


def takes_part(runtime: Runtime) -> None:
    """Add a runtime that the server opened itself to the runtimes of `taking_part`."""
    _TAKING_PART.add(runtime)


def connect(
    url: str,
    /,
    *,
    token: str = "",
    policy: Policy | None = None,
    outbox: str | PathLike[str] | None = None,
    branches: Mapping[str, str] | None = None,
    close_s: float = RUNTIME_LIMITS.close_s,
) -> Opening[Runtime]:
    """Open a runtime over the spaces of a server. A server that runs under `--insecure-local` needs no token.

    Events sent in it are kept in the file `outbox`, if one is named, until they have an outcome: a program that ends
    before sends them again the next time, and each event is handled once. `branches` and `close_s` are as in `open`.
    """
    if not isinstance(url, str) or not url.startswith(("ws://", "wss://", "http://", "https://")):
        raise AuthoringError(f"connect({url!r}): write the address of a server, like wss://example.org")
    address = "ws" + url.removeprefix("http") if url.startswith("http") else url
    return Opening(
        "headwater.connect",
        lambda: Runtime(address, token=token, policy=policy, outbox=outbox, branches=branches, close_s=close_s),
    )


def run(main: Callable[[], Coroutine[Any, Any, R]], /) -> R:
    """Run a program to its end, also if an event loop is running already, as in a notebook."""
    said: object = main
    if inspect.iscoroutine(said):
        said.close()
        raise AuthoringError("run(main()) was called with the coroutine of main(): write headwater.run(main)")
    try:
        return _apart(main) if _is_running() else asyncio.run(_program(main))
    except Exception as error:
        cut_frames(error)
        raise


def _is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _program(main: Callable[[], Coroutine[Any, Any, R]]) -> R:
    made: Any = main()
    if not inspect.isawaitable(made):
        raise AuthoringError(f"run({main!r}) made {made!r}: write async def main()")
    result: R = await made
    return result


def _apart(main: Callable[[], Coroutine[Any, Any, R]]) -> R:
    """Run a program in a thread of its own. An interrupt of the caller cancels the program, which ends in order."""
    result: list[R] = []
    failed: list[BaseException] = []
    begun: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = []

    async def program() -> R:
        begun.append((asyncio.get_running_loop(), asyncio.current_task()))
        return await _program(main)

    def apart() -> None:
        try:
            result.append(asyncio.run(program()))
        except BaseException as error:  # Raised to the caller.
            failed.append(error)

    thread = threading.Thread(target=apart, name="headwater.run")
    thread.start()
    try:
        thread.join()
    except BaseException:
        while not begun and thread.is_alive():
            thread.join(0.01)
        for loop, task in begun:
            if task is not None and thread.is_alive():
                with suppress(RuntimeError):  # The program ended by itself.
                    loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    if failed:
        raise failed[0]
    return result[0]


@asynccontextmanager
async def open_dry(read: Read) -> AsyncIterator[DryNodes]:
    """Open a runtime without an engine, in which the nodes of pieces are registered and held.

    `read` returns the stored documents.
    """
    from headwater.runtime.resume.dry_nodes import attach_dry_nodes  # noqa: PLC0415  # Few programs preview.

    async with Runtime(None) as runtime:
        yield attach_dry_nodes(runtime.resume.parts, read)
