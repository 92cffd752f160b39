"""The handles of an `each` and of a `child` for one view. Their coordinator knows the rows that they show."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from headwater.cells.codec import codec_for
from headwater.cells.handle import Input
from headwater.errors import AbsentError, AuthoringError
from headwater.pieces.handles import Child, Each

if TYPE_CHECKING:
    from headwater.cells.codec_base import TypeCodec
    from headwater.runtime.pieces.children.coordinator import ChildSet
    from headwater.runtime.pieces.view import ScopedView

K = TypeVar("K")
C_co = TypeVar("C_co", covariant=True)
D = TypeVar("D")

ONLY: Final = ""
"""The key of the only row of a `child`."""
_NOT_GIVEN: Final = object()


class EachHandle(Each[K, C_co]):
    """The handle of an `each` for one view."""

    __slots__ = ("_coordinator", "_view")

    def __init__(self, coordinator: ChildSet, view: ScopedView, order: Input[Any]) -> None:
        super().__init__(view.instance.core, order.document, codec_for(tuple[str, ...]))
        self._coordinator = coordinator
        self._view = view

    @overload
    def get(self) -> Mapping[K, C_co]: ...
    @overload
    def get(self, default: D) -> Mapping[K, C_co] | D: ...
    def get(self, default: Any = _NOT_GIVEN) -> Any:
        """Return one child for each element, in order. Inside a run this subscribes to the set of children only."""
        try:
            texts: Any = super().get()
        except AbsentError:
            if default is _NOT_GIVEN:
                raise
            return default
        return MappingProxyType(self.now.shown(texts, self._view))

    @property
    def now(self) -> ChildSet:
        self._coordinator = self._coordinator.now()
        return self._coordinator

    @property
    def values(self) -> TypeCodec[Any] | None:
        """The codec of the values that the rows make. None: they make pieces."""
        return self._coordinator.values

    def view(self) -> Any:
        """Return the same as `get`: the contents of a child are read when its members are used."""
        return self.get()

    def key(self, k: Any, /) -> Any:
        raise AuthoringError(f"key() of {self!r}: write .get()[{k!r}], which is the child")

    def at(self, path: Any, /) -> Any:
        raise AuthoringError(f"at() of {self!r}: write .get()[key], which is the child")


class ChildHandle(Child[C_co]):
    """The handle of a `child` for one view."""

    __slots__ = ("_coordinator", "_view")

    def __init__(self, coordinator: ChildSet, view: ScopedView, order: Input[Any]) -> None:
        super().__init__(view.instance.core, order.document, codec_for(tuple[str, ...]))
        self._coordinator = coordinator
        self._view = view

    @overload
    def get(self) -> C_co: ...
    @overload
    def get(self, default: D) -> C_co | D: ...
    def get(self, default: Any = _NOT_GIVEN) -> Any:
        """Return the child. Inside a run this subscribes to the identity of the child, not to its contents."""
        texts: Any = super().get(())
        found = self.now.shown(texts, self._view)
        if ONLY in found:
            return found[ONLY]
        if default is _NOT_GIVEN:
            raise AbsentError(f"{self!r} keeps no child: its method returned None")
        return default

    @property
    def now(self) -> ChildSet:
        self._coordinator = self._coordinator.now()
        return self._coordinator

    @property
    def values(self) -> TypeCodec[Any] | None:
        """The codec of the value that the row makes. None: it makes a piece."""
        return self._coordinator.values
