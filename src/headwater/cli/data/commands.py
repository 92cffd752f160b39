"""`headwater get`, `set`, `send`, `log`, `why`, `graph` and `intents`: reading a space, acting in it, and events on
their way.

WHERE is a data directory or the address of a server; a directory that a running process serves is asked through that
process. A member of a piece is written PIECE.MEMBER, a path inside it after #. `intents` on a directory that no process
serves lists stored events; otherwise also events in the runtime, with their waits, conflicts and outcomes.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter

from headwater.cli.data.target import ask
from headwater.cli.limits import DEFAULT_COMMAND_LIMITS, CommandLimits
from headwater.cli.output import (
    INTERRUPTED,
    OK,
    Json,
    SpaceName,
    format_short,
    format_time,
    print_answer,
    print_json,
    print_table,
)
from headwater.data.codec import from_json_form
from headwater.data.json_form import JsonForm
from headwater.errors import AbsentError, AuthoringError, DirectoryInUseError
from headwater.protocol.command_messages import CommandQuestion

Where: TypeAlias = Annotated[str, Parameter(help="The data directory, or the address of a server that runs.")]
PlaceName: TypeAlias = Annotated[
    str, Parameter(help="PIECE.MEMBER, and after a # the path inside: ann.lines#/0/qty. Or an address, space:ID#/path.")
]
App: TypeAlias = Annotated[
    str, Parameter(help="The application's file, for a directory that no process serves: its classes define the types.")
]
User: TypeAlias = Annotated[str, Parameter(help="The user to act for.")]
Token: TypeAlias = Annotated[
    str, Parameter(help="The token of the user who asks. Without it: the variable HEADWATER_TOKEN.")
]

Bounds: TypeAlias = Annotated[CommandLimits, Parameter(parse=False)]


def get(
    where: Where,
    space: SpaceName,
    place: PlaceName,
    /,
    *,
    at: int | None = None,
    branch: str | None = None,
    app: App = "",
    user: User = "",
    token: Token = "",
    json: Json = False,
) -> int:
    """Print the value of a member, or the value at an address, now or at a seq.

    Of a directory that no process serves, without --app, it is the stored value; otherwise it is brought up to date.

    Example: `headwater get ./data shop ann.total`

    Example: `headwater get ./data shop 'space:cart#/lines/0' --at 120`

    Parameters
    ----------
    at
        The seq to read an address at. Without it: now.
    branch
        The branch to look at. Without it: main.
    """
    asked = CommandQuestion("get", space, place, user=user, at=at, branch=branch)
    found = ask(where, asked, app=app, token=token)
    print_json(found if json else found["value"])
    return OK


def set_value(
    where: Where,
    space: SpaceName,
    place: PlaceName,
    value: str,
    /,
    *,
    app: App = "",
    user: User = "",
    token: Token = "",
    json: Json = False,
) -> int:
    """Set a cell, or a part of one. The types of the application are checked.

    Example: `headwater set ./data shop ann.note '"by four, please"' --app shop.py`

    Example: `headwater set http://127.0.0.1:8900 team 'main.cards#/k1/title' '"Tea"' --user ann`

    Parameters
    ----------
    value
        The value, as JSON. A text has quotes of its own.
    """
    asked = CommandQuestion("set", space, place, value=_parse_json("VALUE", value, "'\"tea\"'"), user=user)
    found = ask(where, asked, app=app, token=token)
    if json:
        print_json(found)
    else:
        print_answer(f"{place} is {format_short(from_json_form(found['value']))}")
    return OK


def send(
    where: Where,
    space: SpaceName,
    place: PlaceName,
    /,
    *arguments: str,
    app: App = "",
    user: User = "",
    token: Token = "",
    json: Json = False,
) -> int:
    """Send an event to a handler, wait until its writes are durable, and print its result.

    A piece that is not there yet is made if its class is named: `Cart:ann.add`. Exits 1 if the handler refuses.

    Example: `headwater send ./data shop ann.add 'line={"sku": "tea", "cents": 450}' --app shop.py`

    Example: `headwater send http://127.0.0.1:8900 team main.move card='"k1"' column='"done"' after=null before=null`

    Parameters
    ----------
    arguments
        NAME=VALUE for each argument of the handler, the value as JSON.
    """
    payload: dict[str, JsonForm] = {}
    for each in arguments:
        name, equals, text = each.partition("=")
        if not equals or not name.isidentifier():
            raise AuthoringError(f"argument {each!r}: write NAME=VALUE, the value as JSON, like qty=2")
        payload[name] = _parse_json(name, text, f"'{name}=\"tea\"'")
    found = ask(where, CommandQuestion("send", space, place, value=payload, user=user), app=app, token=token)
    print_json(found if json else found["result"])
    return OK


def log(
    where: Where,
    space: SpaceName,
    /,
    *,
    since: int | None = None,
    limit: int = 50,
    branch: str | None = None,
    user: User = "",
    token: Token = "",
    json: Json = False,
) -> int:
    """The newest commits of a space, or those after a seq, oldest first.

    Example: `headwater log ./data shop --limit 10`

    Example: `headwater log ./data shop --since 120 --limit 10`

    Parameters
    ----------
    since
        Begin after this seq. Without it: the newest commits.
    limit
        At most this many commits.
    branch
        Only the commits made on this branch. Without it: all.
    """
    asked = CommandQuestion("log", space, since=since, limit=limit, branch=branch, user=user)
    found = ask(where, asked, token=token)
    if json:
        print_json(found)
        return OK
    if since is None and found["earlier"] is not None:
        print_answer(f"earlier commits: --since {found['earlier']}")
    elif since is None and found["kept_from"] > 1:
        print_answer(f"history before seq {found['kept_from']} was compacted away")
    print_table(
        ("seq", "time", "session", "branch", "node", "wrote"),
        [
            (
                str(each["seq"]),
                format_time(each["at_us"]),
                f"{each['session']} {each['local_seq']}",
                each["branch"],
                each["node"],
                _list_writes(each),
            )
            for each in found["commits"]
        ],
    )
    if found["next"] is not None:
        print_answer(f"more: --since {found['next']}")
    return OK


def why(
    where: Where,
    space: SpaceName,
    place: PlaceName,
    /,
    *,
    limit: int = 50,
    app: App = "",
    user: User = "",
    token: Token = "",
    json: Json = False,
) -> int:
    """Print why a member has its value: the commit that wrote it last, the cause of that commit, and so on.

    Of a computed member, also its last run, however long ago that was: the cause of the run, and whether its reads are
    still current.

    Example: `headwater why ./data shop ann.total`

    Parameters
    ----------
    limit
        At most this many steps.
    """
    found = ask(where, CommandQuestion("why", space, place, limit=limit, user=user), app=app, token=token)
    if json:
        print_json(found)
        return OK
    last = found["last_run"]
    for step in found["steps"] if last is None or found["steps"][0]["seq"] is not None else ():
        if step["seq"] is None:
            wrote = step["end"]
        else:
            who = step["node"] or f"session {step['session']}"
            wrote = f"seq {step['seq']}, {format_time(step['at_us'])}, by {who}"
            wrote += f" ({step['end']})" if step["end"] else ""
        print_answer(f"{'  ' * step['level']}{'because of ' if step['level'] else ''}{step['address']}: {wrote}")
    if last is not None:
        print_answer(*_describe_last_run(last))
    return OK


def _describe_last_run(last: Any, limits: CommandLimits = DEFAULT_COMMAND_LIMITS) -> list[str]:
    """Describe the observation of a node's last run."""
    cause = last["cause"]
    if cause is None:
        because = "its first one, or another try"
    elif cause["seq"] is None:
        because = f"because of {cause['address']}"
    else:
        who = cause["node"] or f"session {cause['session']}"
        because = f"because of {cause['address']}, seq {cause['seq']}, {format_time(cause['at_us'])}, by {who}"
    lines = [f"last run: {because}; it took {last['took_us']} us{', and failed' if last['failed'] else ''}"]
    if not last["comparable"]:
        lines.append("  it cannot be compared with a later run: the node runs again at a start")
    elif not last["stale"] and not last["unasked"]:
        also = f", also in {', '.join(last['elsewhere'])}" if last["elsewhere"] else ""
        lines.append(f"  its reads were current at seq {last['verified_at']}, and still are{also}")
    elif not last["stale"]:
        spaces = ", ".join(last["unasked"])
        lines.append(f"  its reads of this space are current; unknown: read {spaces}, which could not be asked")
    for each in last["stale"][: limits.listed_writes]:
        lines.append(f"  {each['address']} was written since, at seq {each['seq']}")
    return lines


def graph(
    where: Where,
    space: SpaceName,
    /,
    *,
    dot: Annotated[bool, Parameter(negative=())] = False,
    app: App = "",
    user: User = "",
    token: Token = "",
    json: Json = False,
) -> int:
    """Print the nodes of a space: the reads of each, and how often it ran. Of a directory that no process serves, its
    pieces.

    Example: `headwater graph http://127.0.0.1:8900 team --dot | dot -Tsvg > graph.svg`

    Parameters
    ----------
    dot
        Print a picture in the language of Graphviz. It needs the application, running or named with --app.
    """
    found = ask(where, CommandQuestion("graph", space, user=user), app=app, token=token)
    if dot:
        if "dot" not in found:
            raise AuthoringError("nothing runs there: name the application with --app, or let it run")
        print_answer(*found["dot"].splitlines())
    elif json:
        print_json(found)
    elif "pieces" in found:
        print_table(
            ("piece", "class", "given"),
            [
                (each["piece"], each["class"], [f"{name} = {to}" for name, to in each["inputs"].items()])
                for each in found["pieces"]
            ],
        )
    elif not found["nodes"]:
        print_answer(f"nothing is computed in {space} now: no effect, page or program looks at a value")
    else:
        print_table(
            ("node", "kind", "status", "demand", "runs", "reads"),
            [
                (
                    each["id"],
                    each["kind"],
                    _describe_status(each),
                    "live" if each["live"] else "",
                    str(each["runs"]),
                    [read["address"] for read in each["reads"]],
                )
                for each in found["nodes"]
            ],
        )
    return OK


def _describe_status(each: Any) -> list[str]:
    """Describe the state of a node, how it was resumed, or why it can never be found clean."""
    came = [f"as of seq {each['as_of']}"] if each["as_of"] and not each["runs"] else []
    return [each["status"], *came, *([f"runs at every start: {each['opaque']}"] if each["opaque"] else [])]


def _parse_json(what: str, text: str, example: str) -> Any:
    import msgspec  # noqa: PLC0415 (needed by commands that write)

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise AuthoringError(
            f"{what} is {text!r}, which is not JSON ({error}). Put a text in quotes: {example}."
        ) from None


def _list_writes(each: Any, limits: CommandLimits = DEFAULT_COMMAND_LIMITS) -> list[str]:
    """List the writes of a commit, a line each, up to a limit."""
    places = [f"{write['kind']} {write['address']}" for write in each["writes"]]
    if not places:
        sent = len(each["events"]) + len(each["records"])
        return [f"nothing, sent {sent}" if sent else "nothing"]
    more = len(places) - limits.listed_writes
    return [*places[: limits.listed_writes], *([f"and {more} more"] if more > 0 else [])]


def intents(
    where: Where,
    space: Annotated[str, Parameter(help="The name of the space. Without it: all of them.")] = "",
    /,
    *,
    follow: Annotated[bool, Parameter(negative=())] = False,
    user: User = "",
    token: Token = "",
    json: Json = False,
    limits: Bounds = DEFAULT_COMMAND_LIMITS,
) -> int:
    """Print every event on its way: its wait, its conflict, and the outcomes of the last ones.

    Example: `headwater intents ./data shop`

    Example: `headwater intents http://127.0.0.1:8900 --follow`

    Parameters
    ----------
    follow
        Go on until interrupted, and print changes.
    """
    if "://" not in where and not Path(where).is_dir():
        raise AbsentError(f"{where} is not a directory. Name the data directory that your program opened.")
    asked = CommandQuestion("intents", space, user=user)
    rows = ask(where, asked, token=token)
    if not follow:
        if json:
            print_json(rows)
        else:
            _print(rows)
        return OK
    with _interrupts() as interrupted:
        _follow(where, asked, token, rows, interrupted, json=json, limits=limits)
    return INTERRUPTED


@contextmanager
def _interrupts() -> Iterator[Event]:
    """Set an event when the command is interrupted, besides raising `KeyboardInterrupt`.

    An exception that is raised while a finalizer or a callback of SQLite runs is lost.
    """
    interrupted = Event()

    def interrupt(_number: int, _frame: object) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    if current_thread() is not main_thread():
        yield interrupted  # Signals arrive on the main thread only.
        return
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _follow(
    where: str,
    asked: CommandQuestion,
    token: str,
    rows: list[Any],
    interrupted: Event,
    *,
    json: bool,
    limits: CommandLimits,
) -> None:
    """Print the changes of intents until the command is interrupted."""
    seen: dict[str, Any] = {}
    said = ""
    # fault cli.lost_interrupts_ignored: while True:
    while not interrupted.is_set():
        for row in rows:
            state = {name: row.get(name) for name in ("state", "attempts", "conflict", "winner", "error")}
            if seen.get(row["id"]) != state:
                if json:
                    print_json(row)
                else:
                    print_answer(_line(row))
        seen = {
            row["id"]: {name: row.get(name) for name in ("state", "attempts", "conflict", "winner", "error")}
            for row in rows
        }
        # fault cli.lost_interrupts_ignored: Event().wait(limits.follow_s)
        interrupted.wait(limits.follow_s)
        try:
            rows = ask(where, asked, token=token)
        except DirectoryInUseError as error:
            # A program has the directory open and does not serve it. This goes on when the program ends.
            if str(error) != said:
                said = str(error)
                print_answer(said)


def _print(rows: list[Any]) -> None:
    if not rows:
        print_answer("nothing is on its way")
        return
    print_table(
        ("sent", "handler", "state", "attempts", "why"),
        [
            (format_time(row["sent_us"]), row["stream"], _state(row), str(row["attempts"]), _describe_wait(row))
            for row in rows
        ],
    )


def _line(row: Any) -> str:
    why = "; ".join(_describe_wait(row))
    attempts = f", {row['attempts']} attempts" if row["attempts"] > 1 else ""
    return f"{format_time(row['sent_us'])} {row['stream']}: {_state(row)}{attempts}{f' ({why})' if why else ''}"


def _state(row: Any) -> str:
    if row.get("due_us") and row["ended_us"] is None:
        return f"{row['state']}, due {format_time(row['due_us'])}"
    if row.get("next_try_us"):
        return f"{row['state']}, next try {format_time(row['next_try_us'])}"
    return str(row["state"])


def _describe_wait(row: Any) -> list[str]:
    """Describe the conflict, the wait and the error of an event."""
    lost = [f"lost {row['conflict']} to {row['winner']}"] if row["conflict"] else []
    waits = [f"waits for {row['waits']}"] if row.get("waits") else []
    return [*lost, *waits, *(row[name] for name in ("advice", "error") if row[name])]
