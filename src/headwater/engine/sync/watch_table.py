"""The watch table: the peers that watch each document, by name or because links lead there.

Owns the index from documents to peers. A document stays watched for a peer as long as one of its watches needs it.
Follows links within the space; a cycle ends where it began (`reached`). Never sends anything but the news that links
are no longer followed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from headwater.data.address import DocKey, Link, check_id, check_scope
from headwater.data.value import MaybeValue, size_of
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.log.history import HistoricDocument
from headwater.engine.sync.peer import AnswerBudget, Peer
from headwater.errors import AccessError, LimitError
from headwater.protocol.messages import DocChange, Problem, Selector, State, Sync, Watch, state_of, whole_of


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
    """Return the documents that links lead to from the roots, nearest first, without the roots; each is read once."""
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


_NONE: Final[frozenset[int]] = frozenset()
LinksFrom = Callable[[DocKey], Iterable[DocKey]]


class KeptWatches(NamedTuple):
    """The watches of a session whose connection was lost, and until when they are kept."""

    peer: Peer
    until_us: int


class WatchTable:
    """The watches of all peers of one space."""

    __slots__ = ("_engine", "_limits", "_of_users", "watchers")

    def __init__(self, engine: Engine, limits: Limits) -> None:
        self._engine = engine
        self._limits = limits
        self._of_users: Counter[str] = Counter()  # watched documents of all sessions of each user
        self.watchers: dict[tuple[str, DocKey], dict[Peer, None]] = {}  # by branch and document

    def hand_over(self, former: Peer, peer: Peer, watching: tuple[int, ...] | None) -> None:
        """Let a new connection of a session take over the watches of the old one, as far as it still needs them."""
        for doc in former.watched:
            self.watchers[former.branch, doc].pop(former, None)
            self.watchers[former.branch, doc][peer] = None
        peer.inherit(former)
        if watching is not None:
            for id in peer.watches.keys() - set(watching):
                self.unwatch(peer, id)
        # These may never have been sent.
        asked = {selector.doc for selectors in peer.watches.values() for selector in selectors}
        # fault watching.lost_arrival_not_repeated: peer.unsure = set()
        peer.unsure = {doc for doc in peer.watched if doc not in asked}

    def catch_up(self, peer: Peer, seen: int) -> None:
        """Note as owed every write after `seen` to a watched document."""
        peer.sent_seq = peer.heard_seq = seen
        for doc in self._written_since(seen, peer):
            # fault watching.missed_changes_dropped: pass
            peer.merge_changes(doc)

    def _written_since(self, seen: int, peer: Peer) -> list[DocKey]:
        """The watched documents that were written after a seq: from the log, if that is the shorter way."""
        engine, branch = self._engine, peer.branch
        if (
            engine.last_seq - seen > min(len(peer.watched), self._limits.catch_up_commits)
            or seen < engine.kept_from - 1
        ):
            engine.prefetch(peer.watched, branch=branch)
            return [doc for doc in peer.watched if engine.read(doc, branch=branch).seq > seen]
        written: dict[DocKey, None] = {}
        since = seen
        while since < engine.last_seq:
            since += 1  # One commit at a time: each may be long.
            page = engine.changes(since=since - 1, branch=branch, limit=1)
            for logged in page.items:
                docs = [operation.doc for operation in logged.commit.operations]
                written.update(dict.fromkeys([doc for doc in docs if doc not in logged.dropped]))
        return [doc for doc in written if doc in peer.watched]

    def selected(self, peer: Peer, message: Watch) -> list[DocKey]:
        """The documents of a watch, those its links lead to included: one consistent cut, cycles and all."""
        limits = self._limits
        if len(message.selectors) > limits.watch_selectors:
            raise LimitError(f"a watch names at most {limits.watch_selectors} documents. Send several.")
        docs = {selector.doc: None for selector in message.selectors}
        for selector in message.selectors:
            check_scope(selector.doc.scope)
            check_id(selector.doc.id)
            # fault watching.access_not_checked: if False:
            if not self._engine.may_see(selector.doc, peer.principal, peer.session):
                raise AccessError(f"{selector.doc.scope}:{selector.doc.id} is not for {peer.principal!r}")
        roots = [selector.doc for selector in message.selectors if selector.follow]
        docs.update(dict.fromkeys(self._followed(peer, roots, lambda doc: self._links(peer, doc))))
        most = peer.most_watches
        new = len([doc for doc in docs if doc not in peer.watched])
        if len(peer.watched) + new > most:
            raise LimitError(f"a session watches at most {most} documents. Unwatch some first.")
        # fault watching.users_unbounded: if False:
        if peer.principal and self._of_users[peer.principal] + new > limits.user_watches:
            raise LimitError(f"the sessions of one user watch at most {limits.user_watches} documents. Unwatch some.")
        if message.id not in peer.watches and len(peer.watches) >= most:
            raise LimitError(f"a session has at most {most} watches. Unwatch some first.")
        return list(docs)

    def _followed(self, peer: Peer, roots: Iterable[DocKey], links_from: LinksFrom) -> list[DocKey]:
        found = reached(roots, links_from, self._limits)
        # fault watching.links_lead_anywhere: return found
        return [doc for doc in found if self._engine.may_see(doc, peer.principal, peer.session)]

    def _links(self, peer: Peer, doc: DocKey) -> tuple[DocKey, ...]:
        """Where links lead from a document now."""
        return links_of(self._engine.read(doc, branch=peer.branch).value)

    def _remember_links(self, peer: Peer, doc: DocKey) -> bool:
        """Look where links lead from a document that changed or is new. False: where they did before."""
        links = self._links(peer, doc)
        if peer.links.get(doc) == links:
            return False
        if len(links) <= self._limits.followed_links:
            peer.links[doc] = links
        else:
            peer.links.pop(doc, None)
        return True

    def read(self, peer: Peer, doc: DocKey, budget: AnswerBudget) -> HistoricDocument:
        """A document as it is now, if there is room for it. LimitError: there is none."""
        found = self._engine.read(doc, branch=peer.branch)
        budget.take(size_of(found.value))
        return found

    def states(self, peer: Peer, docs: Sequence[DocKey], budget: AnswerBudget) -> tuple[State, ...]:
        """Documents as they are now. LimitError: there is no room for all of them."""
        # fault watching.reads_main: found = self._engine.read_all(docs)
        found = self._engine.read_all(docs, branch=peer.branch)
        states: list[State] = []
        for doc, seq, value in found:
            budget.take(size_of(value))
            states.append(state_of(doc, seq, value))
        return tuple(states)

    def composed(self, peer: Peer, seq: int, turn: int | None, budget: AnswerBudget) -> Sync:
        """Make the Sync of all that a peer is owed. LimitError: it is too large, and the peer is owed it no more."""
        budget.begin()
        ways = peer.ways
        changes, merged = peer.take_changes()
        for doc in merged:
            found = self.read(peer, doc, budget)
            # fault watching.tombstone_lost: changes.append(whole_of(doc, found.seq, found.value or {}, ways.get(doc)))
            changes.append(whole_of(doc, found.seq, found.value, ways.get(doc)))
        return self.news(peer, seq, tuple(changes), turn, budget)

    def news(
        self, peer: Peer, seq: int, changes: tuple[DocChange, ...], turn: int | None, budget: AnswerBudget
    ) -> Sync:
        """Make the Sync of the changes up to a seq, with the documents that links lead to since."""
        chain = self._engine.chain_at(seq)
        if not (peer.following or peer.unsure):
            return Sync(seq, changes, (), (), (), turn, chain)
        # fault watching.new_links_not_followed: arrived, left = {}, []
        arrived, left = self.refollow(peer, {change.doc for change in changes})
        states = self.states(peer, [*arrived], budget)
        return Sync(seq, changes, states, tuple(arrived.values()), tuple(left), turn, chain)

    def begin(self, peer: Peer, message: Watch, docs: list[DocKey]) -> None:
        """The documents of a watch are watched from now on, in place of those of an earlier one with its number."""
        wanted = set(docs)
        for doc in [doc for doc in self._claimed(peer, message.id) if doc not in wanted]:
            self._drop_claim(peer, doc, message.id)
        peer.watches[message.id] = message.selectors
        self._follow_no_more(peer, message.id)
        follows = any(selector.follow for selector in message.selectors)
        if follows:
            peer.following[message.id] = True
        for doc in docs:
            self.add(peer, doc, message.id)
            if follows:
                self._remember_links(peer, doc)

    def add(self, peer: Peer, doc: DocKey, id: int) -> None:
        if doc not in peer.watched:
            self._of_users[peer.principal] += 1
        peer.watched.setdefault(doc, set()).add(id)
        self.watchers.setdefault((peer.branch, doc), {})[peer] = None

    def unwatch(self, peer: Peer, id: int) -> None:
        for doc in self._claimed(peer, id):
            self._drop_claim(peer, doc, id)
        peer.watches.pop(id, None)
        self._follow_no_more(peer, id)

    def _follow_no_more(self, peer: Peer, id: int) -> None:
        peer.following.pop(id, None)
        if not peer.following:
            peer.links.clear()  # The targets of links are not looked at any more, and would become stale.

    def _claimed(self, peer: Peer, id: int) -> list[DocKey]:
        """The documents that are watched because of one watch. Only where links were followed it takes a search."""
        named = dict.fromkeys([selector.doc for selector in peer.watches.get(id, ())])
        docs = peer.watched if id in peer.following else named
        return [doc for doc in docs if id in peer.watched.get(doc, ())]

    def _remove(self, peer: Peer, doc: DocKey) -> None:
        del peer.watched[doc]
        self._of_users[peer.principal] -= 1
        if not self._of_users[peer.principal]:
            del self._of_users[peer.principal]
        peer.links.pop(doc, None)
        peer.forget_document(doc)
        watchers = self.watchers[peer.branch, doc]
        del watchers[peer]
        if not watchers:
            del self.watchers[peer.branch, doc]

    def unwatch_all(self, peer: Peer) -> None:
        peer.watches.clear()
        peer.following.clear()
        peer.unsure.clear()
        for doc in list(peer.watched):
            self._remove(peer, doc)

    def refollow(self, peer: Peer, changed: set[DocKey]) -> tuple[dict[DocKey, int], list[DocKey]]:
        """Return the documents that links lead to since a change, by watch, and those that they left."""
        new: dict[DocKey, int] = {}
        left: list[DocKey] = []
        following = [id for id, still in peer.following.items() if still]
        # A remembered document is compared whichever peer watches it, so that the memory is never stale.
        moved = {
            doc
            for doc in changed
            if (doc in peer.links or not peer.watched.get(doc, _NONE).isdisjoint(following))
            and self._remember_links(peer, doc)
        }
        for id in following if moved else ():
            if not any(id in peer.watched.get(doc, ()) for doc in moved):
                continue
            selectors = peer.watches[id]
            wanted = {selector.doc for selector in selectors}
            try:
                roots = [selector.doc for selector in selectors if selector.follow]
                wanted.update(self._followed(peer, roots, lambda doc: self._remembered(peer, doc)))
                for doc in [doc for doc, ids in peer.watched.items() if id in ids and doc not in wanted]:
                    left += self._drop_claim(peer, doc, id)
                if len(peer.watched.keys() | wanted) > peer.most_watches:
                    raise LimitError(f"a session watches at most {peer.most_watches} documents")
            except LimitError as error:
                # It keeps its documents and is told once that no more will follow.
                peer.watches[id] = tuple(Selector(other.doc) for other in selectors)
                peer.following[id] = False
                peer.send(Problem("limit", f"links are no longer followed: {error}", False, id))
                continue
            for doc in sorted(wanted):
                if doc not in peer.watched:
                    new[doc] = id
                self.add(peer, doc, id)
                if doc not in peer.links:
                    self._remember_links(peer, doc)
        # Documents found by following links may have been in a frame that was lost.
        new |= {doc: min(peer.watched[doc]) for doc in peer.unsure if doc in peer.watched}
        peer.unsure.clear()
        # fault watching.left_not_told: return new, []
        return new, [doc for doc in left if doc not in peer.watched]

    def _remembered(self, peer: Peer, doc: DocKey) -> tuple[DocKey, ...]:
        links = peer.links.get(doc)
        return links if links is not None else self._links(peer, doc)

    def _drop_claim(self, peer: Peer, doc: DocKey, id: int) -> list[DocKey]:
        """One watch less for a document; the document itself if that was the last."""
        peer.watched[doc].discard(id)
        # fault watching.second_watch_dropped: if False:
        if peer.watched[doc]:
            return []
        self._remove(peer, doc)
        return [doc]
