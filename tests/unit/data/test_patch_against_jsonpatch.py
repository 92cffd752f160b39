"""The kinds that JSON Patch has do what the `jsonpatch` package does.

An oracle nobody here wrote. Where it and we differ on purpose, no case is made: an index that inserts into or
removes from an array, a text step that JSON Pointer would read as an index, and a removal where nothing is.
"""

from __future__ import annotations

import random
from typing import Any

import jsonpatch
import jsonpointer
import pytest

from headwater.data.diff import diff
from headwater.data.patch import Patch, PatchError, apply
from headwater.data.path import Path
from headwater.data.value import ABSENT, Value, equal, freeze, lookup
from tests.counts import scaled
from tests.unit.data.generators import mutated, random_container, random_path, random_value


def plain(value: Value) -> Any:
    """The value with lists instead of tuples, as the oracle wants it."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple) else value


def by_the_oracle(document: Value, patches: list[Patch]) -> Value | None:
    """The document afterwards, or None where the oracle refuses."""
    operations = []
    for patch in patches:
        operation = {"op": patch.kind, "path": jsonpointer.JsonPointer.from_parts(patch.path).path}
        operations.append(operation if patch.kind == "remove" else operation | {"value": plain(patch.arg)})
    try:
        return (freeze(jsonpatch.JsonPatch(operations).apply(plain(document))),)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException):
        return None


def by_us(document: Value, patches: list[Patch]) -> Value | None:
    value: Any = document
    try:
        for patch in patches:
            value = apply(value, patch)[0]
    except PatchError:
        return None
    return (value,)


def comparable_patch(rng: random.Random, document: Value) -> Patch | None:
    path: Path = random_path(rng, document)
    kind = rng.choice(("replace", "replace", "add", "add", "remove"))
    in_array = bool(path) and isinstance(lookup(document, path[:-1]), tuple)
    if (in_array and kind != "replace") or (kind == "remove" and (not path or lookup(document, path) is ABSENT)):
        return None
    return Patch(kind, path, None if kind == "remove" else random_value(rng, 2, json_only=True))  # type: ignore[arg-type]


@pytest.mark.random
def test_single_patches_agree_with_json_patch_on_result_and_refusal() -> None:
    rng = random.Random(6902)
    met = {True: 0, False: 0}
    for number in range(scaled(60_000)):
        document = random_container(rng, json_only=True)
        patch = comparable_patch(rng, document)
        if patch is None:
            continue
        theirs, ours = by_the_oracle(document, [patch]), by_us(document, [patch])
        met[ours is None] += 1
        assert equal(ours, theirs), (number, document, patch, ours, theirs)
    assert sum(met.values()) < 1000 or min(met.values()) > 100, met


@pytest.mark.random
def test_diffs_without_splices_agree_with_json_patch() -> None:
    rng = random.Random(6901)
    for number in range(scaled(30_000)):
        before = random_container(rng, json_only=True)
        after = mutated(rng, before, json_only=True)
        patches = list(diff(before, after))
        if any(patch.kind == "splice" for patch in patches):
            continue
        theirs = by_the_oracle(before, patches)
        assert equal(theirs, (after,)), (number, before, after, patches, theirs)
