"""`headwater reactions`: the state of reactions, their failures, and operators' actions.

Works on a directory, on one that a process serves, and on the address of a server.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from cyclopts import Parameter

from headwater.cli.data.commands import Token, User, Where
from headwater.cli.data.target import ask
from headwater.cli.output import OK, Json, print_answer, print_json, print_table
from headwater.errors import AuthoringError
from headwater.protocol.command_messages import CommandQuestion

Action = Literal[
    "list",
    "targets",
    "failures",
    "groups",
    "pause",
    "resume",
    "retire",
    "unblock",
    "skip",
    "replay",
    "reset",
]


def reactions(
    where: Where,
    space: Annotated[str, Parameter(help="The name of the space.")],
    action: Annotated[Action, Parameter(help="What to ask, or to do.")] = "list",
    reaction: Annotated[str, Parameter(help="Its name, or the end of it: charge.")] = "",
    /,
    *,
    key: str | None = None,
    record: str | None = None,
    fingerprint: str | None = None,
    state: Literal["idle", "due", "leased", "blocked"] | None = None,
    after: str | None = None,
    limit: int | None = None,
    user: User = "",
    token: Token = "",
    json: Json = False,
) -> int:
    """Print the state and failures of reactions, or act on them.

    `list` shows all of a space, `targets` one per key, `failures` the attempts that are kept and the records that were
    passed over, `groups` equal failures. `unblock` goes on at the record that blocked a target, `skip` without it;
    `replay` tries records again that were parked or skipped; `reset` delivers everything again; `pause`, `resume` and
    `retire` are about the whole reaction.

    An option that an action does not take is an error, and so is a key, record or fingerprint that matches nothing.

    Example: `headwater reactions ./data shop`

    Example: `headwater reactions ./data shop failures charge --key ann`

    Example: `headwater reactions http://127.0.0.1:8900 shop unblock charge --fingerprint 9f3c01d2a4b6`

    Parameters
    ----------
    key
        With `failures`, `unblock`, `skip`, `replay` and `reset`: one target, by its key.
    record
        With `replay`: one record, as `failures` names it: 17.0. With `skip`: only if the target is at this one. With
        `failures`: go on after this one.
    fingerprint
        With `unblock`, `skip`, `replay` and `reset`: only equal failures.
    state
        With `targets`: only those in this state.
    after
        With `targets` and `failures`: go on after this key.
    limit
        With `targets` and `failures`: at most this many rows; 100 unless told.
    """
    if limit is not None and action not in ("targets", "failures"):
        raise AuthoringError(f"{action} does not take --limit: leave it out")
    said: dict[str, Any] = {
        "does": action,
        "reaction": reaction,
        "key": key,
        "record": _record(record),
        "fingerprint": fingerprint,
        "state": state,
        "after": after,
    }
    told = ask(
        where,
        CommandQuestion("reactions", space, value=said, user=user, limit=100 if limit is None else limit),
        token=token,
    )
    if json:
        print_json(told)
    else:
        _print(action, told)
    return OK


def _record(said: str | None) -> list[int] | None:
    if said is None:
        return None
    seq, dot, ordinal = said.partition(".")
    if not seq.isdecimal() or (dot and not ordinal.isdecimal()):
        raise AuthoringError(f"--record {said} is not a record: write its number as `failures` shows it, like 17.0")
    return [int(seq), int(ordinal or 0)]


def _print(action: str, told: Any) -> None:
    match action:
        case "list":
            _print_list(told)
        case "targets":
            _print_targets(told)
        case "failures":
            _print_failures(told)
        case "groups":
            groups = [
                (
                    each["fingerprint"],
                    str(len(each["keys"])),
                    str(each["attempts"]),
                    f"{each['error']}: {each['message']}",
                )
                for each in told["groups"]
            ]
            print_table(("fingerprint", "targets", "attempts", "error"), groups)
        case _:
            print_answer(f"{told['does']} {told['reaction']}: {told['count']}")
    if action in ("targets", "failures") and told["next"] is not None:
        record = told.get("record")
        print_answer(f"more: --after {told['next']!r}{f' --record {record[0]}.{record[1]}' if record else ''}")


def _print_targets(told: Any) -> None:
    rows = [
        (each["key"], each["state"], str(each["attempt"]), _ago(each["age_us"]), _wait(each), each["holder"])
        for each in told["targets"]
    ]
    print_table(("key", "state", "attempt", "waiting", "next", "worker"), rows)


def _print_list(told: list[Any]) -> None:
    if not told:
        print_answer("no reaction was declared here")
        return
    rows = []
    for each in told:
        notes = [each["state"]] if each["state"] != "live" else []
        notes += ["filling"] if each["is_filling"] else []
        if each["unserved_us"] is not None and each["unserved_us"] > 1_000_000:
            notes.append(f"no worker has served lane {each['lane']!r} for {_ago(each['unserved_us'])}")
        oldest = _ago(each["oldest_us"]) if each["oldest_us"] is not None else "-"
        counts = [str(each[name]) for name in ("due", "blocked", "parked")]
        rows.append((each["name"], *counts, oldest, ", ".join(notes)))
    print_table(("reaction", "due", "blocked", "parked", "oldest", "notes"), rows)


def _print_failures(told: Any) -> None:
    tried = [
        (
            each["key"],
            f"{each['seq']}.{each['ordinal']}",
            str(each["attempt"]),
            f"{_ago(each['ago_us'])} ago",
            each["fingerprint"],
            f"{each['error']}: {each['message']}".removeprefix(": "),
        )
        for each in told["attempts"]
    ]
    passed = [
        (each["key"], f"{each['seq']}.{each['ordinal']}", "-", f"{_ago(each['ago_us'])} ago", each["fingerprint"], how)
        for each in told["parked"]
        for how in (each["how"],)
    ]
    if not tried and not passed:
        print_answer("nothing failed")
        return
    print_table(("key", "record", "attempt", "when", "fingerprint", "what"), [*tried, *passed])


def _wait(each: Any) -> str:
    return _ago(each["wait_us"]) if each["state"] in ("due", "leased") else "-"


def _ago(us: int) -> str:
    seconds = us / 1e6
    if seconds < 1:
        return f"{us // 1_000} ms"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.0f} h"
