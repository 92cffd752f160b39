"""What a command prints: text for people, or one JSON document for programs.

Owns both forms. An answer goes to standard output, everything else to standard error, so that `--json` can be
piped whatever happens. Names and values are other people's text: every line is shown, never obeyed. Never asks
the engine.

The parameters that several commands share, with their help.

The two streams a command writes to, whatever the terminal, the pipe or the disk behind them can take.

Owns what is done to text on its way out (characters that a terminal would obey, or that the stream cannot
encode, become the escapes that JSON has for them) and the one error for a stream that takes nothing. Never
decides what is said.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING, Annotated, Final, Literal, TextIO, TypeAlias, cast

from cyclopts import Parameter
from rich.console import Console

if TYPE_CHECKING:
    from headwater.data.json_form import JsonForm
    from headwater.data.value import Value


Name = Literal["output", "error"]

_ESCAPES: Final = "headwater.escapes"
_PAIRS_FROM: Final = 0x10000  # from here on JSON writes a character as two surrogates

# What a terminal obeys instead of showing it: controls, line breaks, and marks that turn the direction of text.
# A lone surrogate, which a file name that is no UTF-8 brings along, cannot be written at all.
_OBEYED: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class OutputFailed(Exception):
    """Standard output or standard error did not take what was written. Not an error of Headwater's."""

    def __init__(self, stream: Name, error: OSError) -> None:
        super().__init__(f"standard {stream} cannot be written: {error.strerror or error}")
        self.stream = stream
        self.is_closed_pipe = isinstance(error, BrokenPipeError)


class Stream(io.TextIOBase):
    """Standard output or standard error. Its failures can be told from those of any other file."""

    encoding: str = "utf-8"

    def __init__(self, name: Name) -> None:
        self._name: Name = name
        self._inner: TextIO | None = sys.stdout if name == "output" else sys.stderr
        if isinstance(self._inner, io.TextIOWrapper) and self._inner.errors != _ESCAPES:
            self._inner.reconfigure(errors=_ESCAPES)
        self.encoding = getattr(self._inner, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        return self._inner is not None and self._inner.isatty()

    def fileno(self) -> int:
        if self._inner is None:
            raise io.UnsupportedOperation("a closed stream has no descriptor")
        return self._inner.fileno()

    def write(self, text: str, /) -> int:
        try:
            return self._open().write(text)
        except OSError as error:
            raise self._failed(error) from error

    def flush(self) -> None:
        if self._inner is None:
            return
        try:
            self._inner.flush()
        except OSError as error:
            raise self._failed(error) from error

    def _open(self) -> TextIO:
        if self._inner is None:  # the process was started with this stream closed
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._inner

    def _failed(self, error: OSError) -> OutputFailed:
        """What is left in the buffer goes nowhere, so that the interpreter does not fail on it once more at exit."""
        if isinstance(self._inner, io.TextIOWrapper):
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nowhere, self._inner.fileno())
            os.close(nowhere)
        return OutputFailed(self._name, error)


def shown(text: str) -> str:
    """Text of somebody else on one line: nothing in it moves the cursor, sets a colour or begins a new line."""
    return _OBEYED.sub(lambda found: _SHORT.get(found[0]) or _escaped(found[0]), text)


def shown_json(text: str) -> str:
    """JSON that a terminal can show. What is escaped can only be inside a string, so the document is the same."""
    return _OBEYED.sub(lambda found: "\n" if found[0] == "\n" else _escaped(found[0]), text)


def _escaped(character: str) -> str:
    code = ord(character)
    if code < _PAIRS_FROM:
        return f"\\u{code:04x}"
    high, low = divmod(code - _PAIRS_FROM, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    """An error handler like `backslashreplace`, whose escapes are those of JSON: encoded JSON stays JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_escaped(character) for character in error.object[error.start : error.end]), error.end


codecs.register_error(_ESCAPES, _escape_unencodable)


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


DirectoryPath: TypeAlias = Annotated[str, Parameter(help="The data directory that holds the spaces.")]
SpaceName: TypeAlias = Annotated[str, Parameter(help="The name of the space, as `headwater spaces` lists it.")]
Json: TypeAlias = Annotated[bool, Parameter(help="Print one JSON document instead of text.", negative=())]
BranchName: TypeAlias = Annotated[str, Parameter(help="The branch to look at.")]
