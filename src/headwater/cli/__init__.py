"""The command line: `headwater`, or `python -m headwater.cli`.

Start with `app.py` (the tree of commands and their exit codes). `data` has the commands about stored data, `process`
those that run code of an application; `output.py` prints, `limits.py` has the bounds of the commands, `directory.py`
opens data directories, `loading.py` imports applications, `keys.py` has the commands about keys. Commands ask an
engine, a runtime or a server, and decide nothing.

`main` checks for the extra `cli` before anything else is imported. Imported by `__main__`.
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
            "Install it with the other packages of this part:  pip install 'headwater[cli]'",
            file=sys.stderr,
        )
        sys.exit(1)
    sys.exit(run(sys.argv[1:]))
