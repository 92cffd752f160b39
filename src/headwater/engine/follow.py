"""Following links: which documents a document leads to, within its space. Cycles end where they began."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

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


def linked(root: DocKey, value_of: Callable[[DocKey], MaybeValue], limits: Limits) -> list[DocKey]:
    """The documents that links lead to from `root`, nearest first, without `root`.

    Links into other spaces lead out of this engine and are not followed.
    """
    found: dict[DocKey, None] = {}
    waiting = deque([root])
    while waiting:
        for link in links_in(value_of(waiting.popleft())):
            doc = DocKey(link.scope, link.id)
            if link.space is not None or doc == root or doc in found:
                continue
            if len(found) >= limits.follow_documents:
                raise LimitError(
                    f"links from {root.scope}:{root.id} lead to more than {limits.follow_documents} documents"
                )
            found[doc] = None
            waiting.append(doc)
    return list(found)
