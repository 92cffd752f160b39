"""The tree of commands, and what becomes of their errors.

Owns exit codes: 0 for success, 1 for what the engine refused or found, 2 for a command written wrong, 3 for an
answer that standard output did not take (1 would say that `verify` found something), and what a shell shows for
SIGINT and SIGPIPE. An error of Headwater is its message on standard error, never a traceback; any other exception
is a bug and is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cyclopts import App, CycloptsError

import headwater
from headwater.cli import history
from headwater.cli.branch import branch
from headwater.cli.keys import keys, make_token
from headwater.cli.output import BAD_USAGE, FAILED, UNWRITTEN, complain, console
from headwater.cli.serve import serve
from headwater.cli.streams import OutputFailed
from headwater.cli.verify import verify
from headwater.errors import HeadwaterError

INTERRUPTED: Final = 128 + 2  # SIGINT
NOBODY_READS: Final = 128 + 13  # SIGPIPE: `headwater log ... | head` is no failure to talk about

app = App(
    name="headwater",
    help="Look at, check and tend the spaces of a data directory.",
    version=headwater.__version__,
    help_format="markdown",
)
app.command(verify)
app.command(history.spaces)
app.command(history.log)
app.command(history.get)
app.command(history.compact)
app.command(branch)
app.command(serve)
app.command(keys)
app.command(make_token, name="token")


def run(tokens: Sequence[str]) -> int:
    """Run one command line and answer its exit code."""
    try:
        return _answered(tokens)
    except HeadwaterError as error:
        complain(str(error))
        return FAILED
    except OutputFailed as failed:
        if failed.is_closed_pipe:
            return NOBODY_READS
        complain(f"{failed}. The answer is lost; what the command changed, if anything, stays changed.")
        return UNWRITTEN
    except KeyboardInterrupt:
        return INTERRUPTED


def _answered(tokens: Sequence[str]) -> int:
    app.console = console()
    try:
        command, bound, _ = app.parse_args(
            list(tokens), exit_on_error=False, print_error=False, error_console=console(stderr=True)
        )
    except CycloptsError as error:
        complain(*str(error).split("\n"), f"Try: headwater {' '.join(_commands_in(tokens))}--help")
        return BAD_USAGE
    code = command(*bound.args, **bound.kwargs)
    return code if isinstance(code, int) else 0


def _commands_in(tokens: Sequence[str]) -> list[str]:
    """The command that was meant, as far as it exists, with a space after each word."""
    found: list[str] = []
    at = app
    for token in tokens:
        if token.startswith("-") or token not in at:
            break
        at = at[token]
        found.append(token)
    return [" ".join(found) + " "] if found else []
