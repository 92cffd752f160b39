"""Changes to a document, and the places that they touch.

`Patch` is one change, `apply` makes it, `validate_patch` checks patches from outside; the descriptors of the kinds live
in `patch_kinds`. A value is never mutated: the containers along the path are copied, the rest is shared. Invariants: a
patch that changes nothing returns the same object and touches nothing; the touches of `apply` cover every true
difference (C2: overlap is over-approximated, never under-approximated); the cost is that of the containers on the path,
never of the whole document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headwater.data.limits import DEFAULT_VALUE_LIMITS, ValueLimits
from headwater.data.patch_kinds import DESCRIPTORS, KINDS, Descriptor, Edited, Kind, PatchError, Touch, noun
from headwater.data.path import Path, check_path
from headwater.data.text import shown
from headwater.data.value import ABSENT, MaybeValue, Value
from headwater.errors import InvalidValueError

__all__ = [
    "DESCRIPTORS",
    "KINDS",
    "Descriptor",
    "Kind",
    "Patch",
    "PatchError",
    "Touch",
    "add",
    "add_sorted",
    "add_unique",
    "append",
    "apply",
    "footprint",
    "increment",
    "remove",
    "remove_value",
    "replace",
    "splice",
    "validate_patch",
]


class Patch(NamedTuple):
    """One change at one path. The kind's descriptor defines the form of `arg`."""

    kind: Kind
    path: Path
    arg: Value = None


def apply(value: MaybeValue, patch: Patch, limits: ValueLimits = DEFAULT_VALUE_LIMITS) -> Edited:
    """`value` with the change made, and the places that it touched. Raises PatchError where it does not fit the value.

    `limits` bounds how many items a container may grow to; nothing else is checked again here.
    """
    kind, path, arg = patch
    descriptor = DESCRIPTORS[kind]
    node = value
    chain: list[dict[str, Value] | tuple[Value, ...]] = []
    for step in path:
        if type(node) is dict and type(step) is str:
            chain.append(node)
            node = node.get(step, ABSENT)
        elif type(node) is tuple and type(step) is int:
            chain.append(node)
            node = _element(node, step, descriptor, path, len(chain))
        elif descriptor.takes:
            return value, ()
        else:
            raise _no_way_down(node, step, path[: len(chain)])
    after, touched = descriptor.edit(node, path, arg)
    if not touched:
        return value, ()
    if type(after) is tuple and len(after) > limits.container_items:
        raise _too_many(len(after), path, limits)
    if node is ABSENT and chain and len(chain[-1]) >= limits.container_items:
        raise _too_many(len(chain[-1]) + 1, path[:-1], limits)
    depth = len(chain)
    while depth:
        depth -= 1
        container = chain[depth]
        if type(container) is dict:
            copy = container.copy()
            if after is ABSENT:
                del copy[path[depth]]  # type: ignore[arg-type]  # The way down found text here.
            else:
                copy[path[depth]] = after  # type: ignore[index]
            after = copy
        else:
            items = list(container)
            items[path[depth]] = after  # type: ignore[index, assignment]  # Never ABSENT: `remove` is refused.
            after = tuple(items)
    return after, touched


def _element(node: tuple[Value, ...], step: int, descriptor: Descriptor, path: Path, depth: int) -> Value:
    if depth == len(path) and not descriptor.in_array:
        raise PatchError(f"{descriptor.kind} does not work on an element of an array: use splice or replace", path)
    if not 0 <= step < len(node):
        raise PatchError(f"the array has {len(node)} elements, so it has no element {step}", path[:depth])
    return node[step]


def _no_way_down(node: MaybeValue, step: str | int, path: Path) -> PatchError:
    if node is ABSENT:
        return PatchError("there is nothing here to hold the rest of the path: write this part first", path)
    if type(node) is tuple:
        return PatchError(f"an array has no key {shown(step)}: use an integer index", path)
    if type(node) is dict:
        return PatchError(f"an object has no index {step}: use a text key", path)
    return PatchError(f"{noun(node)} holds nothing: replace it with a container first", path)


def _too_many(count: int, path: Path, limits: ValueLimits) -> PatchError:
    return PatchError(
        f"the container would have {count} items, the limit is {limits.container_items}", path, is_limit=True
    )


def footprint(patch: Patch) -> Touch:
    """Return the touch that covers the touches of `apply` on every possible document."""
    path = patch.path
    return Touch(path, DESCRIPTORS[patch.kind].keyset or not path)


def validate_patch(patch: Sequence[object], limits: ValueLimits = DEFAULT_VALUE_LIMITS) -> Patch:
    """A patch from elsewhere, checked and frozen, or InvalidValueError. Lists in it become tuples."""
    try:
        kind, path, arg = patch
        descriptor = DESCRIPTORS[kind]  # type: ignore[index]
    except (ValueError, TypeError, KeyError):
        raise _malformed(patch) from None
    if type(path) is not tuple or path:
        path = check_path(path, limits)  # type: ignore[arg-type]
    checked = descriptor.check(arg, path, limits)
    if checked is arg and type(patch) is Patch and path is patch.path:
        return patch
    return Patch(descriptor.kind, path, checked)


def _malformed(patch: object) -> InvalidValueError:
    if isinstance(patch, (list, tuple)) and len(patch) == 3:
        return InvalidValueError(f"{shown(patch[0])} is not a kind of patch: use one of {', '.join(KINDS)}")
    return InvalidValueError(f"{shown(patch)} is not a patch: write (kind, path, arg)")


def _made(kind: Kind, path: Sequence[str | int], arg: object, limits: ValueLimits) -> Patch:
    return validate_patch((kind, path, arg), limits)


def replace(path: Sequence[str | int], value: object, limits: ValueLimits = DEFAULT_VALUE_LIMITS) -> Patch:
    """Put `value` where something is already, or make it the whole document."""
    return _made("replace", path, value, limits)


def add(path: Sequence[str | int], value: object, limits: ValueLimits = DEFAULT_VALUE_LIMITS) -> Patch:
    """Put `value` at a key, there already or not, or make it the whole document."""
    return _made("add", path, value, limits)


def remove(path: Sequence[str | int]) -> Patch:
    """Take a key, or the whole document, away. It must be there."""
    return _made("remove", path, None, DEFAULT_VALUE_LIMITS)


def splice(
    path: Sequence[str | int],
    index: int,
    delete: int,
    items: Sequence[object] = (),
    limits: ValueLimits = DEFAULT_VALUE_LIMITS,
) -> Patch:
    """Take `delete` elements of the array out at `index` and put `items` there."""
    return _made("splice", path, (index, delete, items), limits)


def append(
    path: Sequence[str | int],
    items: Sequence[object],
    keep: int | None = None,
    limits: ValueLimits = DEFAULT_VALUE_LIMITS,
) -> Patch:
    """Put `items` at the end of the array and keep its last `keep` elements. An absent array is made."""
    return _made("append", path, (items, keep), limits)


def add_unique(path: Sequence[str | int], item: object, limits: ValueLimits = DEFAULT_VALUE_LIMITS) -> Patch:
    """Put `item` at the end of the array unless an equal element is there. An absent array is made."""
    return _made("add_unique", path, item, limits)


def add_sorted(path: Sequence[str | int], item: object, limits: ValueLimits = DEFAULT_VALUE_LIMITS) -> Patch:
    """Put `item` into an array in canonical order unless an equal element is there. An absent array is made."""
    return _made("add_sorted", path, item, limits)


def remove_value(path: Sequence[str | int], item: object, limits: ValueLimits = DEFAULT_VALUE_LIMITS) -> Patch:
    """Take every element that equals `item` out of the array, if there are any."""
    return _made("remove_value", path, item, limits)


def increment(path: Sequence[str | int], by: int | float = 1) -> Patch:
    """Add `by` to the number. An absent number counts as 0."""
    return _made("increment", path, by, DEFAULT_VALUE_LIMITS)
