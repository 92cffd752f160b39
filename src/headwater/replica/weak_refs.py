"""References that do not keep their document. Never compiled: a native class cannot be referred to like this.

`Referable` is a document with room for such references; it adds nothing else, so that whoever has a document at hand
looks at it as at any other.
"""

from __future__ import annotations

from weakref import ref

from headwater.data.address import DocKey
from headwater.replica.document import Document


class Referable(Document):
    """A document that can be referred to without being kept."""

    __slots__ = ("__weakref__",)


class WeakReference(ref[Document]):
    """A reference that does not keep its document, and knows its key."""

    __slots__ = ("key",)

    key: DocKey
