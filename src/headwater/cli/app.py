"""The tree of commands, and what becomes of their errors.

Owns exit codes: 0 for success, 1 for what the engine refused or found, 2 for a command written wrong. An
error of Headwater is its message on standard error, never a traceback; any other exception is a bug and is
left alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from cyclopts import App, CycloptsError

import headwater
from headwater.cli import history
from headwater.cli.branch import branch
from headwater.cli.keys import keys, make_token
from headwater.cli.output import BAD_USAGE, FAILED, complain, console
from headwater.cli.serve import serve
from headwater.cli.verify import verify
from headwater.errors import HeadwaterError

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
    app.console = console()
    try:
        command, bound, _ = app.parse_args(
            list(tokens), exit_on_error=False, print_error=False, error_console=console(stderr=True)
        )
    except CycloptsError as error:
        complain(f"{error}\nTry: headwater {' '.join(_commands_in(tokens))}--help")
        return BAD_USAGE
    try:
        code = command(*bound.args, **bound.kwargs)
    except HeadwaterError as error:
        complain(str(error))
        return FAILED
    except KeyboardInterrupt:
        return 130
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
