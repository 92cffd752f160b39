"""Output of commands: text for people or one JSON document for programs, and the parameters that commands share.

Answers go to standard output, everything else to standard error, so that `--json` can be piped. Names and values come
from users: characters that a terminal would act on, or that the stream cannot encode, are printed as JSON escapes. A
stream that cannot be written raises `OutputFailed`.
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

from headwater.cli.limits import DEFAULT_COMMAND_LIMITS, CommandLimits

if TYPE_CHECKING:
    from headwater.data.json_form import JsonForm
    from headwater.data.value import Value


Name = Literal["output", "error"]

_ESCAPES: Final = "headwater.escapes"
_PAIRS_FROM: Final = 0x10000  # JSON writes a character from here on as two surrogates

# Characters that a terminal acts on: controls, line breaks and marks of text direction. A lone surrogate, as in a file
# name that is no UTF-8, cannot be written at all.
_OBEYED: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class OutputFailed(Exception):
    """Standard output or standard error could not be written. Not an error of Headwater."""

    def __init__(self, stream: Name, error: OSError) -> None:
        super().__init__(f"standard {stream} cannot be written: {error.strerror or error}")
        self.stream = stream
        self.is_closed_pipe = isinstance(error, BrokenPipeError)


class OutputStream(io.TextIOBase):
    """Standard output or standard error, with an exception of its own for failed writes."""

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
            raise self._fail(error) from error

    def flush(self) -> None:
        if self._inner is None:
            return
        try:
            self._inner.flush()
        except OSError as error:
            raise self._fail(error) from error

    def _open(self) -> TextIO:
        if self._inner is None:  # the process was started with this stream closed
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._inner

    def _fail(self, error: OSError) -> OutputFailed:
        """Return the exception, and discard the buffer, which the interpreter would try to write once more at exit."""
        if isinstance(self._inner, io.TextIOWrapper):
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nowhere, self._inner.fileno())
            os.close(nowhere)
        return OutputFailed(self._name, error)


def escape_text(text: str) -> str:
    """Escape a text to one line that cannot move the cursor, set a colour or start a new line."""
    return _OBEYED.sub(lambda found: _SHORT.get(found[0]) or _json_escape(found[0]), text)


def escape_json(text: str) -> str:
    """Escape JSON for a terminal. Escaped characters occur only inside strings, so the document stays the same."""
    return _OBEYED.sub(lambda found: "\n" if found[0] == "\n" else _json_escape(found[0]), text)


def _json_escape(character: str) -> str:
    code = ord(character)
    if code < _PAIRS_FROM:
        return f"\\u{code:04x}"
    high, low = divmod(code - _PAIRS_FROM, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Handle encoding errors like `backslashreplace`, with the escapes of JSON: encoded JSON stays JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_json_escape(character) for character in error.object[error.start : error.end]), error.end


codecs.register_error(_ESCAPES, _escape_unencodable)


OK: Final = 0
FAILED: Final = 1
INTERRUPTED: Final = 128 + 2  # SIGINT
BAD_USAGE: Final = 2
UNWRITTEN: Final = 3

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def console(*, stderr: bool = False, limits: CommandLimits = DEFAULT_COMMAND_LIMITS) -> Console:
    stream = OutputStream("error" if stderr else "output")
    width = None if stream.isatty() else limits.piped_width
    # rich needs only the methods of a file that OutputStream has: write, flush, isatty, fileno and encoding.
    file = cast("IO[str]", stream)
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_answer(*lines: str) -> None:
    """Print lines of the answer."""
    out = console()
    for line in lines:
        out.print(escape_text(line))


def print_note(*lines: str) -> None:
    """Print lines to standard error. If that is closed, the answer still counts."""
    try:
        out = console(stderr=True)
        for line in lines:
            out.print(escape_text(line))
    except OutputFailed as failed:
        if failed.stream != "error":
            raise


def print_error(first: str, *more: str) -> None:
    """Print why there is no answer. The exit code says so, too, if standard error is closed."""
    print_note(f"headwater: {first}", *more)


def print_json(document: JsonForm) -> None:
    """Print one JSON document, indented. `headwater.data.codec.from_json` reads the values back."""
    import msgspec  # noqa: PLC0415 (help need not wait for it)

    out = OutputStream("output")
    out.write(escape_json(msgspec.json.format(msgspec.json.encode(document), indent=2).decode()) + "\n")
    out.flush()


def format_short(value: Value, length: int = 60) -> str:
    """Format a value on one line of at most `length` characters."""
    from headwater.data.codec import to_json  # noqa: PLC0415 (help need not wait for it)

    text = to_json(value).decode()
    return text if len(text) <= length else text[: length - 1] + "…"


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str | Sequence[str]]]) -> None:
    """Print rows under headings. A cell is one line or several."""
    from rich.table import Table  # noqa: PLC0415 (help need not wait for it)

    grid = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        grid.add_column(heading, overflow="fold")
    for row in rows:
        cells = ([cell] if isinstance(cell, str) else cell for cell in row)
        grid.add_row(*("\n".join(map(escape_text, lines)) for lines in cells))
    console().print(grid, soft_wrap=False)


def count_noun(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith('ch') else 's'}"


def format_time(us: int) -> str:
    """Format microseconds since 1970 as a date and time that sorts."""
    return (_EPOCH + timedelta(microseconds=us)).isoformat(sep=" ", timespec="milliseconds")


DirectoryPath: TypeAlias = Annotated[str, Parameter(help="The data directory that holds the spaces.")]
SpaceName: TypeAlias = Annotated[str, Parameter(help="The name of the space, as `headwater spaces` lists it.")]
Json: TypeAlias = Annotated[bool, Parameter(help="Print one JSON document instead of text.", negative=())]
