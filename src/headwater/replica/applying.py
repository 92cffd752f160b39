"""What a local commit makes of what is shown when it is made. Decides nothing about its fate at the engine."""

from __future__ import annotations

from headwater.data.address import Depth
from headwater.data.patch import PatchError, Touch, apply
from headwater.data.value import ABSENT, MaybeValue
from headwater.protocol.verdict import Collision, Conflict
from headwater.replica.document import NOT_HERE, Document, Documents
from headwater.replica.layer import Layer


def applied(layer: Layer, documents: Documents, seq: int, values: dict[Document, MaybeValue]) -> Conflict | None:
    """Apply a commit to what is shown now, into `values`. A patch that does not fit any more is a stale view."""
    for operation in layer.commit.operations:
        document = documents.hold(operation.doc)
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
