"""Weak references to documents. This module is never compiled: a native class cannot be weakly referenced.

`Referable` is a `Document` with room for weak references and nothing else, so that code that uses a document does not
distinguish them.
"""

from __future__ import annotations

from weakref import ref

from headwater.data.address import DocKey
from headwater.replica.document import Document


class Referable(Document):
    """A document that can be weakly referenced."""

    __slots__ = ("__weakref__",)


class WeakReference(ref[Document]):
    """A weak reference to a document, with the key of the document."""

    __slots__ = ("key",)

    key: DocKey
