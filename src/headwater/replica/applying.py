"""What a local commit makes of what is shown when it is made. Decides nothing about its fate at the engine."""

from __future__ import annotations

import msgspec

from headwater.data.address import Depth
from headwater.data.patch import Patch, PatchError, Touch, apply
from headwater.data.value import ABSENT, MaybeValue
from headwater.protocol.commit import Operation
from headwater.protocol.verdict import Collision, Conflict
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.documents import Documents
from headwater.replica.layer import Layer


def stands_alone(layer: Layer) -> None:
    """A layer that stays here says what it puts where whether or not something is there: what is there may give way."""
    commit = layer.commit
    operations = [Operation(op.doc, tuple(map(_in_any_case, op.patches))) for op in commit.operations]
    layer.tell(msgspec.structs.replace(commit, operations=tuple(operations)), layer.touched)


def _in_any_case(patch: Patch) -> Patch:
    """An element of an array is replaced where it is: nothing can be put at its place if it is not there."""
    if patch.kind != "replace" or not all(type(step) is str for step in patch.path):
        return patch
    return patch._replace(kind="add")


def applied(layer: Layer, documents: Documents, seq: int, values: dict[Document, MaybeValue]) -> Conflict | None:
    """Apply a commit to what is shown now, into `values`. A patch that does not fit any more is a stale view."""
    for operation in layer.commit.operations:
        document = documents.of(operation.doc)
        value = ABSENT if document.value is NOT_HERE else document.value
        touched: tuple[Touch, ...] = ()
        for patch in operation.patches:
            try:
                value, more = apply(value, patch)
            except PatchError as error:
                reason = f"cannot take {patch.kind!r} now: {error}"
                return Conflict((Collision(operation.doc, patch.path, Depth.DEEP, seq, seq, "", "", reason),))
            touched += more
        layer.touched[operation.doc] = touched
        values[document] = value
    return None
