"""The program of random histories of events: one class whose handler does what a plan says, and the plans.

A plan has a tag of its own, which its handler writes wherever it leaves something: so everything that is in the log in
the end is known by the event that it came from. Plans are drawn before a history begins and never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any, Final

from headwater import Cell, Input, Piece, Refused, cell, computed, each, effect, fold, given, handler
from headwater.data.address import Link

PLACES: Final = (("a", "one"), ("a", "two"), ("b", "far"))
"""Where the pieces are: a space, and a name in it."""

PLANS: dict[str, Plan] = {}
"""Those of the history that is played."""


@dataclass(kw_only=True, eq=False)
class Plan:
    """What the handler of one event does."""

    tag: str
    does: tuple[str, ...] = ()  # in this order
    unless: str = ""  # it refuses if this event was handled
    ends: str = ""  # "refuse" or "raise": how it ends, in the end
    posts: list[Post] = field(default_factory=list)

    def with_children(self) -> list[Plan]:
        return [self, *(each for post in self.posts for each in post.plan.with_children())]


@dataclass(kw_only=True, eq=False)
class Post:
    """A follow-up."""

    plan: Plan
    place: tuple[str, str]
    after_ms: int = 0
    id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Mix:
    """How likely what is, out of a hundred."""

    crowded: int = 30  # sent to the first of the places
    append: int = 35
    push: int = 100
    bump: int = 20
    sum: int = 40
    gated: int = 10
    row: int = 0
    rows: int = 0
    folded: int = 0
    nothing: int = 10
    launch: int = 10
    refuse: int = 6
    raises: int = 4
    unless: int = 10
    posts: int = 40
    later: int = 20
    named: int = 10
    redelivered: int = 20
    durable: int = 10
    posted: int = 15
    withdrawn: int = 5
    hasty: int = 8
    gambled: int = 0
    kept: int = 25  # of a hundred histories: those in which machines keep what is sent


FRESHNESS: Final = Mix(
    crowded=60,
    append=35,
    sum=45,
    posts=20,
    launch=3,
    unless=15,
    gambled=20,
    redelivered=5,
    durable=3,
    nothing=5,
    row=25,
    rows=15,
    folded=15,
)
"""Much is read of what is computed, while others write what it is computed from."""
LINEAGE: Final = Mix(crowded=40, append=50, sum=10, posts=40, launch=20, later=10, redelivered=10, nothing=15, named=5)
"""Much is posted and launched, by handlers that lose."""
RECEIPTS: Final = Mix(redelivered=50, durable=25, nothing=25, posted=25, posts=25, named=15, sum=20, withdrawn=8)
"""Much is sent more than once."""


def drawn(draws: Random, mix: Mix, tag: str, before: list[str], depth: int = 0) -> Plan:
    """A plan, with those of its follow-ups."""

    def happens(chance: int) -> bool:
        return draws.randrange(100) < chance

    if happens(mix.nothing):
        plan = Plan(tag=tag, does=("nothing",))
    else:
        kinds = ("push", "append", "bump", "row", "sum", "gated", "rows", "folded", "launch")
        does = [kind for kind in kinds if happens(getattr(mix, kind))]
        draws.shuffle(does)
        plan = Plan(tag=tag, does=tuple(sorted(does, key=_reads_last)))
    if happens(mix.refuse):
        plan.ends = "refuse"
    elif happens(mix.raises):
        plan.ends = "raise"
    elif before and happens(mix.unless):
        plan.unless = draws.choice(before)
    while depth < 2 and len(plan.posts) < 2 and happens(mix.posts):
        child = drawn(draws, mix, f"{tag}.{len(plan.posts)}", before, depth + 1)
        after_ms = draws.choice((1, 50, 2_000)) if happens(mix.later) else 0
        id = f"id of {child.tag}" if happens(mix.named) else None
        plan.posts.append(Post(plan=child, place=draws.choice(PLACES), after_ms=after_ms, id=id))
    named = [post for each in PLANS.values() for post in each.posts if post.id is not None]
    if named and happens(3 * mix.named):
        plan.posts.append(draws.choice(named))  # The same event, posted by somebody else.
    return plan


def _reads_last(kind: str) -> bool:
    """What is computed is read before anything is written that it is computed from."""
    return kind in ("append", "bump", "row")


def link_to(place: tuple[str, str]) -> Any:
    space, name = place
    return Link(space, "space", f"{name}:@")


class Leaf(Piece, name="events.Leaf"):
    tag: Cell[str] = cell(default="")

    @effect
    def stands(self) -> None:
        """A node that is there as long as the piece runs."""
        self.tag.get()


class Row(Piece, name="events.Row"):
    n: Input[int] = given()

    @computed
    def doubled(self) -> int:
        return self.n.get() * 2


class Desk(Piece, name="events.Desk"):
    log: Cell[tuple[str, ...]] = cell(default=())
    marks: Cell[tuple[str, ...]] = cell(default=())
    n: Cell[int] = cell(default=0)
    mine: Cell[tuple[str, ...]] = cell(default=(), scope="user")
    seen: Cell[Mapping[str, int]] = cell(default={})
    table: Cell[Mapping[str, int]] = cell(default={})

    @each(table)
    def rows(self, n: Cell[int]) -> Row:
        return Row(n=n)

    total = fold(table, start=0, add=lambda whole, n: whole + n, remove=lambda whole, n: whole - n)

    @computed
    def size(self) -> int:
        return len(self.log.get())

    @computed
    def twice(self) -> int:
        return self.size.get() * 2 + self.n.get()

    @computed(debounce_ms=20)
    def gated(self) -> int:
        return self.twice.get() + 1

    @handler
    def do(self, tag: str) -> str:
        plan = PLANS[tag]
        if plan.unless and plan.unless in self.marks.get():
            raise Refused(plan.unless)
        if is_private(tag):
            self.mine.push(tag)
        for kind in plan.does:
            match kind:
                case "push":
                    self.marks.push(tag)
                case "append":
                    self.log.set((*self.log.get(), tag))
                case "bump":
                    self.n.increment()
                case "sum":
                    self.seen.key(tag).set(self.twice.get())
                case "gated":
                    self.seen.key(f"{tag} gated").set(self.gated.get())
                case "row":
                    self.table.key(tag[:2]).set(len(tag) + self.table.key(tag[:2]).get(0))
                case "rows":
                    self.seen.key(f"{tag} rows").set(sum(row.doubled.get() for row in self.rows.get().values()))
                case "folded":
                    self.seen.key(f"{tag} folded").set(self.total.get())
                case "launch":
                    self.ctx.launch(Leaf()).tag.set(tag)
                case _:
                    assert kind == "nothing"
        for post in plan.posts:
            desk: Desk = self.ctx.follow(link_to(post.place))
            to = desk.do
            if post.id is not None:
                to = to.options(id=post.id)
            if post.after_ms:
                to.post_at(timedelta(milliseconds=post.after_ms), post.plan.tag)
            else:
                to.post(post.plan.tag)
        if plan.ends == "refuse":
            raise Refused("as it was planned")
        if plan.ends == "raise":
            raise ValueError("as it was planned")
        return tag


def is_private(tag: str) -> bool:
    """Whether what came of it is for its sender alone: some of them write something that is theirs."""
    return sum(map(ord, tag)) % 3 == 0


def expected(name: str, log: tuple[str, ...], n: int, table: Mapping[str, int]) -> int:
    """What a computed is, computed again."""
    twice = len(log) * 2 + n
    match name.partition(" ")[2]:
        case "gated":
            return twice + 1
        case "rows":
            return sum(table.values()) * 2
        case "folded":
            return sum(table.values())
        case _:
            return twice
