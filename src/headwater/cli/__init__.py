"""The command line: `headwater`, or `python -m headwater.cli`.

Owns the way in, and what is said where the extra `cli` is not installed. Everything else of the command line
is loaded after that check. Never decides anything: commands ask the engine and print what it answers.
"""

from __future__ import annotations

import sys

__all__ = ["main"]

_EXTRA = ("cyclopts", "rich")


def main() -> None:
    """Run the command in `sys.argv` and exit with its code."""
    try:
        from headwater.cli.app import run  # noqa: PLC0415 (only after the check can it be imported)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        print(
            f"headwater: the command line needs the package {error.name!r}, which is not installed.\n"
            "Install it together with what else belongs to it:  pip install 'headwater[cli]'",
            file=sys.stderr,
        )
        sys.exit(1)
    sys.exit(run(sys.argv[1:]))
