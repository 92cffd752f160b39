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
from headwater.replica.difference import SAYS_ALL, difference
from headwater.replica.document import Document
from headwater.replica.layer import Fate, Layer

if TYPE_CHECKING:
    from headwater.replica.replica import Replica


def told(layer: Layer, replica: Replica) -> None:
    """Make it the commit that it is from now on."""
    # fault+ telling.basis_too_old: layer.basis = max(0, layer.basis - 1)
    document, own, pending = layer.document, layer.local_seq, replica.pending
    if document is None:
        raise InvariantViolation(f"layer {own} was told twice")
    repeated = pending.repeated(document, (), own)
    if layer.fate is Fate.LOCAL:
        repeated = (True, [])  # It says all of the document: what stayed here before it has given way.
    patches, leaning = difference(layer.before, layer.after, [((), *repeated)], lambda _: layer.derived)
    reads: dict[Read, None] = {}
    # fault telling.reads_forgotten: for spot in ():
    for spot in layer.spots:
        if spot is None:
            continue
        seen = spot.document
        # Another space's log does not check what this one stands on.
        if isinstance(seen, Document) and seen.home is replica:
            under = pending.under(seen, spot.path, own)
            for local in under.local:
                reads.update(dict.fromkeys(local.commit.reads))  # C1: it is a function of these.
            # C3: the one seq that everything here was as of, and every layer that had a say.
            reads[Read(seen.key, spot.path, spot.depth, layer.basis, under.spans)] = None
    if layer.derived and any(patch.path or patch.kind not in SAYS_ALL for patch in patches):
        # C1: a difference stands on what it is a difference to. Another runtime derives the same, and may have told it
        # already: then this one is refused, and its node finds that nothing is to be written.
        under = pending.under(document, (), own)
        reads[Read(document.key, (), Depth.DEEP, layer.basis, under.spans)] = None
    for path in leaning:
        under = pending.under(document, path, own)
        for local in under.local:
            reads.update(dict.fromkeys(local.commit.reads))
        reads[Read(document.key, path, Depth.SHAPE, layer.basis, under.spans)] = None
    causes = tuple((spot.document.key, spot.path) for spot in layer.causes or () if isinstance(spot.document, Document))
    commit = Commit(
        own,
        (Operation(document.key, patches),),
        tuple(reads),
        (),
        replica.branch,
        (),
        (),
        Provenance(layer.node, getattr(layer.source, "fingerprint", ""), causes, layer.derived, layer.hops),  # I8
    )
    layer.tell(commit, {document.key: tuple(Touch(patch.path, True) for patch in patches)})
    if reads and own in pending.live_layers:
        pending.stands(layer)
