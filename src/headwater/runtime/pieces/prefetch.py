"""Prefetch: request the documents that an attempt is about to miss together with the first one that it misses.

An attempt stops at the first document that is not loaded. With the first one that it misses of a small piece, the
documents of all members are requested. In a large piece, these are the documents of the members that its code names,
directly or through members that it names; with the second miss, those of all members.

A reader of the same member of every child would be restarted for each child. A reader that was shown the children
together and misses a document of one of them is likely to miss those of the following ones. So some of them are
requested with the first miss, and eight times as many with each further miss. A reader that misses the same member of
two named pieces of a class is likely to go through those of that class of which a program has handles: these are
requested in the order in which the handles were made. Prefetch runs no node. Documents that were not read are released
when the reader is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from headwater.pieces.names import document_id
from headwater.replica.document import NOT_HERE, Document
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.pieces.view import document_names
from headwater.scheduler.node import CLEAN, Node

if TYPE_CHECKING:
    from headwater.pieces.declarations import ChildMember, Declaration, EachMember
    from headwater.runtime.core.core import Core
    from headwater.runtime.pieces.child_set import ChildSet
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.registry import PieceRegistry


class Prefetch:
    """The requested documents, by the node that is expected to read them."""

    __slots__ = ("_brought", "_core", "_registry", "_tidied_at")

    def __init__(self, core: Core, registry: PieceRegistry) -> None:
        self._core = core
        self._registry = registry
        self._brought: dict[Node, dict[Document, None]] = {}
        self._tidied_at = 0  # the number of readers left after the last `_tidy`

    def prefetch_for_run(self, document: Document) -> None:
        """Prefetch for a node whose attempt is about to stop at a missing document, and for the runs around it."""
        scheduler = self._core.scheduler
        self._tidy()
        running = scheduler.marks.running
        if running is None:
            return
        outer = scheduler.pass_.stopped()[-scheduler.limits.nested_depth :] if scheduler.limits.nested_depth else []
        for reader in (running, *[frame.node for frame in outer]):
            brought = self._brought.get(reader, {})
            if reader is running:
                self._request_members(document, brought)
            self._request_siblings(document, reader, brought)
            if brought:
                self._brought[reader] = brought

    def prefetch_for_author(self, document: Document, brought: dict[Document, None]) -> None:
        """Prefetch for an attempt of a handler or a transaction, which keeps the documents until it has an outcome."""
        if document not in brought:  # Otherwise it was requested with another one that this attempt missed.
            self._request_members(document, brought)
            self._request_siblings(document, None, brought)

    def release_if_unread(self, brought: dict[Document, None]) -> None:
        """Release prefetched documents whose reader is done, unless a node reads or writes them."""
        core = self._core
        for document in brought:
            if core.name_of(document.home) is not None:  # Otherwise this runtime left the space.
                core.space_of(document).release_if_unread(document)

    def _tidy(self) -> None:
        """Release the documents of readers that ran. Only when their number has doubled: each miss would cost all."""
        if len(self._brought) <= 2 * self._tidied_at:
            return
        for reader in [each for each in self._brought if each.removed or (each.status == CLEAN and not each.stops)]:
            self.release_if_unread(self._brought.pop(reader))
        self._tidied_at = len(self._brought)

    def _request_members(self, document: Document, brought: dict[Document, None]) -> None:
        """Request documents of the piece of a missing one: of all members, or of those that its code names."""
        if self._core.name_of(document.home) is None:
            return
        space = self._core.space_of(document)
        id, _, stored = document.key.id.rpartition(":")
        instance = self._registry.find(space.name, id)
        member = None if instance is None else instance.schema.get(stored)
        if instance is None or member is None:
            return
        head = f"{id}:"
        members: Iterable[Declaration] = instance.schema
        is_first = not any(each.key.id.startswith(head) for each in brought)
        if is_first and len(instance.schema.members) > RUNTIME_LIMITS.prefetched_first:
            # fault prefetch.names_ignored: members = ()
            members = instance.schema.named_by(member)
        documents = (
            space.document(document_id(id, name), "space" if each.scope == "space" else document.key.scope)
            for each in members
            if each.scope in ("space", member.scope)
            for name in document_names(each)
        )
        missing = (each for each in documents if each.value is NOT_HERE and each not in brought)
        found = list(islice(missing, RUNTIME_LIMITS.prefetched_most))
        if found:
            brought.update(dict.fromkeys(found))
            space.bring(found)

    def _request_siblings(self, document: Document, reader: Node | None, brought: dict[Document, None]) -> None:
        if self._core.name_of(document.home) is None:
            return
        space = self._core.space_of(document)
        id, _, stored = document.key.id.rpartition(":")
        instance = self._registry.find(space.name, id)
        way: list[EachMember | ChildMember] = []  # members from the shown child down to the owner of the document
        at = instance
        while instance is not None and at is not None and at.parent is not None:
            child_set = _kept_by(at)
            if child_set is None:
                return
            listing = child_set.listing
            most = listing.request_size(document, stored) if listing.reader is reader else 0
            if most:
                instances = (each for start in _siblings(child_set, at) for each in _descendants(start, way))
                documents = (
                    space.document(document_id(each.id, stored), document.key.scope)
                    for each in instances
                    if each.cls is instance.cls
                )
                missing = (each for each in documents if each.value is NOT_HERE and each not in brought)
                found = list(islice(missing, most))
                if found:
                    brought.update(dict.fromkeys(found))
                    space.bring(found)
            way.insert(0, child_set.member)
            at = at.parent
        if instance is not None and instance.parent is None:
            self._request_of_named_pieces(instance, document, stored, brought)

    def _request_of_named_pieces(
        self, instance: PieceInstance, document: Document, stored: str, brought: dict[Document, None]
    ) -> None:
        """Request a member of other named pieces of a class, once an attempt missed it of two of them."""
        space, ids = instance.space, (each.key.id.rpartition(":") for each in brought)
        known = sum(member == stored and id != instance.id and self._is_like(instance, id) for id, _, member in ids)
        brought[document] = None
        if not known:
            return
        limits = RUNTIME_LIMITS
        # fault prefetch.named_pieces_one_by_one: most = 0
        most = min(max(limits.prefetched_first, known * limits.prefetched_growth), limits.prefetched_most)
        likes = [
            each for each in self._registry.instances() if each.parent is None and self._is_like(instance, each.id)
        ]
        place = next((at for at, each in enumerate(likes) if each is instance), 0)
        documents = (space.document(document_id(each.id, stored), document.key.scope) for each in likes[place + 1 :])
        found = list(islice((each for each in documents if each.value is NOT_HERE and each not in brought), most))
        if found:
            brought.update(dict.fromkeys(found))
            space.bring(found)

    def _is_like(self, instance: PieceInstance, id: str) -> bool:
        """Whether an id is that of a piece of the same class and space as an instance."""
        other = self._registry.find(instance.space.name, id)
        return other is not None and other.cls is instance.cls


def _kept_by(instance: PieceInstance) -> ChildSet | None:
    """Return the child set whose row keeps a child."""
    assert instance.parent is not None
    keeper = None if instance.maker is None else instance.maker.parent
    return next((each for each in instance.parent.child_sets.values() if each.node is keeper), None)


def _siblings(child_set: ChildSet, instance: PieceInstance) -> list[PieceInstance]:
    """Return the children that were shown together with one, those after it first."""
    rows = child_set.rows
    instances = [rows[text].child for text in child_set.listing.texts if text in rows]
    found = [each for each in instances if each is not None]
    place = next((at for at, each in enumerate(found) if each is instance), len(found))
    return [*found[place + 1 :], *found[:place]]


def _descendants(instance: PieceInstance, way: list[EachMember | ChildMember]) -> Iterator[PieceInstance]:
    """Yield the descendants that the same members lead to, as far as they exist in this runtime."""
    if not way:
        yield instance
        return
    child_set = instance.child_sets.get(way[0])
    if child_set is not None:
        for child in child_set.instances():
            yield from _descendants(child, way[1:])
