"""The nine kinds of patch, one descriptor each.

A descriptor has, for its kind: the edit of the value at the path, the touches of that edit, whether it can change the
key set of the parent, and the check of its argument. Admission, reader matching and replay all derive from these; no
other module tests the kind of a patch. Paths are walked by `patch.apply`. Invariants: an edit returns no touch exactly
when it changed nothing; an edit never mutates.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from headwater.data.address import Link
from headwater.data.json_form import canonical
from headwater.data.limits import ValueLimits
from headwater.data.path import MAX_INDEX, Path, path_text
from headwater.data.text import shown
from headwater.data.value import ABSENT, MAX_INT, MaybeValue, Value, equal, freeze
from headwater.errors import InvalidValueError

__all__ = ["DESCRIPTORS", "KINDS", "Descriptor", "Edited", "Kind", "PatchError", "Touch", "noun"]

Kind: TypeAlias = Literal[
    "replace", "add", "remove", "splice", "append", "add_unique", "add_sorted", "remove_value", "increment"
]


_NOUNS: Final[dict[type, str]] = {
    dict: "an object",
    tuple: "an array",
    str: "a string",
    bytes: "a bytes value",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    Link: "a link",
}


def noun(value: MaybeValue) -> str:
    """Return a noun for the value, for a message."""
    return _NOUNS.get(type(value), "null")


class PatchError(Exception):
    """A patch that does not fit the value it meets. Internal: the engine turns it into a verdict."""

    def __init__(self, reason: str, path: Path, *, is_limit: bool = False) -> None:
        super().__init__(f"{reason} (at {path_text(path) or 'the root'})")
        self.is_limit = is_limit  # the value would be one that no document can hold, whatever it is now
        self.reason = reason
        self.path = path


class Touch(NamedTuple):
    """A written place. `keyset`: it appeared in or vanished from its parent (the root: from its space)."""

    path: Path
    keyset: bool


Edited: TypeAlias = tuple[MaybeValue, tuple[Touch, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """Everything the rest of the system may know about one kind."""

    kind: Kind

    edit: Callable[[MaybeValue, Path, Value], Edited]
    """From the value at the path, the path and the argument: the new value, and the touches."""

    check: Callable[[object, Path, ValueLimits], Value]
    """The argument, frozen, or InvalidValueError."""

    keyset: bool
    """Whether it can make its path appear in or vanish from the parent."""

    in_array: bool
    """Whether its path may end at an element of an array. Indexed insert and removal do not exist."""

    takes: bool = False
    """Whether it only takes something away: where nothing is, or nothing could be, there is nothing to do."""


# The touches of a write to a whole document.
_CHANGED: Final = (Touch((), False),)
_APPEARED: Final = (Touch((), True),)


def _replace(current: MaybeValue, path: Path, arg: Value) -> Edited:
    if current is ABSENT:
        if path:
            raise PatchError("there is nothing to replace: use add to create it", path)
        return arg, _APPEARED
    if equal(current, arg):
        return current, ()
    return arg, (Touch(path, False),) if path else _CHANGED


def _add(current: MaybeValue, path: Path, arg: Value) -> Edited:
    if current is ABSENT:
        return arg, (Touch(path, True),) if path else _APPEARED
    if equal(current, arg):
        return current, ()
    return arg, (Touch(path, False),) if path else _CHANGED


def _remove(current: MaybeValue, path: Path, arg: Value) -> Edited:
    return ABSENT, () if current is ABSENT else (Touch(path, True),)


def _splice(current: MaybeValue, path: Path, arg: Value) -> Edited:
    index, delete, items = cast(tuple[int, int, tuple[Value, ...]], arg)  # `_check_splice` gave it this form.
    array = _array(current, path, "splice")
    if array is None:
        raise PatchError("there is no array to splice: use append or add to create it", path)
    end = index + delete
    if end > len(array):
        raise PatchError(f"the array has {len(array)} elements, so {delete} cannot be taken out at {index}", path)
    if equal(array[index:end], items):
        return current, ()
    return (*array[:index], *items, *array[end:]), (Touch(path, False),)


def _append(current: MaybeValue, path: Path, arg: Value) -> Edited:
    made: Any = arg
    items: tuple[Value, ...]
    keep: int | None
    items, keep = made  # `_check_append` gave it this form.
    array = current if type(current) is tuple else _array(current, path, "append")
    grown = (*(array or ()), *items)
    dropped = 0 if keep is None else max(len(grown) - keep, 0)
    if dropped:
        grown = grown[dropped:]
    if array is None:
        return grown, (Touch(path, True),)
    if dropped:
        return (current, ()) if equal(array, grown) else (grown, (Touch(path, False),))
    if len(items) == 1:
        return grown, (Touch((*path, len(array)), True),)
    return grown, tuple([Touch((*path, index), True) for index in range(len(array), len(grown))])


def _add_unique(current: MaybeValue, path: Path, arg: Value) -> Edited:
    array = _array(current, path, "add_unique")
    if array is None:
        return (arg,), (Touch(path, True),)
    for item in array:
        if equal(item, arg):
            return current, ()
    return (*array, arg), (Touch((*path, len(array)), True),)


def _add_sorted(current: MaybeValue, path: Path, arg: Value) -> Edited:
    array = _array(current, path, "add_sorted")
    if array is None:
        return (arg,), (Touch(path, True),)
    for item in array:
        if equal(item, arg):
            return current, ()
    index = bisect(array, canonical(arg), key=canonical)
    return (*array[:index], arg, *array[index:]), (Touch(path, False),)


def _remove_value(current: MaybeValue, path: Path, arg: Value) -> Edited:
    array = _array(current, path, "remove_value")
    if array is None:
        return current, ()
    kept = tuple([item for item in array if not equal(item, arg)])
    return (current, ()) if len(kept) == len(array) else (kept, (Touch(path, False),))


def _increment(current: MaybeValue, path: Path, arg: Value) -> Edited:
    if current is ABSENT:
        return arg, (Touch(path, True),)
    if type(current) is not int and type(current) is not float:
        raise PatchError(f"{noun(current)} cannot be incremented: it takes a number", path)
    total = current + cast(int | float, arg)  # `_check_increment` let only numbers pass.
    if type(total) is int:
        if not -MAX_INT <= total <= MAX_INT:
            raise PatchError("the sum is beyond 2**53 - 1 and would lose digits", path, is_limit=True)
    elif total - total != 0:
        raise PatchError("the sum is not a finite number", path, is_limit=True)
    if total == current:
        return current, ()
    return total, (Touch(path, False),)


def _array(current: MaybeValue, path: Path, kind: Kind) -> tuple[Value, ...] | None:
    if current is ABSENT:
        return None
    if type(current) is not tuple:
        raise PatchError(f"{kind} works on an array, and {noun(current)} is here", path)
    return current


def _check_value(arg: object, path: Path, limits: ValueLimits) -> Value:
    return freeze(arg, limits, at=path)


def _check_none(arg: object, path: Path, limits: ValueLimits) -> Value:
    if arg is not None:
        raise _bad_arg("remove", path, arg, "it takes no argument, so write None")
    return None


def _check_item(arg: object, path: Path, limits: ValueLimits) -> Value:
    # The depth of an element counts from inside its array. Its index is unknown; messages show "-" for it.
    return freeze(arg, limits, at=(*path, "-"))


def _check_splice(arg: object, path: Path, limits: ValueLimits) -> Value:
    if not isinstance(arg, (list, tuple)) or len(arg) != 3:
        raise _bad_arg("splice", path, arg, "write (index, delete_count, items)")
    index, delete, items = arg
    if not _is_count(index) or not _is_count(delete):
        raise _bad_arg("splice", path, arg, "index and delete_count are integers of at least 0")
    return (index, delete, _check_items("splice", items, path, limits))


def _check_append(arg: object, path: Path, limits: ValueLimits) -> Value:
    if not isinstance(arg, (list, tuple)) or len(arg) != 2:
        raise _bad_arg("append", path, arg, "write (items, keep), where keep may be None")
    items, keep = arg
    if keep is not None and not _is_count(keep):
        raise _bad_arg("append", path, arg, "keep is None or an integer of at least 0")
    return (_check_items("append", items, path, limits), keep)


def _check_items(kind: Kind, items: object, path: Path, limits: ValueLimits) -> Value:
    if not isinstance(items, (list, tuple)):
        raise _bad_arg(kind, path, items, "items is a list or tuple")
    return freeze(items, limits, at=path)


def _check_increment(arg: object, path: Path, limits: ValueLimits) -> Value:
    if isinstance(arg, bool) or not isinstance(arg, (int, float)):
        raise _bad_arg("increment", path, arg, "it takes an int or a float")
    return freeze(arg, limits, at=path)


def _is_count(number: object) -> bool:
    return type(number) is int and 0 <= number <= MAX_INDEX


def _bad_arg(kind: Kind, path: Path, arg: object, advice: str) -> InvalidValueError:
    where = path_text(path) or "the root"
    return InvalidValueError(f"{kind} at {where} cannot use {shown(arg)}: {advice}", path=path)


_ALL: Final = (
    Descriptor(kind="replace", edit=_replace, check=_check_value, keyset=False, in_array=True),
    Descriptor(kind="add", edit=_add, check=_check_value, keyset=True, in_array=False),
    Descriptor(kind="remove", edit=_remove, check=_check_none, keyset=True, in_array=False, takes=True),
    Descriptor(kind="splice", edit=_splice, check=_check_splice, keyset=False, in_array=True),
    Descriptor(kind="append", edit=_append, check=_check_append, keyset=True, in_array=True),
    Descriptor(kind="add_unique", edit=_add_unique, check=_check_item, keyset=True, in_array=True),
    Descriptor(kind="add_sorted", edit=_add_sorted, check=_check_item, keyset=True, in_array=True),
    Descriptor(kind="remove_value", edit=_remove_value, check=_check_item, keyset=False, in_array=True, takes=True),
    Descriptor(kind="increment", edit=_increment, check=_check_increment, keyset=True, in_array=True),
)

DESCRIPTORS: Final[dict[str, Descriptor]] = {each.kind: each for each in _ALL}
KINDS: Final[tuple[Kind, ...]] = tuple(each.kind for each in _ALL)
