"""Where in which documents something may be shown differently: told with a change, so that not all is compared."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.data.path import Path
from headwater.replica.document import Document, Documents
from headwater.replica.pending import Layer

Places = dict[Document, "list[Path] | None"]
"""Documents, and where in them something may differ; None: anywhere."""


def places_of(layers: Iterable[Layer], documents: Documents) -> Places:
    """Where layers wrote that are no longer there."""
    places: Places = {}
    for layer in layers:
        for doc in layer.docs():
            before = places.setdefault(documents.hold(doc), [])
            if before is not None:
                before += layer.written(doc)
    return places


def joined(*several: Places) -> Places:
    """All of these together."""
    all_of_them: Places = {}
    for places in several:
        for document, at in places.items():
            before = all_of_them.get(document, [])
            all_of_them[document] = None if before is None or at is None else before + at
    return all_of_them
