"""`headwater worker`: delivers records to the reactions of an application through a server. Any number can run.

When it stops it finishes the deliveries that run, and gives the other claimed targets back.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Annotated

from cyclopts import Parameter

from headwater.cli.data.target import TOKEN
from headwater.cli.output import OK, Json, print_answer, print_json, print_note
from headwater.errors import AuthoringError, HeadwaterError


def worker(
    app: Annotated[str, Parameter(help="The file of the application, like shop.py.")],
    /,
    *,
    url: str,
    space: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    slots: int = 16,
    lane: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    lease_ms: int = 30_000,
    token: str = "",
    json: Json = False,
) -> int:
    """Deliver records to the reactions of an application, through a server, until interrupted.

    Example: `headwater worker shop.py --url ws://127.0.0.1:8900 --space shop`

    Parameters
    ----------
    url
        The address of the server.
    space
        A space to work for, at least one. May be said several times.
    slots
        Targets at once, in each lane.
    lane
        Another number for one lane: `slow=2`.
    lease_ms
        How long another worker waits for this one if it dies.
    token
        Proves who works. Default: the environment's HEADWATER_TOKEN.
    """
    from headwater.cli.loading import load_application  # noqa: PLC0415 (only where an application runs)
    from headwater.reactions.drain import Pace  # noqa: PLC0415

    if not space:
        raise AuthoringError("say which spaces to work for: --space shop, once for each")
    load_application(app)
    pace = Pace(slots=slots, lanes=dict(map(_parse_lane, lane)), lease_ms=lease_ms)
    return asyncio.run(_deliver(url, token or os.environ.get(TOKEN, ""), space, pace, json=json))


def _parse_lane(said: str) -> tuple[str, int]:
    name, _, slots = said.partition("=")
    if not name or not slots.isdecimal():
        raise AuthoringError(f"--lane {said}: write its name and how many at once, like slow=2")
    return name, int(slots)


async def _deliver(url: str, token: str, spaces: tuple[str, ...], pace: object, *, json: bool) -> int:
    from headwater.reactions.drain import Pace  # noqa: PLC0415
    from headwater.reactions.port import is_refusal  # noqa: PLC0415
    from headwater.reactions.traces import Attempt, Trace  # noqa: PLC0415
    from headwater.runtime.api.runtime import Runtime  # noqa: PLC0415

    assert isinstance(pace, Pace)
    address = "ws" + url.removeprefix("http") if url.startswith("http") else url
    if not address.startswith(("ws://", "wss://")):
        raise AuthoringError(f"{url} is not the address of a server: write it like wss://example.org")
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stopped.set)

    def on_trace(what: Trace) -> None:
        if isinstance(what, Attempt) and (json or what.how != "delivered"):
            told = {name: getattr(what, name) for name in what.__slots__}
            if json:
                print_json(told)
            else:
                print_note(
                    f"{what.reaction} for {what.key!r}: {what.how}{f', {what.then}' if what.then else ''} "
                    f"{what.error}{f': {what.message}' if what.message else ''}"
                )

    runtime = Runtime(address, token=token, reacts=True, pace=pace)
    runtime.on_error(lambda error: print_note(f"error: {type(error).__name__}: {error}"))
    runtime.served.listen(on_trace)
    refused: list[HeadwaterError] = []

    async def check_access(space: str) -> None:
        """Check that the worker may work in a space; otherwise the command ends with the error."""
        try:
            await runtime.reactions.list(space=space)
        except HeadwaterError as error:
            if is_refusal(error):
                refused.append(error)
                stopped.set()

    async with runtime:
        for space in spaces:
            runtime.space(space)
        looks = [asyncio.ensure_future(check_access(space)) for space in spaces]
        if not json:
            print_answer(f"working for {', '.join(spaces)} at {url}")
        await stopped.wait()
        for task in looks:
            task.cancel()
    if refused:
        raise refused[0]
    return OK
