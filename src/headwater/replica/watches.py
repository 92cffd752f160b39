"""The watches of a session: documents asked for by name, documents that came by following links, and open loads.

Knows which documents are kept current. A document whose changes the engine does not tell cannot be read before it has
arrived again (C3). Messages go through the function `say`; a message that cannot be sent now is covered by the next
Open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import structs

from headwater.data.address import DocKey
from headwater.protocol.messages import FromReplica, Opened, Selector, Sync, Unwatch, Watch, Watched
from headwater.replica.replica import Replica


class Watches:
    """The watches of one session, over any number of connections."""

    __slots__ = (
        "_followed",
        "_loading",
        "_narrower",
        "_next",
        "_replica",
        "_say",
        "_together",
        "_watch_of",
        "_watches",
        "generation",
    )

    def __init__(self, replica: Replica, say: Callable[[FromReplica], object]) -> None:
        self.generation = 0  # rises when a load begins and when it ends
        self._replica = replica
        self._say = say
        self._watch_of: dict[DocKey, int] = {}  # documents asked for by name
        self._watches: dict[int, tuple[Selector, ...]] = {}
        self._followed: dict[DocKey, int] = {}  # documents that came with the watch of another document
        self._loading: dict[int, tuple[Selector, ...]] = {}
        self._narrower: dict[int, tuple[Selector, ...]] = {}  # former selectors of watches that are being widened
        self._together: dict[int, set[DocKey]] = {}  # watches of many documents, with those that a reader waits for
        self._next = 1

    def new_number(self) -> int:
        """Return a number for a watch or a query that was never used before in this session."""
        self._next += 1
        return self._next - 1

    def numbers(self) -> tuple[int, ...]:
        return tuple(self._watches)

    def is_loading(self) -> bool:
        return bool(self._loading)

    def loads(self) -> int:
        return len(self._loading)

    # ---- asking ------------------------------------------------------------------------------------

    def watch(self, docs: Iterable[DocKey], *, follow: bool = False, ahead: Iterable[DocKey] | None = None) -> None:
        """Ask for documents, and for every change of them.

        A watched document that is here or on its way is asked for again only if its links are to be followed as well.
        With `ahead`, one watch asks for `docs` and the documents of `ahead`. No reader waits for those of `ahead`, and
        they may fail to arrive.
        """
        if ahead is not None:
            docs = [*docs]
            self._watch_together(docs, ahead)
        for doc in docs:
            number = self._watch_of.get(doc)
            if number is not None and number in self._together:
                self._together[number].add(doc)
                if not follow:
                    continue
                self._part(doc, number)
                number = None
            follows = number is not None and any(selector.follow for selector in self._watches[number])
            asked = self._replica.is_here(doc) or number in self._loading
            if number is not None and asked and (follows or not follow):
                continue  # A document that only came by following another one gets a watch of its own below.
            if number is not None and number in self._loading:
                # The document is wanted with its links while it loads without them: the first answer is not awaited.
                del self._watches[number], self._loading[number]
                self._say(Unwatch(number))
                number = None
            if number is None:
                number = self._watch_of[doc] = self.new_number()
            elif self._replica.is_here(doc):
                self._narrower[number] = self._watches[number]
            self._watches[number] = self._loading[number] = (Selector(doc, follow or follows),)
            self.generation += 1
            self._say(Watch(number, self._watches[number]))

    def _watch_together(self, docs: Sequence[DocKey], ahead: Iterable[DocKey]) -> None:
        wanted = set(docs)
        for doc in wanted & self._watch_of.keys():
            if (held := self._together.get(self._watch_of[doc])) is not None:
                held.add(doc)  # The document may be on its way as one of `ahead`; now a reader waits for it.
        new = [doc for doc in dict.fromkeys([*docs, *ahead]) if doc not in self._watch_of]
        selectors = tuple([Selector(doc) for doc in new])
        if not selectors:
            return
        number = self.new_number()
        self._watch_of.update({selector.doc: number for selector in selectors})
        self._watches[number] = self._loading[number] = selectors
        self._together[number] = wanted.intersection(new)
        self.generation += 1
        self._say(Watch(number, selectors))

    def _part(self, doc: DocKey, number: int) -> None:
        """Take a document out of a watch of many. The engine is told when the watch has no document left."""
        del self._watch_of[doc]
        left = self._watches[number] = tuple([each for each in self._watches[number] if each.doc != doc])
        if not left:
            del self._watches[number], self._together[number]
            self._loading.pop(number, None)
            self._say(Unwatch(number))

    def unwatch(self, doc: DocKey) -> bool:
        """Stop watching a document, and drop it with those that came by following it.

        Return False if one of them has a pending commit, or if the document still loads in a watch of many.
        """
        number = self._watch_of.get(doc)
        if number is not None and number in self._together:
            if number in self._loading or not self._replica.let_go(doc):
                return False
            self._part(doc, number)
            return True
        if number is None:
            return self._replica.let_go(doc)  # if the document came by following, its changes are still told
        followed = [other for other, by in self._followed.items() if by == number and other not in self._watch_of]
        leaving = [doc, *followed]
        if any(self._replica.is_held(other) for other in leaving):
            return False
        for other in leaving:
            self._replica.let_go(other)
            self._followed.pop(other, None)
        del self._watch_of[doc], self._watches[number]
        if self._loading.pop(number, None) is not None:
            self.generation += 1
        self._say(Unwatch(number))  # if the message is lost, the next Open says the same
        return True

    def reopened(self, message: Opened) -> None:
        """Ask on a new connection for every document that the engine is not known to watch."""
        if not message.resumed:
            self._replica.gap()
            self._followed.clear()
            self._loading.update(self._watches)
        else:
            # fault+ watches.loads_forgotten: self._loading.clear()
            kept = set(message.following)
            self._replica.set_aside([s.doc for selectors in self._loading.values() for s in selectors])
            for doc in [doc for doc in self._followed if doc not in kept]:
                if doc in self._watch_of:
                    del self._followed[doc]  # the document has a watch of its own
                else:
                    self._leave(doc)
        for number, selectors in self._loading.items():
            self.generation += 1
            self._say(Watch(number, selectors))

    # ---- hearing -----------------------------------------------------------------------------------

    def arrived(self, message: Watched) -> bool:
        """Take in the documents of a watch. Return False if the watch is not wanted any more."""
        selectors = self._loading.pop(message.id, None)
        self._narrower.pop(message.id, None)
        if selectors is None:
            return False
        self.generation += 1
        if (together := self._together.get(message.id)) is not None:
            mine = {each.doc for each in self._watches[message.id]}
            together.update(mine)  # They can be read now: if they have to be loaded again, a reader waits for them.
            if len(mine) < len(message.documents):  # Some have a watch of their own by now.
                message = structs.replace(message, documents=tuple([s for s in message.documents if s.doc in mine]))
        asked = {selector.doc for selector in selectors}
        self._followed.update({state.doc: message.id for state in message.documents if state.doc not in asked})
        self._replica.arrive(message.documents, message.seq)
        if not self._loading:
            self._replica.evicted.forget()
        return True

    def followed(self, message: Sync) -> None:
        """Take in the effect of changed links: some documents came with them, others are no longer watched."""
        for state, number in zip(message.arrived, message.arrived_by, strict=False):
            self._followed[state.doc] = number
        for doc in message.left:
            self._leave(doc)

    def failed(self, number: int) -> tuple[DocKey, ...] | None:
        """End a load that the engine refused. Return the documents whose load failed, or None if it is no load."""
        selectors = self._loading.pop(number, None)
        if selectors is None:
            return None
        self.generation += 1
        docs = tuple(selector.doc for selector in selectors)
        wanted = self._together.pop(number, None)
        if wanted is not None:  # Too many at once: documents with a waiting reader are asked for one by one.
            del self._watches[number]
            for doc in docs:
                if self._watch_of.get(doc) == number:
                    del self._watch_of[doc]
            self.watch([doc for doc in docs if doc in wanted])
            return ()
        narrower = self._narrower.pop(number, None)
        # fault watches.narrow_watch_given_up: if False:
        if narrower is not None:
            self._watches[number] = narrower  # The watch could not be widened, and stays as it was.
            return docs
        self._watches.pop(number, None)
        for doc in docs:
            self._watch_of.pop(doc, None)
        return docs

    def _leave(self, doc: DocKey) -> None:
        """Drop a document that no link leads to and whose changes are not told; ask for it again if it is needed."""
        self._followed.pop(doc, None)
        # fault+ watches.left_document_stays: return
        if doc in self._watch_of:
            self._replica.set_aside([doc])  # its own watch is on the way
        elif not self._replica.let_go(doc):
            self._replica.set_aside([doc])
            self.watch([doc])  # a commit is still on top of the document
