"""What a local commit makes of what is shown when it is made. Decides nothing about its fate at the engine."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headwater.data.address import Depth
from headwater.data.patch import Patch, PatchError, Touch, apply
from headwater.data.value import ABSENT, MaybeValue
from headwater.protocol.commit import Operation
from headwater.protocol.verdict import Collision, Conflict
from headwater.replica.document import NOT_HERE, Document, Documents
from headwater.replica.layer import Layer


def says_all(layer: Layer, values: Mapping[Document, MaybeValue]) -> None:
    """A layer that stays here says all of its documents: then what stayed here before it can give way."""
    operations = [
        Operation(document.key, (Patch("remove", ()) if value is ABSENT else Patch("add", (), value),))
        for document, value in values.items()
    ]
    commit = msgspec.structs.replace(layer.commit, operations=tuple(operations))
    layer.tell(commit, {document.key: (Touch((), True),) for document in values})


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
