"""Handles on what leaves a transaction: a stream of events for a handler, a topic of records for reactions.

A door only: they have an address and a type, check what is sent, and hand it to the host. What becomes of it is the
business of events and reactions. A run that may be repeated is refused there, by the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from headwater.cells.host import Host
from headwater.cells.not_a_value import NotAValue
from headwater.cells.typecodec import TypeCodec
from headwater.data.address import doc_text
from headwater.replica.document import Document

if TYPE_CHECKING:
    from typing import Self

    from headwater.cells.member import Member

__all__ = ["Stream", "Topic"]

T = TypeVar("T")


class _Sending(NotAValue, Generic[T]):
    """A typed address."""

    __slots__ = ("_codec", "_document", "_host")

    def __init__(self, host: Host, document: Document, codec: TypeCodec[Any]) -> None:
        self._host = host
        self._document = document
        self._codec = codec

    @property
    def document(self) -> Document:
        return self._document

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {doc_text(self._document.key)}>"


class Stream(_Sending[T]):
    """Where events for one handler go."""

    __slots__ = ()

    def _instead(self) -> str:
        return ".post(event) to send one"

    def post(self, event: T, /) -> None:
        """Send an event. Inside a handler it lives and dies with the handler's commit."""
        self._host.post(self, self._codec.encode(event))


class Topic(_Sending[T]):
    """Where records for reactions go. `owner` is whose it is; None: nobody's, and no reaction hears of it."""

    __slots__ = ("owner",)

    def __init__(self, host: Host, document: Document, codec: TypeCodec[Any], owner: object | None = None) -> None:
        super().__init__(host, document, codec)
        self.owner = owner

    if TYPE_CHECKING:

        @overload
        def __get__(self, obj: None, owner: type[Any]) -> Member[T]: ...
        @overload
        def __get__(self, obj: object, owner: type[Any]) -> Self: ...
        def __get__(self, obj: object | None, owner: type[Any]) -> Any: ...

    def _instead(self) -> str:
        return ".emit(record) to emit one"

    def emit(self, record: T, /) -> None:
        """Emit a record. It is stored with the commit that emitted it."""
        self._host.emit(self, self._codec.encode(record))
