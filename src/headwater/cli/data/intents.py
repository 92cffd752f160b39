"""`headwater intents`: every event that is on its way, from its sending to its end.

Owns what is printed of them. Of a directory that nobody serves it is what is stored and waits for somebody; of one that
runs, also what it has in hand, what that waits for, to whom it lost, and how the last ones ended.
"""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Annotated, Any, Final

from cyclopts import Parameter

from headwater.cli.data.commands import Token, User, Where
from headwater.cli.data.target import ask
from headwater.cli.output import OK, print_json, say, table, when
from headwater.cli.parameters import Json
from headwater.errors import AbsentError, DirectoryInUseError
from headwater.protocol.desk import Question

EVERY_S: Final = 0.5


def intents(
    where: Where,
    space: Annotated[str, Parameter(help="The name of the space. Without it: all of them.")] = "",
    /,
    *,
    follow: Annotated[bool, Parameter(negative=())] = False,
    user: User = "",
    token: Token = "",
    json: Json = False,
) -> int:
    """Every event that is on its way: what it waits for, to whom it lost, and how the last ones ended.

    Example: `headwater intents ./data shop`

    Example: `headwater intents http://127.0.0.1:8900 --follow`

    Parameters
    ----------
    follow
        Go on until interrupted, and tell what changes.
    """
    if "://" not in where and not Path(where).is_dir():
        raise AbsentError(f"{where} is no directory. Name the data directory that a program of yours opened.")
    asked = Question("intents", space, user=user)
    rows = ask(where, asked, token=token)
    if not follow:
        if json:
            print_json(rows)
        else:
            _print(rows)
        return OK
    waiting, seen, said = Event(), dict[str, Any](), ""
    while True:  # Until whoever asked interrupts it.
        for row in rows:
            state = {name: row.get(name) for name in ("state", "attempts", "conflict", "winner", "error")}
            if seen.get(row["id"]) != state:
                if json:
                    print_json(row)
                else:
                    say(_line(row))
        seen = {
            row["id"]: {name: row.get(name) for name in ("state", "attempts", "conflict", "winner", "error")}
            for row in rows
        }
        waiting.wait(EVERY_S)
        try:
            rows = ask(where, asked, token=token)
        except DirectoryInUseError as error:
            # A program has opened it, and does not serve it: when it is over, this goes on.
            if str(error) != said:
                said = str(error)
                say(said)


def _print(rows: list[Any]) -> None:
    if not rows:
        say("nothing is on its way")
        return
    table(
        ("sent", "handler", "state", "attempts", "why"),
        [(when(row["sent_us"]), row["stream"], _state(row), str(row["attempts"]), _why(row)) for row in rows],
    )


def _line(row: Any) -> str:
    why = "; ".join(_why(row))
    attempts = f", {row['attempts']} attempts" if row["attempts"] > 1 else ""
    return f"{when(row['sent_us'])} {row['stream']}: {_state(row)}{attempts}{f' ({why})' if why else ''}"


def _state(row: Any) -> str:
    if row.get("due_us") and row["ended_us"] is None:
        return f"{row['state']}, due {when(row['due_us'])}"
    if row.get("next_try_us"):
        return f"{row['state']}, next try {when(row['next_try_us'])}"
    return str(row["state"])


def _why(row: Any) -> list[str]:
    """To whom it lost, what it waits for, and what went wrong."""
    lost = [f"lost {row['conflict']} to {row['winner']}"] if row["conflict"] else []
    waits = [f"waits for {row['waits']}"] if row.get("waits") else []
    return [*lost, *waits, *(row[name] for name in ("advice", "error") if row[name])]
