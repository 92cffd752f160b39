"""Where in which documents something may be shown differently: told with a change, so that not all is compared."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.data.address import DocKey
from headwater.data.path import Path
from headwater.protocol.messages import DocChange, Own
from headwater.replica.document import Document
from headwater.replica.documents import Documents
from headwater.replica.layer import Layer

Places = dict[Document, "list[Path] | None"]
"""Documents, and where in them something may differ; None: anywhere."""


def places_of(layers: Iterable[Layer], documents: Documents) -> Places:
    """Where layers wrote that are no longer there, each place once."""
    places: dict[Document, dict[Path, None]] = {}
    for layer in layers:
        for doc in layer.docs():
            places.setdefault(documents.of(doc), {}).update(dict.fromkeys(layer.written(doc)))
    return {document: list(at) for document, at in places.items()}


def joined(*several: Places) -> Places:
    """All of these together."""
    all_of_them: Places = {}
    for places in several:
        for document, at in places.items():
            before = all_of_them.get(document, [])
            all_of_them[document] = None if before is None or at is None else before + at
    return all_of_them


def unchanged(changes: Iterable[DocChange], seq: int, documents: Documents) -> list[Document]:
    """The documents of which the log, up to `seq`, tells nothing but their own bottommost layers, in order.

    Looked at before those layers are taken out. Each must have shown what it says: then what is on top stands on the
    same as before, and nothing has to be applied again.
    """
    own: dict[DocKey, list[int]] = {}
    others: set[DocKey] = set()
    for change in changes:
        if isinstance(change, Own):
            own.setdefault(change.doc, []).append(change.local_seq)
        else:
            others.add(change.doc)
    same = []
    for doc, numbers in own.items():
        document = documents.get(doc)
        if document is None or doc in others:
            continue
        leaving, staying = document.layers[: len(numbers)], document.layers[len(numbers) : len(numbers) + 1]
        if (
            [layer.local_seq for layer in leaving] == numbers
            and all(0 < layer.seq <= seq and layer.fits(doc) for layer in leaving)
            and all(not 0 < layer.seq <= seq for layer in staying)
            and not (document.wrote is not None and document.wrote.local)
        ):
            same.append(document)
    return same
