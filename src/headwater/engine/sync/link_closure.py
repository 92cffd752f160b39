"""Following links: which documents a document leads to, within its space. Cycles end where they began."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from headwater.data.address import DocKey
from headwater.data.link import Link
from headwater.data.value import MaybeValue
from headwater.engine.limits import Limits
from headwater.errors import LimitError


def links_in(value: MaybeValue) -> Iterator[Link]:
    """Every link inside a value, in order."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, Link):
            yield node
        elif isinstance(node, dict):
            stack.extend(reversed(list(node.values())))
        elif isinstance(node, tuple):
            stack.extend(reversed(node))


def links_of(value: MaybeValue) -> tuple[DocKey, ...]:
    """The documents that a value links to, each once. Links into other spaces lead out of this engine."""
    return tuple(dict.fromkeys(DocKey(link.scope, link.id) for link in links_in(value) if link.space is None))


def reached(roots: Iterable[DocKey], links_from: Callable[[DocKey], Iterable[DocKey]], limits: Limits) -> list[DocKey]:
    """The documents that links lead to from any of the roots, nearest first, without the roots; each is asked once."""
    begun = dict.fromkeys(roots)
    found: dict[DocKey, None] = {}
    waiting = deque(begun)
    while waiting:
        for doc in links_from(waiting.popleft()):
            if doc in begun or doc in found:
                continue
            if len(found) >= limits.follow_documents:
                first = next(iter(begun))
                raise LimitError(
                    f"links from {first.scope}:{first.id} lead to more than {limits.follow_documents} documents"
                )
            found[doc] = None
            waiting.append(doc)
    return list(found)


def linked(root: DocKey, value_of: Callable[[DocKey], MaybeValue], limits: Limits) -> list[DocKey]:
    """The same from one document, by the values that are there."""
    return reached((root,), lambda doc: links_of(value_of(doc)), limits)
