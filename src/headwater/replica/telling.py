"""How a layer that replaced one document is told as a commit: minimal patches, and what its reads stood on.

It is told later than it is made, in one go with the rest of its wave. In between nothing was heard from outside, so
that the layers below it are the ones that were there when it was made (C3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.data.address import Depth
from headwater.data.patch import Touch
from headwater.errors import InvariantViolation
from headwater.protocol.commit import Commit, Operation, Provenance, Read
from headwater.replica.document import Document
from headwater.replica.pending import Layer
from headwater.replica.transaction import difference, overlapping, ranges, sent_ones

if TYPE_CHECKING:
    from headwater.replica.replica import Replica


def told(layer: Layer, replica: Replica) -> None:
    """Make it the commit that it is from now on."""
    document, own = layer.document, layer.local_seq
    if document is None:
        raise InvariantViolation(f"layer {own} was told twice")
    patches, leaning = difference(document.key, layer.before, layer.after, [((), _under(document, own))])
    reads: dict[Read, None] = {}
    for spot in layer.spots:
        if spot is None:
            continue
        seen = spot.document
        # Another space's log does not check what this one stands on.
        if isinstance(seen, Document) and seen.home is replica:
            under = sent_ones(overlapping(seen.key, spot.path, _under(seen, own)), reads)
            layers = ranges([each.local_seq for each in under])
            # C3: the one seq that everything here was as of, and every layer that had a say.
            reads[Read(seen.key, spot.path, spot.depth, layer.basis, layers)] = None
    for path in leaning:
        under = sent_ones(overlapping(document.key, path, _under(document, own)), reads)
        layers = ranges([each.local_seq for each in under])
        reads[Read(document.key, path, Depth.SHAPE, layer.basis, layers)] = None
    causes = tuple((spot.document.key, spot.path) for spot in layer.causes or () if isinstance(spot.document, Document))
    commit = Commit(
        own,
        (Operation(document.key, patches),),
        tuple(reads),
        (),
        replica.branch,
        (),
        (),
        Provenance(layer.node, "", causes, layer.derived),
    )
    layer.tell(commit, {document.key: tuple(Touch(patch.path, True) for patch in patches)})


def _under(document: Document, local_seq: int) -> list[Layer]:
    """The layers that show something in a document and were there before this one."""
    return [layer for layer in document.layers if layer.local_seq < local_seq and layer.fits(document.key)]
