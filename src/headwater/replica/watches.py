"""What a session watches: by name, or because links lead there; and what it is still waiting for.

Knows which documents are kept current and which are not: one that nobody tells changes of cannot be read before it
has arrived again (C3). Sends through the function it is given; what cannot be sent now is said with the next Open.
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
        self.generation = 0  # rises with every load begun and every load ended
        self._replica = replica
        self._say = say
        self._watch_of: dict[DocKey, int] = {}  # asked for by name
        self._watches: dict[int, tuple[Selector, ...]] = {}
        self._followed: dict[DocKey, int] = {}  # came with the watch of another document
        self._loading: dict[int, tuple[Selector, ...]] = {}
        self._narrower: dict[int, tuple[Selector, ...]] = {}  # watches that are being widened, as they were
        self._together: dict[int, set[DocKey]] = {}  # watches of many documents, with those that somebody waits for
        self._next = 1

    def new_number(self) -> int:
        """A number for a watch or a query, never used before in this session."""
        self._next += 1
        return self._next - 1

    def numbers(self) -> tuple[int, ...]:
        return tuple(self._watches)

    def is_loading(self) -> bool:
        return bool(self._loading)

    # ---- asking ------------------------------------------------------------------------------------

    def watch(self, docs: Iterable[DocKey], *, follow: bool = False, ahead: Iterable[DocKey] | None = None) -> None:
        """Ask for documents, and for every change of them. Those already asked for are not asked for again.

        `ahead`: they are asked for as one, with these, which nobody waits for and which may fail to come.
        """
        if ahead is not None:
            self._watch_together([*docs], ahead)
            docs = ()
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
                continue  # what only came by following another document is claimed by a watch of its own
            if number is not None and number in self._loading:
                # It is asked for with its links while it loads without them: the first answer is not waited for.
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
                held.add(doc)  # It may be on its way ahead of whoever waits for it now.
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
        """A document is no more part of a watch of many. The engine is told when none is left of them."""
        del self._watch_of[doc]
        left = self._watches[number] = tuple([each for each in self._watches[number] if each.doc != doc])
        if not left:
            del self._watches[number], self._together[number]
            self._loading.pop(number, None)
            self._say(Unwatch(number))

    def unwatch(self, doc: DocKey) -> bool:
        """Let a document go, with what came by following it. False: a pending commit is on top of one of them."""
        number = self._watch_of.get(doc)
        if number is not None and number in self._together:
            if number in self._loading or not self._replica.let_go(doc):
                return False
            self._part(doc, number)
            return True
        if number is None:
            return self._replica.let_go(doc)  # if it came by following, its changes are still heard
        followed = [other for other, by in self._followed.items() if by == number and other not in self._watch_of]
        leaving = [doc, *followed]
        if any(True for other in leaving for _ in self._replica.pending.on(other)):
            return False
        for other in leaving:
            self._replica.let_go(other)
            self._followed.pop(other, None)
        del self._watch_of[doc], self._watches[number]
        if self._loading.pop(number, None) is not None:
            self.generation += 1
        self._say(Unwatch(number))  # if it is lost, the next Open says the same
        return True

    def reopened(self, message: Opened) -> None:
        """The session has a connection again: ask for whatever is not known to be watched."""
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
                    del self._followed[doc]  # it has a watch of its own
                else:
                    self._leave(doc)
        for number, selectors in self._loading.items():
            self.generation += 1
            self._say(Watch(number, selectors))

    # ---- hearing -----------------------------------------------------------------------------------

    def arrived(self, message: Watched) -> bool:
        """Documents that were asked for. False: they are not wanted any more."""
        selectors = self._loading.pop(message.id, None)
        self._narrower.pop(message.id, None)
        if selectors is None:
            return False
        self.generation += 1
        if (together := self._together.get(message.id)) is not None:
            mine = {each.doc for each in self._watches[message.id]}
            together.update(mine)  # They are here, and may be read: if they have to come again, they are waited for.
            if len(mine) < len(message.documents):  # Some have a watch of their own by now.
                message = structs.replace(message, documents=tuple([s for s in message.documents if s.doc in mine]))
        asked = {selector.doc for selector in selectors}
        self._followed.update({state.doc: message.id for state in message.documents if state.doc not in asked})
        self._replica.arrive(message.documents, message.seq)
        if not self._loading:
            self._replica.aside.forget()
        return True

    def followed(self, message: Sync) -> None:
        """Links lead elsewhere since: some documents came with them, others are no longer told."""
        for state, number in zip(message.arrived, message.arrived_by, strict=False):
            self._followed[state.doc] = number
        for doc in message.left:
            self._leave(doc)

    def failed(self, number: int) -> tuple[DocKey, ...] | None:
        """A load cannot be answered. The documents that nobody waits for any more, or None if it is no load."""
        selectors = self._loading.pop(number, None)
        if selectors is None:
            return None
        self.generation += 1
        docs = tuple(selector.doc for selector in selectors)
        wanted = self._together.pop(number, None)
        if wanted is not None:  # It was too much at once: those that somebody waits for are asked for one by one.
            del self._watches[number]
            for doc in docs:
                if self._watch_of.get(doc) == number:
                    del self._watch_of[doc]
            self.watch([doc for doc in docs if doc in wanted])
            return ()
        narrower = self._narrower.pop(number, None)
        # fault watches.narrow_watch_given_up: if False:
        if narrower is not None:
            self._watches[number] = narrower  # It could not be widened: what was watched is watched on.
            return docs
        self._watches.pop(number, None)
        for doc in docs:
            self._watch_of.pop(doc, None)
        return docs

    def _leave(self, doc: DocKey) -> None:
        """No link leads there any more, and its changes are not told: let it go, or ask for it if it is needed."""
        self._followed.pop(doc, None)
        # fault+ watches.left_document_stays: return
        if doc in self._watch_of:
            self._replica.set_aside([doc])  # its own watch is on the way
        elif not self._replica.let_go(doc):
            self._replica.set_aside([doc])
            self.watch([doc])  # a commit is still on top of it
