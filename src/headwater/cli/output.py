"""What a command prints: text for people, or one JSON document for programs.

Owns both forms. An answer goes to standard output, everything else to standard error, so that `--json` can be
piped whatever happens. Never asks the engine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from headwater.data.codec import json_form
from headwater.data.json_form import JsonForm
from headwater.data.value import Value

OK: Final = 0
FAILED: Final = 1
BAD_USAGE: Final = 2

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PIPED_WIDTH: Final = 200  # nobody's window: lines must not break where a program reads them


def console(*, stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPED_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, soft_wrap=True)


def say(*lines: str) -> None:
    out = console()
    for line in lines:
        out.print(line)


def complain(message: str) -> None:
    console(stderr=True).print(f"headwater: {message}")


def print_json(document: JsonForm) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")


def value_text(value: Value) -> str:
    """A value as indented JSON, in the form that `headwater.data.codec.from_json` reads back."""
    return msgspec.json.format(msgspec.json.encode(json_form(value)), indent=2).decode()


def short(value: Value, length: int = 60) -> str:
    """A value on one line, cut off where it gets long."""
    text = msgspec.json.encode(json_form(value)).decode()
    return text if len(text) <= length else text[: length - 1] + "…"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        grid.add_column(heading, overflow="fold")
    for row in rows:
        grid.add_row(*row)
    console().print(grid, soft_wrap=False)


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith('ch') else 's'}"


def when(us: int) -> str:
    """Microseconds since 1970 as a date and time that sorts."""
    return (_EPOCH + timedelta(microseconds=us)).isoformat(sep=" ", timespec="milliseconds")
