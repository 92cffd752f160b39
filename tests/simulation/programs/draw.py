"""Draws a program from a seed: piece classes, pieces and steps.

`Features` says what may be drawn. A feature with a known defect is off, with the reason beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.simulation.programs.description import (
    ANN,
    WINDOWS,
    By,
    Member,
    Open,
    Piece,
    PieceClass,
    Program,
    Pull,
    Remake,
    Rest,
    Send,
    Step,
    Stop,
    Transact,
    Unwatch,
    Watch,
    Write,
)
from tests.simulation.programs.expressions import (
    CELL_KINDS,
    KEYS,
    Source,
    condition,
    declared,
    expression,
    write,
)

__all__ = [
    "FIRST_ID",
    "READABLE",
    "ClassDraw",
    "Features",
    "Steps",
    "draw_classes",
    "draw_pieces",
    "draw_program",
    "left_out_of_whole",
]

READABLE: Final = ("number", "pair", "table")
"""Kinds of computeds."""
LOG: Final = "self.log.push(eid)"
LINK: Final = "l"
"""The name of the cell with a link."""
OWN: Final = "own"
"""How the name of the cell of a child begins."""
POSTED: Final = "h1"
"""The handler of children to which handlers of their parents post events."""
FIRST_ID: Final = 100
"""The ids of actions that are steps are greater, and less than 1,000."""
TOPIC: Final = "t"
NUMBERS: Final = ("int", "number")
SCOPES: Final = ("space", "user", "session")
SCOPED: Final = 0.3
"""How many classes have cells of users or sessions."""


@dataclass(frozen=True, slots=True)
class Features:
    """What may be drawn."""

    shapes: bool = True  # each, child and fold
    inputs: bool = True  # pieces that are given handles of others
    side_writes: bool = True  # declared writes, and materializers
    spaces: float = 0.2  # how many pieces are in a second space
    remakes: bool = True  # pieces that are deleted and made again
    stops: bool = True
    written_while_stopped: bool = True
    plain_writes: bool = True  # writes outside of handlers and transactions
    visitors: bool = True  # processes that write without opening a piece
    kills: bool = True
    crashing_users: bool = True  # runtimes that are killed, where a space is shared
    equal_writes: bool = True  # writes that may change nothing
    logged: bool | None = None  # whether each handler adds its id to a cell; None: in every second program
    steps: int = 30
    links: bool = True  # cells of links, which computeds and handlers follow
    # The model of one runtime has all of these, that of a row of processes and those of several runtimes some.
    child_handlers: bool = False  # handlers of children, and writes to their cells by others
    follow_ups: float = 0.0  # how many handlers post events to others, of their piece or one that they are given
    reactions: bool = False  # topics, and reactions to their records
    scopes: tuple[str, ...] = ()  # of cells and computeds of one user or session each
    windows: bool = False  # steps of other windows of the same runtime


ALONE: Final = Features(child_handlers=True, follow_ups=0.25, reactions=True, scopes=SCOPES[1:], windows=True)
"""The features of programs in one runtime."""


def draw_program(seed: int, features: Features | None = None) -> Program:
    """The program of a seed."""
    features = features or ALONE
    draw = Random(f"program {seed}")
    classes = draw_classes(draw, features)
    pieces = draw_pieces(draw, classes, features)
    return Program(seed, classes, pieces, Steps(draw, classes, pieces, features).drawn())


# ---- classes -------------------------------------------------------------------------------------------------


def draw_classes(draw: Random, features: Features) -> tuple[PieceClass, ...]:
    """One to three classes of pieces that are opened by name, after those of their children."""
    children = tuple(
        _draw_child(draw, f"K{number}", features) for number in range(draw.randrange(3) if features.shapes else 0)
    )
    is_logged = draw.random() < 0.5 if features.logged is None else features.logged
    classes = []
    for number in range(draw.choice((1, 1, 2, 3))):
        takes_inputs = number > 0 and features.inputs
        fresh = not features.equal_writes
        name = "ABC"[number]
        drawn = ClassDraw(
            draw,
            name,
            children,
            takes_inputs=takes_inputs,
            is_logged=is_logged,
            is_fresh=fresh,
            side_writes=0.15 if features.side_writes else 0.0,
            scopes=features.scopes,
            has_windows=features.windows,
            follow_ups=features.follow_ups,
            links=0.3 if features.links else 0.0,
            reactions=0.15 if features.reactions else 0.0,
        )
        classes.append(drawn.drawn())
    return (*children, *classes)


def _draw_child(draw: Random, name: str, features: Features) -> PieceClass:
    """A class of children: an element that it is given, a cell of its own, and computeds over both."""
    is_record = draw.random() < 0.5
    annotation, kind = ("Rec", "rec") if is_record else ("int", "int")
    members = [Member("element", "given " + kind, (f"element: Cell[{annotation}] = given()",))]
    sources = [Source("self.element", kind, frozenset({"element"}))]
    kept = f"{OWN}{name}"  # Classes that a `child` may have share the cells of the same name.
    if features.child_handlers or draw.random() < 0.7:
        own = draw.choice(("int", "items", "text"))
        members.append(Member(kept, own, (declared(draw, kept, own),)))
        sources.append(Source(f"self.{kept}", own, frozenset({kept})))
    for number in range(draw.randint(1, 2)):
        text, uses = expression(draw, sources)
        members.append(_computed(f"c{number}", "number", text, uses))
        sources.append(Source(f"self.c{number}", "number", frozenset({f"c{number}"})))
    if features.child_handlers:
        # A child may leave before an event that a handler posted to it is handled. Whether its element and computeds
        # are still there then is not decided by the order of events: that event uses the own cell only. It may also
        # be refused when an attempt begins anew: of an event that had to wait for that cell, or that is to fail.
        owned = [each for each in sources if each.handle.startswith(f"self.{OWN}")]
        members = [*ClassDraw.on(draw, name, members, sources).with_handler("h0").members]
        members = [*ClassDraw.on(draw, name, members, owned).with_handler(POSTED, kept).members]
    return PieceClass(name, tuple(members))


def _computed(name: str, kind: str, text: str, uses: frozenset[str], decorator: str = "@computed") -> Member:
    annotation = {"number": "int", "pair": "tuple[int, int]", "table": "Mapping[str, int]"}[kind]
    return Member(name, kind, (decorator, f"def {name}(self) -> {annotation}:", f"    return {text}"), uses)


class ClassDraw:
    """Draws one class, member after member: what is declared may be read by what follows."""

    def __init__(
        self,
        draw: Random,
        name: str,
        children: tuple[PieceClass, ...],
        *,
        takes_inputs: bool,
        is_logged: bool,
        is_fresh: bool = False,
        side_writes: float = 0.0,
        scopes: tuple[str, ...] = (),
        has_windows: bool = False,
        follow_ups: float = 0.0,
        links: float = 0.0,
        reactions: float = 0.0,
        members: Sequence[Member] = (),
        sources: Sequence[Source] = (),
        scoped: Sequence[tuple[str, Source]] = (),
    ) -> None:
        self._draw = draw
        self._name = name
        self._children = children
        self._takes_inputs = takes_inputs
        self._is_logged = is_logged  # handlers add their ids to a cell
        self._is_fresh = is_fresh  # every write changes something
        self._side_writes = side_writes
        self._scopes = scopes
        self._seen = 'f"{self.ctx.name}@{self.ctx.session}"' if has_windows else "self.ctx.name"
        self._follow_ups = follow_ups
        self._links = links
        self._reactions = reactions
        self._targets: list[Source] = []  # sources before the link, to which it may lead
        self._members = list(members)
        self._sources = list(sources)
        self._scoped = list(scoped)  # sources of one user or session each, with their scope

    def drawn(self) -> PieceClass:
        draw = self._draw
        if self._is_logged:
            self._members.append(Member("log", "log", ("log: Cell[tuple[int, ...]] = cell(default=())",)))
        if self._takes_inputs:
            for number in range(draw.randint(1, 2)):
                self._add(Member(f"i{number}", "given", (f"i{number}: Input[int] = given()",)), "number")
            if self._follow_ups and draw.random() < 0.5:
                self._members.append(Member("o", "callback", ("o: Handler[[int, int, str], int] = given()",)))
        for number in range(draw.randint(1, 5)):
            kind = draw.choice(tuple(CELL_KINDS))
            self._add(Member(f"x{number}", kind, (declared(draw, f"x{number}", kind),)), kind)
        link_at = draw.randrange(3) if self._links and draw.random() < self._links else None
        if self._scopes and draw.random() < SCOPED:
            for number in range(5, 5 + draw.randint(1, 2)):
                self._draw_scoped_cell(f"x{number}")
        for number in range(draw.randint(1, 6)):
            if number == link_at:
                self._draw_link()
            self._draw_node(number)
            if draw.random() < self._side_writes:
                self._draw_side_write(number)
        for number in range(draw.randint(0, 2)):
            self._draw_effect(f"e{number}")
        if draw.random() < 0.5:
            self._draw_whole()
        if self._reactions and draw.random() < self._reactions:
            self._draw_reaction()
        for number in range(draw.randint(1, 4)):
            self._draw_handler(f"h{number}")
        return PieceClass(self._name, tuple(self._members))

    @classmethod
    def on(
        cls,
        draw: Random,
        name: str,
        members: list[Member],
        sources: list[Source],
        features: Features | None = None,
        scoped: Sequence[tuple[str, Source]] = (),
    ) -> ClassDraw:
        """Go on with a class that has these members, and sources of one user or session each."""
        features = features or Features()
        return cls(
            draw,
            name,
            (),
            takes_inputs=False,
            is_logged=any(each.name == "log" for each in members),
            scopes=features.scopes,
            has_windows=features.windows,
            follow_ups=features.follow_ups,
            members=members,
            sources=sources,
            scoped=scoped,
        )

    def with_handler(self, name: str, first: str = "") -> PieceClass:
        """The class so far, and one handler. One that reads a cell `first` does so before its note, and never fails."""
        self._draw_handler(name, first)
        return PieceClass(self._name, tuple(self._members))

    def member_like(self, member: Member) -> Member:
        """Another member of the same name and kind: a computed, an effect or a handler."""
        if member.kind == "handler":
            self._draw_handler(member.name)
        elif member.kind == "effect" and member.name == "whole":
            return member
        elif member.kind == "effect":
            self._draw_effect(member.name)
        elif member.scope != "space":
            self._draw_scoped_computed(member.name)
        else:
            self._draw_computed(member.name, member.kind)
        made = self._members[-1]
        return made if made.kind == member.kind else member

    def _add(self, member: Member, kind: str) -> None:
        self._members.append(member)
        self._sources.append(Source(f"self.{member.name}", kind, frozenset({member.name})))

    def _draw_link(self) -> None:
        """A cell with a link to a number that was declared before: a link that computeds after it follow."""
        self._targets = [each for each in self._sources if each.kind in NUMBERS]
        keyed = [each for each in self._sources if each.kind == "ints"]
        self._targets += [replace(each, handle=f'{each.handle}.key("{self._draw.choice(KEYS)}")') for each in keyed]
        if self._targets:
            self._add(Member(LINK, "link", (f"{LINK}: Cell[Link[Input[int]] | None] = cell(default=None)",)), "link")

    def _draw_scoped_cell(self, name: str) -> None:
        draw = self._draw
        kind, scope = draw.choice(tuple(CELL_KINDS)), draw.choice(self._scopes)
        self._members.append(Member(name, kind, (declared(draw, name, kind, scope),), scope=scope))
        self._scoped.append((scope, Source(f"self.{name}", kind, frozenset({name}))))

    def _draw_scoped_computed(self, name: str) -> None:
        """A computed of one user or session each, which reads its own scope and wider ones."""
        draw = self._draw
        scope = draw.choice(self._scopes)
        near = [source for of, source in self._scoped if SCOPES.index(of) <= SCOPES.index(scope)]
        text, uses = expression(draw, [*near, *near, *self._sources])
        member = _computed(name, "number", text, uses, f'@computed(scope="{scope}")')
        self._members.append(replace(member, scope=scope))
        self._scoped.append((scope, Source(f"self.{name}", "number", frozenset({name}))))

    def _sources_of_windows(self) -> list[Source]:
        """The sources of code that runs for one window: effects and handlers."""
        return [*self._sources, *(source for _, source in self._scoped)]

    def _draw_node(self, number: int) -> None:
        draw = self._draw
        if self._scoped and draw.random() < 0.3:
            self._draw_scoped_computed(f"c{number}")
            return
        if draw.random() < 0.3 and self._draw_shape(number):
            return
        self._draw_computed(f"c{number}", draw.choice(("number", "number", "number", "pair", "table")))

    def _draw_computed(self, name: str, kind: str) -> None:
        draw = self._draw
        text, uses = expression(draw, self._sources)
        if kind == "pair":
            more, others = expression(draw, self._sources, 1)
            text, uses = f"({text}, {more})", uses | others
        if kind == "table":
            tables = [each for each in self._sources if each.kind == "ints"]
            if not tables:
                kind = "number"
            else:
                table = draw.choice(tables)
                test, others = condition(draw, self._sources)
                text = f"{{k: n + 1 for k, n in {table.handle}.get().items()}} if {test} else {{}}"
                uses = table.uses | others
        self._add(_computed(name, kind, text, uses), kind)

    def _draw_shape(self, number: int) -> bool:
        """Draw an `each`, a `child` or a fold, if there is a cell for it and a class of children."""
        draw = self._draw
        if draw.random() < 0.25 and self._draw_child_member(number):
            return True
        cells = [each for each in self._members if each.kind in ("ints", "recs") and each.scope == "space"]
        if not cells:
            return False
        cell = draw.choice(cells)
        element = "rec" if cell.kind == "recs" else "int"
        classes = [each for each in self._children if each.members[0].kind == f"given {element}"]
        annotation = "Rec" if element == "rec" else "int"
        match draw.randrange(3):
            case 0 if classes:
                self._draw_children(number, cell, draw.choice(classes), annotation)
            case 1:
                self._draw_fold(number, cell)
            case _:
                sources = [Source("element", element, frozenset()), *self._sources]
                text, uses = expression(draw, sources)
                source = (
                    f"@each({cell.name})",
                    f"def v{number}(self, element: Cell[{annotation}]) -> int:",
                    f"    return {text}",
                )
                self._add(Member(f"v{number}", "table", source, uses | {cell.name}), "table")
        return True

    def _draw_child_member(self, number: int) -> bool:
        """A `child` of one of two classes, and a computed over it."""
        draw = self._draw
        cells = [each for each in self._members if each.kind in ("int", "rec") and each.scope == "space"]
        cells = [each for each in cells if any(of.members[0].kind == f"given {each.kind}" for of in self._children)]
        if not cells:
            return False
        cell = draw.choice(cells)
        classes = [each for each in self._children if each.members[0].kind == f"given {cell.kind}"]
        one, two = draw.choice(classes), draw.choice(classes)
        test, uses = condition(draw, self._sources)
        annotation = one.name if one == two else f"{one.name} | {two.name}"
        source = (
            "@child",
            f"def k{number}(self) -> {annotation}:",
            f"    return ({one.name} if {test} else {two.name})(element=self.{cell.name})",
        )
        classes_used = {one.name, two.name}
        self._members.append(Member(f"k{number}", "children", source, uses | {cell.name} | classes_used))
        text = f"self.k{number}.get().c0.get()"
        self._add(_computed(f"c{number}", "number", text, frozenset({f"k{number}"})), "number")
        return True

    def _draw_children(self, number: int, cell: Member, of: PieceClass, annotation: str) -> None:
        """An `each` of children, and a computed over one of their computeds."""
        source = (
            f"@each({cell.name})",
            f"def d{number}(self, element: Cell[{annotation}]) -> {of.name}:",
            f"    return {of.name}(element=element)",
        )
        self._members.append(Member(f"d{number}", "children", source, frozenset({cell.name, of.name})))
        read = self._draw.choice(of.of_kind("number")).name
        text = f"sum(each.{read}.get() for each in self.d{number}.get().values())"
        self._add(_computed(f"c{number}", "number", text, frozenset({f"d{number}", f"{of.name}.{read}"})), "number")

    def _draw_side_write(self, number: int) -> None:
        """A cell that a computed or a materializer writes beside its value.

        It is not read by others, who may see it before its writer ran. That of a materializer is compared at rests.
        """
        draw = self._draw
        is_computed = draw.random() < 0.5
        kind = "beside" if is_computed else "side"
        cell = Member(f"y{number}", kind, (f"y{number}: Cell[int] = cell(default=0)",))
        written, uses = expression(draw, self._sources)
        value, others = expression(draw, self._sources, 1)
        if is_computed:
            decorator = f"@computed(writes=(y{number},))"
        else:
            decorator = f"@materializer(envelope=(y{number},))"
        lines = (f"def w{number}(self) -> int:", f"    self.y{number}.set({written})", f"    return {value}")
        self._members.append(cell)
        self._add(Member(f"w{number}", "number", (decorator, *lines), uses | others | {cell.name}), "number")

    def _draw_fold(self, number: int, cell: Member) -> None:
        value = "x.n" if cell.kind == "recs" else "x"
        functions = f"start=0, add=lambda t, x: t + {value}, remove=lambda t, x: t - {value}"
        if cell.kind == "recs" and self._draw.random() < 0.5:
            text, kind = f"f{number} = fold({cell.name}, by=lambda x: x.t, {functions})", "table"
        else:
            text, kind = f"f{number} = fold({cell.name}, {functions})", "number"
        self._add(Member(f"f{number}", kind, (text,), frozenset({cell.name})), kind)

    def _draw_effect(self, name: str) -> None:
        """An effect that shows up to three values."""
        parts = [expression(self._draw, self._sources_of_windows(), 1) for _ in range(self._draw.randint(1, 3))]
        values = ", ".join(text for text, _ in parts)
        shown = f'    SHOW({self._seen}, "{name}", ({values},))'
        source = ("@effect", f"def {name}(self) -> None:", shown)
        self._members.append(Member(name, "effect", source, frozenset().union(*(uses for _, uses in parts))))

    def _draw_whole(self) -> None:
        """An effect that shows all cells and inputs, and computeds that have to fit them."""
        below = left_out_of_whole(self._members)
        names = [each.handle.removeprefix("self.") for each in self._sources_of_windows() if not each.uses & below]
        cells = [name for name in names if name[0] in "ix"]
        derived = [name for name in names if name[0] not in "ix"]
        derived = sorted(self._draw.sample(derived, self._draw.randint(1, len(derived)))) if derived else []
        pairs = ", ".join(f'("{name}", self.{name}.get())' for name in (*derived, *cells))
        source = ("@effect", "def whole(self) -> None:", f'    SHOW({self._seen}, "whole", ({pairs},))')
        self._members.append(Member("whole", "effect", source, frozenset((*derived, *cells))))

    def _draw_handler(self, name: str, first: str = "") -> None:
        """A handler that reads, may refuse or fail, writes, and answers an int."""
        draw = self._draw
        sources = self._sources_of_windows()
        text, uses = expression(draw, sources)
        lines = ["NOTE(self.ctx.name, eid)", f"got = {text}"]
        cells = [each for each in sources if each.kind in CELL_KINDS and not each.handle.startswith("self.i")]
        for _ in range(draw.randint(0, 3)):
            cell = draw.choice(cells)
            n = draw.choice(("n", "n", "got", "got % 5"))
            lines.append(write(draw, cell, n, "w", "eid" if self._is_fresh else None))
            uses |= cell.uses
        if self._targets and draw.random() < 0.5:
            target = draw.choice(self._targets)
            lines.append(f"self.{LINK}.set({draw.choice((f'link({target.handle})', 'None'))})")
            uses |= {LINK} | target.uses
        if self._follow_ups and draw.random() < self._follow_ups:
            uses |= self._draw_posts(lines)
        if any(each.name == TOPIC for each in self._members) and draw.random() < 0.6:
            at = _place(draw, lines)
            lines.insert(at, f"self.{TOPIC}.emit(Rec(n={_follow_up_id(8)}, t=w))")
            uses |= {TOPIC}
        if any(each.of_kind("handler") for each in self._children) and draw.random() < 0.4:
            uses |= self._draw_use_of_child(lines)
        if draw.random() < 0.4:
            test, others = condition(draw, sources)
            uses |= others
            error = 'Refused("no")' if draw.random() < 0.85 or first else 'ValueError("wrong")'
            at = _place(draw, lines)
            lines[at:at] = [f"if {test}:", f"    raise {error}"]
        if self._is_logged:
            lines.append(LOG)
            uses |= {"log"}
        answer = "got"
        if draw.random() < 0.3:
            cell = draw.choice(cells)
            answer, more = expression(draw, [cell], 0)
            uses |= more
        lines.append(f"return {answer}")
        if first:
            lines.insert(0, f"self.{first}.get()")
            uses |= {first}
        head = f"def {name}(self, eid: int, n: int, w: str) -> int:"
        source = ("@handler", head, *("    " + line for line in lines))
        self._members.append(Member(name, "handler", source, uses))

    def _draw_reaction(self) -> None:
        """A topic, a reaction that fails at first for some of its records, and the handler that follows it.

        A record has the id of the event for that handler, and the key of the event that emitted it.
        """
        draw = self._draw
        text, uses = expression(draw, self._sources)
        lines = ["@handler", "def g(self, rec: Rec) -> None:", "    NOTE(self.ctx.name, rec.n)", f"    got = {text}"]
        cells = [each for each in self._sources if each.kind in CELL_KINDS and not each.handle.startswith("self.i")]
        for _ in range(draw.randint(1, 2)):
            cell = draw.choice(cells)
            lines.append("    " + write(draw, cell, draw.choice(("rec.n % 5", "got")), "rec.t"))
            uses |= cell.uses
        if self._is_logged:
            lines.append("    self.log.push(rec.n)")
            uses |= {"log"}
        options = f'on={TOPIC}, then=g, backoff=Backoff.fixed(base_ms=1), on_exhausted="skip"'
        fails = draw.choice(("False", "rec.n // 1000 % 3 == 0 and delivery.attempt == 0"))
        refuses = draw.choice(("False", "False", 'rec.t == "a"'))
        body: tuple[str, ...] = (f"@reaction({options})", "async def r(self, rec: Rec, delivery: Delivery) -> Rec:")
        body = (*body, f"    if {fails}:", '        raise ValueError("not yet")')
        refused = ("        NOTE(self.ctx.name, rec.n)", '        raise Refused("never")')
        body = (*body, f"    if {refuses}:", *refused, "    return rec")
        self._members.append(Member(TOPIC, "topic", (f"{TOPIC}: Topic[Rec] = topic()",)))
        self._members.append(Member("g", "then", tuple(lines), uses))
        self._members.append(Member("r", "reaction", body, frozenset({TOPIC, "g"})))

    def _draw_posts(self, lines: list[str]) -> frozenset[str]:
        """Have a handler post events to handlers before it. The ids of these events follow from its own."""
        draw = self._draw
        handlers = [each.name for each in self._members if each.kind in ("handler", "callback")]
        uses: frozenset[str] = frozenset()
        for number in range(draw.randint(1, 2) if handlers else 0):
            name = draw.choice(handlers)
            post = [f"self.{name}.post({_follow_up_id(number)}, {draw.choice(('n', 'got % 5'))}, w)"]
            if draw.random() < 0.3:
                test, others = condition(draw, self._sources_of_windows())
                post = [f"if {test}:", f"    {post[0]}"]
                uses |= others
            at = _place(draw, lines)
            lines[at:at] = post
            uses |= {name}
        return uses

    def _draw_use_of_child(self, lines: list[str]) -> frozenset[str]:
        """Have a handler post an event to a child, or write a cell of it."""
        draw = self._draw
        members = [each for each in self._members if each.kind == "children"]
        if not members:
            return frozenset()
        member = draw.choice(members)
        of = [each for each in self._children if each.name in member.uses]
        found = f"self.{member.name}.get()" + (".get(w)" if member.name[0] == "d" else "")
        own = [each for each in of[0].members if each.name.startswith(OWN)]
        n = draw.choice(("n", "got % 5"))
        if own and len(of) == 1 and draw.random() < 0.5:
            text = write(draw, Source(f"child.{own[0].name}", own[0].kind, frozenset()), n, "w")
        else:
            text = f"child.{POSTED}.post({_follow_up_id(9)}, {n}, w)"
        at = _place(draw, lines)
        lines[at:at] = [f"child = {found}", "if child is not None:", f"    {text}"]
        return frozenset({member.name})


def left_out_of_whole(members: Sequence[Member]) -> frozenset[str]:
    """The members that do not follow from the cells and inputs of their piece: those that need children or a link."""
    below = {each.name for each in members if each.kind == "children" or each.name[0] in "yw" or each.name == LINK}
    while more := {each.name for each in members if each.uses & below} - below:
        below |= more
    return frozenset(below)


def _place(draw: Random, lines: list[str]) -> int:
    """A place between the statements of a handler, after its first two."""
    return draw.choice([at for at in range(2, len(lines) + 1) if at == len(lines) or lines[at][0] != " "])


def _follow_up_id(number: int) -> str:
    """The id of an event that the handler of the event `eid` posts.

    Ids of steps have three digits, those of follow-ups six, and those of their own follow-ups one more each time.
    """
    return f"eid * (1000 if eid < 1000 else 10) + {number}"


def draw_pieces(draw: Random, classes: tuple[PieceClass, ...], features: Features) -> tuple[Piece, ...]:
    """One or two pieces of each class. Inputs are given numbers and handlers of pieces before."""
    pieces: list[Piece] = []
    numbers: list[tuple[str, str]] = []
    handlers: list[tuple[str, str]] = []
    for each in classes:
        if each.name.startswith("K"):
            continue
        mine: list[tuple[str, str]] = []
        callbacks: list[tuple[str, str]] = []
        for _ in range(draw.choice((1, 1, 1, 2))):
            name = f"p{len(pieces)}"
            inputs = each.of_kind("given")
            if inputs and not numbers:
                continue
            given = tuple((member.name, *draw.choice(numbers)) for member in inputs)
            given += tuple((member.name, *draw.choice(handlers)) for member in each.of_kind("callback"))
            space = "two" if pieces and draw.random() < features.spaces else "one"
            pieces.append(Piece(name, each.name, given, space))
            mine += [(name, member.name) for member in each.of_kind("int", "number") if member.scope == "space"]
            callbacks += [(name, member.name) for member in each.of_kind("handler")]
        numbers += mine
        handlers += callbacks
    return tuple(pieces)


# ---- steps ---------------------------------------------------------------------------------------------------


class Steps:
    """Draws steps that are possible one after the other, for one user."""

    def __init__(
        self,
        draw: Random,
        classes: tuple[PieceClass, ...],
        pieces: tuple[Piece, ...],
        features: Features,
        first_id: int = FIRST_ID,
    ) -> None:
        self._draw = draw
        self._classes = {each.name: each for each in classes}
        self._pieces = pieces
        self._features = features
        self._eid = first_id
        self._watches: dict[int, str] = {}  # open sinks, and their pieces
        self._stopped: set[str] = set()
        self._entered: set[tuple[str, str]] = set()  # windows and pieces that are open there, besides the first one
        self._steps: list[Step] = []

    def drawn(self) -> tuple[Step, ...]:
        while len(self._steps) < self._features.steps:
            self._steps += self._by_window(self._some()) if self._features.windows else self._some()
        return (*self._steps, Rest())

    def _some(self) -> list[Step]:
        draw = self._draw
        piece = draw.choice(self._pieces)
        match draw.choices(range(8), (8, 5, 3, 4, 3, 2, 1, 4))[0]:
            case 0:
                return self.sends(piece)
            case 1:
                return self._writes(piece)
            case 2:
                return [self.transact()]
            case 3:
                member = draw.choice(self.readable(piece))
                return [Pull(piece.name, member)]
            case 4:
                return self.watch(piece)
            case 5 if self._features.stops:
                return self._stop(piece)
            case 6:
                return self._remake(piece) if self._features.remakes else self.sends(piece)
            case _:
                return [Rest()]

    def _by_window(self, steps: list[Step]) -> list[Step]:
        """Steps of one window."""
        window = self._draw.choice((*WINDOWS, ANN))
        return [
            By(window, each) if window != ANN and isinstance(each, Send | Write | Transact | Pull | Watch) else each
            for each in steps
        ]

    def next_id(self) -> int:
        self._eid += 1
        return self._eid

    def sends(self, piece: Piece) -> list[Step]:
        draw = self._draw
        handlers = self._classes[piece.of].of_kind("handler")
        if not handlers:
            return []
        children = self._classes[piece.of].of_kind("children") if self._features.child_handlers else ()
        if children and draw.random() < 0.4:
            return [self._use_child(piece, draw.choice(children))]
        count = 1 if draw.random() < 0.7 else draw.randint(2, 5)
        is_awaited = draw.random() < 0.5
        return [
            Send(
                self.next_id(), piece.name, draw.choice(handlers).name, draw.randrange(4), draw.choice(KEYS), is_awaited
            )
            for _ in range(count)
        ]

    def _use_child(self, piece: Piece, member: Member) -> Step:
        """An event for a child, or a write to a cell of it."""
        draw = self._draw
        of = [each for each in self._classes.values() if each.name in member.uses]
        path = f"{piece.name}/{member.name}/{draw.choice(KEYS) if member.name[0] == 'd' else ''}"
        own = [each for each in of[0].members if each.name.startswith(OWN)]
        eid, n, w = self.next_id(), draw.randrange(4), draw.choice(KEYS)
        if own and len(of) == 1 and draw.random() < 0.3:
            text = write(draw, Source(f"child.{own[0].name}", own[0].kind, frozenset()), str(n), f'"{w}"')
            return Write(eid, path, own[0].name, text)
        return Send(eid, path, "h0", n, w, is_awaited=True)

    def write_link(self, piece: Piece) -> Write:
        """Have a link lead to a number of its piece that is declared before it, or of a piece before."""
        draw = self._draw
        of = self._classes[piece.of].members
        names = [each.name for each in of]
        own = [(piece.name, each) for each in of[: names.index(LINK)]]
        before = self._pieces[: self._pieces.index(piece)]
        others = [(each.name, member) for each in before for member in self._classes[each.of].members]
        found = [(f"{of}.{each.name}", each) for of, each in (*own, *others) if each.scope == "space"]
        numbers = [name for name, each in found if each.kind in NUMBERS]
        numbers += [f'{name}.key("{draw.choice(KEYS)}")' for name, each in found if each.kind == "ints"]
        target = f"link({draw.choice(numbers)})" if numbers and draw.random() < 0.8 else "None"
        return Write(self.next_id(), piece.name, LINK, f"{piece.name}.{LINK}.set({target})")

    def _write(self, piece: Piece) -> Write | None:
        draw = self._draw
        if self._classes[piece.of].of_kind("link") and draw.random() < 0.3:
            return self.write_link(piece)
        cells = self._classes[piece.of].of_kind(*CELL_KINDS)
        if not cells:
            return None
        return self.write(piece, draw.choice(cells))

    def write(self, piece: Piece, cell: Member) -> Write:
        """A write to a cell."""
        draw = self._draw
        handle = Source(f"{piece.name}.{cell.name}", cell.kind, frozenset())
        eid = self.next_id()
        fresh = None if self._features.equal_writes else str(eid)
        text = write(draw, handle, str(draw.randrange(4)), f'"{draw.choice(KEYS)}"', fresh)
        return Write(eid, piece.name, cell.name, text)

    def _writes(self, piece: Piece) -> list[Step]:
        """One plain write, often made twice: the second one changes nothing."""
        one = self._write(piece)
        if one is None or not self._features.plain_writes:
            return []
        again = Write(self.next_id(), one.piece, one.member, one.text)
        return [one, again] if self._draw.random() < 0.2 else [one]

    def transact(self) -> Step:
        draw = self._draw
        space = draw.choice(self._pieces).space  # A transaction writes one space.
        pieces = [each for each in self._pieces if each.space == space]
        drawn = [self._write(draw.choice(pieces)) for _ in range(draw.randint(1, 3))]
        drawn[:0] = self._copies(pieces)
        return Transact(self.next_id(), tuple(each for each in drawn if each is not None), draw.random() < 0.25)

    def _copies(self, pieces: list[Piece]) -> list[Write]:
        """Up to one write of the value of a computed, before the other writes of a transaction.

        It has a random source of its own, so that the other steps of a seed do not depend on it.
        """
        draw = Random(f"copy {self._eid} {pieces!r}")
        names = [(each.name, member) for each in pieces for member in self._classes[each.of].members]
        shared = [(name, each) for name, each in names if each.scope == "space"]
        computeds = [f"{name}.{each.name}" for name, each in shared if each.kind == "number"]
        cells = [(name, each.name) for name, each in shared if each.kind == "int"]
        if not (computeds and cells and self._features.equal_writes) or draw.random() < 0.5:
            return []
        piece, cell = draw.choice(cells)
        return [Write(self.next_id(), piece, cell, f"{piece}.{cell}.set({draw.choice(computeds)}.get())")]

    def readable(self, piece: Piece) -> list[str]:
        return [each.name for each in self._classes[piece.of].of_kind(*CELL_KINDS, *READABLE)]

    def watch(self, piece: Piece) -> list[Step]:
        draw = self._draw
        if self._watches and draw.random() < 0.4:
            number = draw.choice(sorted(self._watches))
            del self._watches[number]
            return [Unwatch(number)]
        number = self.next_id()
        self._watches[number] = piece.name
        return [Watch(number, piece.name, draw.choice(self.readable(piece)))]

    def _enter(self, piece: Piece) -> list[Step]:
        """Open a piece in another window, or stop it there."""
        window = self._draw.choice([each for each in WINDOWS if each != ANN])
        self._entered ^= {(window, piece.name)}
        is_open = (window, piece.name) in self._entered
        return [By(window, Open(piece.name) if is_open else Stop(piece.name))]

    def _stop(self, piece: Piece) -> list[Step]:
        if self._features.windows and self._draw.random() < 0.5:
            return self._enter(piece)
        if not self._features.written_while_stopped:
            return [] if piece.name in self._stopped else [Stop(piece.name), Open(piece.name)]
        if piece.name in self._stopped:
            self._stopped.discard(piece.name)
            return [Open(piece.name)]
        self._stopped.add(piece.name)
        return [Stop(piece.name)]

    def may_go(self, piece: Piece) -> bool:
        """Whether nothing outside of a piece reads it: neither an input nor a link."""
        is_given = any(piece.name == where for each in self._pieces for _, where, _ in each.given)
        return not is_given and not any(self._classes[each.of].of_kind("link") for each in self._pieces)

    def _remake(self, piece: Piece) -> list[Step]:
        """Delete a piece that is given to no other one."""
        if piece.name in self._stopped or not self.may_go(piece):
            return []
        ended = [number for number, of in self._watches.items() if of == piece.name]
        for number in ended:
            del self._watches[number]
        self._entered = {(window, of) for window, of in self._entered if of != piece.name}
        return [*(Unwatch(number) for number in ended), Rest(), Remake(piece.name)]
