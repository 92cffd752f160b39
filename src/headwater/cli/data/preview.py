"""`headwater preview APP.py`: before a deploy, the nodes that would run again with this code, and why.

The data is read where it is, also through a process that serves it. The application is imported here and not started.
Nothing is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from headwater.cli.data.commands import Token, User
from headwater.cli.data.nodes import format_duration
from headwater.cli.limits import DEFAULT_COMMAND_LIMITS, CommandLimits
from headwater.cli.output import (
    BAD_USAGE,
    FAILED,
    OK,
    Json,
    count_noun,
    print_answer,
    print_error,
    print_json,
    print_table,
)
from headwater.errors import AbsentError


def preview(
    app: str,
    /,
    *,
    data: Path = Path("./data"),
    url: str = "",
    space: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    branch: str | None = None,
    everything: Annotated[bool, Parameter(name="--all", negative=())] = False,
    check: Annotated[bool, Parameter(negative=())] = False,
    user: User = "",
    token: Token = "",
    json: Json = False,
) -> int:
    """Before a deploy: which nodes of which pieces would run again with this code, and why.

    Nothing runs and nothing is written. A directory that a process serves is asked through that process, so that the
    old version may go on meanwhile. The estimated time is the time of the nodes' last runs. Nodes that read
    results of these run only if a result changes; they are counted apart. Nodes without stored observations,
    such as effects of a program that shares its data with others, run at every start and are not counted.

    Exits 0; with --check 1 if anything would run again, and 2 if the application or the data cannot be read.

    Example: `headwater preview shop.py --data ./data`

    Example: `headwater preview shop.py --url https://shop.example.org --space shop --check`

    Parameters
    ----------
    app
        The file of the application, as it is to be deployed.
    data
        The directory of the data.
    url
        The address of a server, instead of a directory.
    space
        Only this space. May be said several times. Without it: all.
    branch
        The branch to look at. Without it: main.
    everything
        List clean nodes, too.
    check
        Exit 1 if anything would run again.
    """
    # Help is quick: these are loaded when the command runs.
    from headwater.cli.data.stored_nodes import choose_spaces, load_stored_nodes, make_asker  # noqa: PLC0415
    from headwater.cli.loading import load_application  # noqa: PLC0415
    from headwater.runtime.api.entry_points import open_dry  # noqa: PLC0415
    from headwater.runtime.resume.preview import preview as previewed  # noqa: PLC0415

    if not url and not data.is_dir():
        print_error(f"{data} is not a directory. Name the data directory with --data, or its server with --url.")
        return BAD_USAGE
    try:
        with contextlib.redirect_stdout(sys.stderr):  # Output of the application is no part of the answer.
            load_application(app)
    except AbsentError as error:
        print_error(str(error))
        return BAD_USAGE
    asked = make_asker(url or str(data), user, token)
    shown = choose_spaces(asked, space)
    known = load_stored_nodes(asked, shown, branch, with_read=True)  # Nodes of other spaces decide about their readers.
    with contextlib.redirect_stdout(sys.stderr):
        found = asyncio.run(previewed(known, shown, open_dry=open_dry))
    totals = found.totals()
    if json:
        listed: list[Any] = [each.as_json() for each in found.nodes if everything or each.fate != "clean"]
        fresh: list[Any] = [{"space": at, "piece": piece, "member": member} for at, piece, member in found.fresh]
        print_json({"nodes": listed, "new": fresh, "totals": totals})
    else:
        _print([each for each in found.nodes if everything or each.fate != "clean"], found.fresh, totals)
    return FAILED if check and totals["rerun"] else OK


FATES: Final = {"rerun": "runs again", "may": "may follow", "gone": "is gone", "clean": "clean"}


def _print(
    nodes: list[Any],
    fresh: list[tuple[str, str, str]],
    totals: dict[str, Any],
    limits: CommandLimits = DEFAULT_COMMAND_LIMITS,
) -> None:
    most = limits.listed_nodes
    order = list(FATES)
    nodes.sort(key=lambda each: (order.index(each.fate), each.space, each.piece))
    if nodes:
        print_table(
            ("node", "kind", "", "because", "took"),
            [
                (
                    f"{each.space}/{each.node}",
                    each.kind,
                    FATES[each.fate],
                    [line for line in (each.reason, *(f"  {detail}" for detail in each.details)) if line],
                    format_duration(each.took_us),
                )
                for each in nodes[:most]
            ],
        )
        if len(nodes) > most:
            print_answer(f"and {count_noun(len(nodes) - most, 'node')} more: --json lists all")
    for space, piece, member in fresh[:most]:
        print_answer(f"{space}/{piece}:{member} is new: it runs when its value is first demanded")
    if not totals["nodes"]:
        print_answer("no run of a node is stored there: every node that is demanded will run")
        return
    again, spent = count_noun(totals["rerun"], "node"), format_duration(totals["rerun_us"])
    print_answer(f"of {count_noun(totals['nodes'], 'node')}, {again} would run again: {spent} by their last runs")
    for reason, count in totals["reasons"].items():
        print_answer(f"  {count}: {reason}")
    if totals["may"]:
        may_take = format_duration(totals["may_us"])
        print_answer(f"  {totals['may']} more run if the values that they read change: {may_take}")
    if totals["gone"]:
        print_answer(f"  {totals['gone']} are not in this program any more")
