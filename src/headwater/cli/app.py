"""The tree of commands, their exit codes, and the output of errors.

Exit codes: 0 for success, 1 if the engine refused or found something, 2 for a wrong command line, 3 if standard output
did not take the answer (1 would mean that `verify` found something), and those of a shell for SIGINT and SIGPIPE. An
error of Headwater is printed as its message on standard error, without a traceback; any other exception is a defect and
is not caught. The module of a command is loaded when the command is used, so that help is quick.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cyclopts import App, CycloptsError

import headwater
from headwater.cli.output import BAD_USAGE, FAILED, INTERRUPTED, UNWRITTEN, OutputFailed, console, print_error
from headwater.errors import HeadwaterError

BROKEN_PIPE: Final = 128 + 13  # SIGPIPE: `headwater log ... | head` is not an error

COMMANDS: Final = {
    "new": (
        "process.project:new",
        "Make a project: a shared list with a page and tests, to start from.",
    ),
    "run": ("process.run:run", "Run an application: its pieces, its data and its page."),
    "test": ("process.project:run_tests", "Run tests, with every seed of those that are simulated."),
    "get": ("data.commands:get", "Print the value of a member, or the value at an address, now or at a seq."),
    "set": ("data.commands:set_value", "Set a cell, or a part of one. The types of the application are checked."),
    "send": (
        "data.commands:send",
        "Send an event to a handler, wait until its writes are durable, and print its result.",
    ),
    "log": ("data.commands:log", "The newest commits of a space, or those after a seq, oldest first."),
    "why": (
        "data.commands:why",
        "Print why a member has its value: the commit that wrote it last, the cause of that commit, and so on.",
    ),
    "graph": ("data.commands:graph", "Print the nodes of a space: the reads of each, and how often it ran."),
    "intents": (
        "data.commands:intents",
        "Print every event on its way: its wait, its conflict, and the outcomes of the last ones.",
    ),
    "reactions": (
        "data.reactions:reactions",
        "Print the state and failures of reactions, or act on them.",
    ),
    "worker": (
        "process.worker:worker",
        "Deliver records to the reactions of an application, through a server, until interrupted.",
    ),
    "preview": (
        "data.preview:preview",
        "Before a deploy: which nodes of which pieces would run again with this code, and why.",
    ),
    "nodes": ("data.nodes:nodes", "Print the last runs of nodes, and whether their reads are still current."),
    "backlog": (
        "data.nodes:backlog",
        "Print the pieces whose nodes are not clean: how many, the time of their last runs, and the cause.",
    ),
    "spaces": ("data.history:spaces", "The spaces of a data directory."),
    "branch": ("data.history:branch", "List, make, compare, merge and delete branches of a space."),
    "compact": (
        "data.history:compact",
        "Give up history before a seq, as far as no branch and no open session needs it.",
    ),
    "verify": ("data.verify:verify", "Replay the history of a space and check it against the rules of admission."),
    "backup": (
        "data.backup:backup",
        "Copy the spaces of a directory into a new folder, while a server may be using them.",
    ),
    "restore": ("data.backup:restore", "Put the spaces of a backup into a directory that no process uses."),
    "serve": ("process.run:serve", "Serve the spaces of a directory over WebSocket until interrupted."),
    "keys": ("keys:keys", "Make and list the keys that tokens are signed with."),
    "token": ("keys:make_token", "A token that proves to a server of this directory that its bearer is USER."),
}
"""The function of each command, and its line in the list of commands, which is the beginning of its own help."""
GROUPS: Final = {"branch", "keys"}

app = App(
    name="headwater",
    help="Run applications, and look at, check and tend the spaces of a data directory.",
    version=headwater.__version__,
    help_format="plaintext",
    sort_key=None,
)
for _number, (_name, (_place, _help)) in enumerate(COMMANDS.items()):
    _options = {} if _name in GROUPS else {"help_format": "markdown"}
    app.command(f"headwater.cli.{_place}", name=_name, help=_help, sort_key=_number, **_options)


def run(tokens: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        return _run_command(tokens)
    except HeadwaterError as error:
        print_error(*str(error).split("\n"))
        return FAILED
    except OutputFailed as failed:
        if failed.is_closed_pipe:
            return BROKEN_PIPE
        print_error(f"{failed}. The answer is lost; changes that the command made stay.")
        return UNWRITTEN
    except KeyboardInterrupt:
        return INTERRUPTED


def _run_command(tokens: Sequence[str]) -> int:
    app.console = console()
    if tokens and tokens[0] in COMMANDS.keys() - GROUPS:
        app[tokens[0]].help = None  # Its help is then the command's docstring, not its line in the list.
    try:
        command, bound, _ = app.parse_args(
            list(tokens), exit_on_error=False, print_error=False, error_console=console(stderr=True)
        )
    except CycloptsError as error:
        print_error(*str(error).split("\n"), f"Try: headwater {' '.join(_known_commands(tokens))}--help")
        return BAD_USAGE
    code = command(*bound.args, **bound.kwargs)
    return code if isinstance(code, int) else 0


def _known_commands(tokens: Sequence[str]) -> list[str]:
    """Return the part of a command line that names existing commands, with a space after each word."""
    found: list[str] = []
    at = app
    for token in tokens:
        if token.startswith("-") or token not in at:
            break
        at = at[token]
        found.append(token)
    return [" ".join(found) + " "] if found else []
