"""What a command prints: text for people, or one JSON document for programs.

Owns both forms. An answer goes to standard output, everything else to standard error, so that `--json` can be
piped whatever happens. Names and values are other people's text: every line is shown, never obeyed. Never asks
the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING, Final, cast

from rich.console import Console

from headwater.cli.streams import OutputFailed, Stream, shown, shown_json

if TYPE_CHECKING:
    from headwater.data.json_form import JsonForm
    from headwater.data.value import Value

OK: Final = 0
FAILED: Final = 1
BAD_USAGE: Final = 2
UNWRITTEN: Final = 3

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PIPED_WIDTH: Final = 200  # nobody's window: lines must not break where a program reads them


def console(*, stderr: bool = False) -> Console:
    stream = Stream("error" if stderr else "output")
    width = None if stream.isatty() else _PIPED_WIDTH
    # Of a file, rich uses what a Stream has: write, flush, isatty, fileno and encoding.
    file = cast("IO[str]", stream)
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)


def say(*lines: str) -> None:
    """Part of the answer, line by line."""
    out = console()
    for line in lines:
        out.print(shown(line))


def remark(*lines: str) -> None:
    """What belongs beside an answer. Where nobody can be told, the answer still counts."""
    try:
        out = console(stderr=True)
        for line in lines:
            out.print(shown(line))
    except OutputFailed as failed:
        if failed.stream != "error":
            raise


def complain(first: str, *more: str) -> None:
    """Why there is no answer. The exit code says so too, to those who closed standard error."""
    remark(f"headwater: {first}", *more)


def print_json(document: JsonForm) -> None:
    """One JSON document, indented; `headwater.data.codec.from_json` reads back what `json_form` made."""
    import msgspec  # noqa: PLC0415 (help need not wait for it)

    out = Stream("output")
    out.write(shown_json(msgspec.json.format(msgspec.json.encode(document), indent=2).decode()) + "\n")
    out.flush()


def short(value: Value, length: int = 60) -> str:
    """A value on one line, cut off where it gets long."""
    from headwater.data.codec import to_json  # noqa: PLC0415 (help need not wait for it)

    text = to_json(value).decode()
    return text if len(text) <= length else text[: length - 1] + "…"


def table(headings: Sequence[str], rows: Iterable[Sequence[str | Sequence[str]]]) -> None:
    """Rows under headings. A cell is a line, or several."""
    from rich.table import Table  # noqa: PLC0415 (help need not wait for it)

    grid = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        grid.add_column(heading, overflow="fold")
    for row in rows:
        grid.add_row(*(shown(cell) if isinstance(cell, str) else "\n".join(map(shown, cell)) for cell in row))
    console().print(grid, soft_wrap=False)


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith('ch') else 's'}"


def when(us: int) -> str:
    """Microseconds since 1970 as a date and time that sorts."""
    return (_EPOCH + timedelta(microseconds=us)).isoformat(sep=" ", timespec="milliseconds")
