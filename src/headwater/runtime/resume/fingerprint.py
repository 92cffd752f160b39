"""The identity and the fingerprint of a node, as reported with each of its runs.

The fingerprint contains everything that decides the result of a run besides the values it reads: the code, the inputs
of the piece, and the documents of the results.

`DeclaredDefaults` describes how the documents that a node read are declared: the defaults of cells, the types of
members, and whether the documents are cells at all. A default, and a type with all its fields, belong to the class that
declares the member. A node that reads the member through an input or a link does not name that class, so the
declaration is not part of the node's code; it is reported beside the code, by the documents that were read. The class
of a document is found by the record of its piece; an unknown declaration is None. This module compares nothing and runs
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from headwater.cells.handle import Input
from headwater.data.address import SPACE_SCOPE, DocKey, address_text, doc_text, parse_address
from headwater.data.ids import derive_cached
from headwater.data.json_form import digest
from headwater.data.path import Path
from headwater.data.value import ABSENT, MaybeValue
from headwater.errors import AuthoringError, HeadwaterError
from headwater.pieces.declarations import CellMember, GivenMember
from headwater.pieces.fingerprints.fingerprint import Fingerprint, Fingerprinter
from headwater.pieces.names import SEPARATOR, child_name
from headwater.pieces.piece import Piece
from headwater.protocol.observations import About, NodeKey
from headwater.replica.document import NOT_HERE, Document
from headwater.runtime.pieces.classes import class_named, described_members, with_children
from headwater.runtime.pieces.identity import NodeIdentity, row_of, with_kinds
from headwater.runtime.pieces.records import HANDLER, RECORD, record_document, written
from headwater.runtime.pieces.view import OtherScopeHandle
from headwater.runtime.resume.limits import DEFAULT_RESUME_LIMITS, ResumeLimits
from headwater.runtime.resume.writers import DERIVED

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core
    from headwater.runtime.core.local_space import LocalSpace
    from headwater.runtime.core.waiting import Tasks
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.scheduler.registry import NodeSpec


READ: Final = (CellMember, *DERIVED)
"""Members with a value that other nodes can read."""


class DeclaredDefaults:
    """The declarations of the members of a program. Each class is examined once, until `forget` is called."""

    __slots__ = ("_classes", "_core", "_digests", "_limits", "_maker", "_members", "_own", "_pieces", "_tasks")

    def __init__(self, pieces: PieceRegistry, core: Core, tasks: Tasks, limits: ResumeLimits) -> None:
        self._pieces = pieces
        self._core = core
        self._tasks = tasks
        self._limits = limits
        self._classes: dict[tuple[str, str], type[Piece]] = {}  # of pieces that are not here, by space and id
        self._members: dict[tuple[type[Piece], str, bool], str | None] = {}
        # Results of `_types` by the identities of the types, which are kept alive.
        self._digests: dict[tuple[int, ...], tuple[tuple[object, ...], str | None]] = {}
        # By the class of a piece without a parent, and whether a node is of a child: how documents of the node's own
        # piece are declared, by member, with the name that `_place` gives them.
        self._own: dict[tuple[type[Piece], bool], dict[str, str]] = {}
        self._maker = Fingerprinter()

    def forget(self) -> None:
        self._classes.clear()
        self._members.clear()
        self._own.clear()
        self._digests.clear()
        self._maker = Fingerprinter()

    def of_reads(self, reads: Iterable[tuple[str, DocKey]]) -> str | None:
        """Return a fingerprint of the declarations of documents, each given with its space. None: unknown here."""
        # fault+ fingerprint.declarations_ignored: return ""
        found: list[str] = []
        for space, doc in dict.fromkeys(reads):
            said = self._of_document(self._core.space(space), doc)
            if said is None:
                return None
            if said:
                found.append(f"{_address(space, doc)} {said}")
        return derive_cached("defaults", *sorted(found)) if found else ""

    def of_reads_by(
        self, instance: PieceInstance, identity: NodeIdentity, reads: Iterable[tuple[str, DocKey]]
    ) -> str | None:
        """Return the fingerprint of the declarations of a node's reads, the same in all pieces of a class."""
        # fault+ fingerprint.declarations_ignored: return ""
        here, prefix = instance.space.name, f"{instance.id}:"
        start = len(prefix)
        root, is_child, _ = instance.id.partition(SEPARATOR)
        known = self._pieces.find(here, root)
        own: dict[str, str] = {} if known is None else self._own.setdefault((known.cls, bool(is_child)), {})
        found: list[str] = []
        for space, doc in dict.fromkeys(reads):
            scope, id = doc
            # Without calls: this is done for each read of a first run.
            is_own = known is not None and space == here and scope == SPACE_SCOPE and id[:start] == prefix
            if is_own and id[start:] in own:
                said = own[id[start:]]
            else:
                declared = self._of_document(self._core.space(space), doc)
                if declared is None:
                    return None
                place = _place(instance, identity, doc) if space == here else _address(space, doc)
                said = f"{place} {declared}" if declared else ""
                if is_own:
                    own[id[start:]] = said
            if said:
                found.append(said)
        return derive_cached("defaults", *sorted(found)) if found else ""

    def of_own_reads(self, instance: PieceInstance, root: PieceInstance, documents: list[Document]) -> str | None:
        """Return the same if the node read only documents of its piece of which `of_reads_by` knows the declarations.

        None: ask `of_reads_by`. This is done for each first run.
        """
        # fault+ fingerprint.declarations_ignored: return ""
        own = self._own.get((root.cls, instance is not root))
        if own is None:
            return None
        replica, prefix = instance.space.replica, f"{instance.id}:"
        start = len(prefix)
        found: list[str] = []
        for document in documents:
            scope, id = document.key
            if document.home is not replica or scope != SPACE_SCOPE or id[:start] != prefix:
                return None
            said = own.get(id[start:])
            if said is None:
                return None
            if said and said not in found:
                found.append(said)
        found.sort()
        return derive_cached("defaults", *found) if found else ""

    def _of_document(self, space: LocalSpace, doc: DocKey) -> str | None:
        id, stored = owner_of(doc)
        if not id:
            return ""
        root, is_child, _ = id.partition(SEPARATOR)
        is_known, cls = self._class(space, root)
        if cls is None:
            return "" if is_known else None
        return self.of_member(cls, stored, is_child=bool(is_child))

    def of_member(self, cls: type[Piece], stored: str, *, is_child: bool = False) -> str | None:
        """Return the declaration of a member of a class, or of the classes of its children. Empty: there is none.

        None: its type has no fingerprint.
        """
        at = (cls, stored, is_child)
        if at not in self._members:
            # The class of a child is decided by a run: a member of that name counts in all classes.
            found = [self._declared(each, stored) for each in (with_children(cls) if is_child else (cls,))]
            is_known = None not in found
            self._members[at] = " ".join(dict.fromkeys([each for each in found if each])) if is_known else None
        return self._members[at]

    def _declared(self, cls: type[Piece], stored: str) -> str | None:
        schema = cls.__schema__
        member = schema.get(stored)
        if not isinstance(member, READ):
            return ""
        # By its fields: a type of the same name with other fields would decode the same bytes differently.
        # fault fingerprint.type_fields_ignored: types = ""
        types = self._types(member.read_as())
        if types is None:
            return None
        if not isinstance(member, CellMember):
            return f"{member.kind} {types}"
        codec: Any = schema.codec(member)
        return f"{member.kind} {types} {_default(codec.encode(member.default), codec.expected)}"

    def _types(self, read_as: tuple[object, ...]) -> str | None:
        """Return the fingerprint of some types. Most members of a program have one of a few types."""
        at = tuple([id(each) for each in read_as])  # By identity: types that compare equal may differ.
        found = self._digests.get(at)
        if found is None:
            found = self._digests[at] = (read_as, self._maker.of(_read, types=read_as).digest)
        return found[1]

    def _class(self, space: LocalSpace, id: str) -> tuple[bool, type[Piece] | None]:
        """Return whether the class of a piece is known here, and the class; None if it is not imported."""
        instance = self._pieces.find(space.name, id)
        if instance is not None:
            return True, instance.cls
        value = record_document(space, id).value
        if value is NOT_HERE:
            cls = self._classes.get((space.name, id))
            return cls is not None, cls
        try:
            cls = class_named(str(value.get("cls", ""))) if isinstance(value, dict) else None
        except AuthoringError:
            return True, None
        if cls is not None:
            if len(self._classes) >= self._limits.known_classes:
                self._classes.clear()
            self._classes[space.name, id] = cls
        return True, cls

    async def arrived(self, space: LocalSpace, docs: Iterable[DocKey], late_us: int) -> None:
        """Load the classes of the pieces that have some documents of a space."""
        ids = dict.fromkeys([owner_of(doc)[0].partition(SEPARATOR)[0] for doc in docs])
        missing = [id for id in ids if id and not self._class(space, id)[0]]
        if not missing:
            return
        records = [record_document(space, id) for id in missing]
        await _have_here(self._core, self._tasks, records, late_us)
        for id in missing:
            self._class(space, id)
        for record in records:
            space.release_if_unread(record)


async def _have_here(core: Core, tasks: Tasks, records: list[Document], late_us: int) -> None:
    """Wait until the records of pieces are loaded, or will not arrive, or the time is over."""
    for record in records:
        core.load(record)
    await tasks.until(
        lambda: all(each.value is not NOT_HERE or core.why_not(each) is not None for each in records), late_us
    )


def owner_of(doc: DocKey) -> tuple[str, str]:
    """Return the id of the piece that has a document, and the name of the member. Empty: of no member."""
    id, colon, stored = doc.id.rpartition(":")
    return (id, stored) if colon and stored != RECORD else ("", "")


def _read() -> None:
    """Stand for the code in a fingerprint of types alone."""


def _default(value: MaybeValue, expected: str) -> str:
    return "" if value is ABSENT else f"{digest(value)} {expected}"


# ---- inputs ----------------------------------------------------------------------------------------------


def describe_inputs(core: Core, instance: PieceInstance) -> str | None:
    """Return the inputs of a piece as text. None: they are not known here."""
    if not instance.schema.of(GivenMember):
        return ""
    if instance.inputs is not None:
        narrow = [each.place() for each in instance.inputs.values() if isinstance(each, OtherScopeHandle)]
        if None in narrow:
            return None
        # A document of no member has its default from the handle.
        loose = [
            f"{name} {_default(each._default, each._codec.expected)}"
            for name, each in sorted(instance.inputs.items())
            if isinstance(each, Input) and each._default is not ABSENT and not owner_of(each.document.key)[0]
        ]
        try:
            return f"{digest(written(core, instance.inputs))} {' '.join([*map(str, narrow), *loose])}"
        except HeadwaterError:
            return None  # The run of the node raises it, too.
    value = record_document(instance.space, instance.id).value
    if value is NOT_HERE or not isinstance(value, dict):
        return None
    return f"{digest(value.get('inputs', {}))} "


async def load_record_of_inputs(core: Core, tasks: Tasks, instance: PieceInstance, late_us: int) -> None:
    """Load the record of a piece that was named and not opened: only the record has its inputs."""
    if instance.inputs is None and instance.schema.of(GivenMember):
        record = record_document(instance.space, instance.id)
        await _have_here(core, tasks, [record], late_us)
        instance.space.release_if_unread(record)


def inputs_of(core: Core, instance: PieceInstance) -> Iterator[tuple[str, DocKey]]:
    """Yield the documents among the inputs of a piece, each with its space."""
    if instance.inputs is not None:
        for each in instance.inputs.values():
            if isinstance(each, Input):
                yield core.space_of(each.document).name, each.document.key
            elif isinstance(each, OtherScopeHandle) and (place := each.place()) is not None:
                yield instance.space.name, DocKey("space", place)  # The same member for all readers.
        return
    value: Any = record_document(instance.space, instance.id).value
    said = value.get("inputs", {}) if isinstance(value, dict) else {}
    for place in said.values():
        if isinstance(place, str) and not place.startswith(HANDLER):
            try:
                parts = parse_address(place)
            except HeadwaterError:
                continue  # A document of one user or session: the record does not name it.
            yield parts.space or instance.space.name, DocKey(parts.scope, parts.id)


OURS: Final = "="
"""The beginning of a fingerprint, so that it is never empty."""
UNKNOWN: Final = Fingerprint(digest=None, why="its class has no such member")


class CodeFingerprints:
    """Fingerprints of the code of classes. Each class is examined once, until `forget` is called."""

    __slots__ = ("_core", "_known", "_said", "_wholes", "defaults")

    def __init__(
        self, pieces: PieceRegistry, core: Core, tasks: Tasks, limits: ResumeLimits = DEFAULT_RESUME_LIMITS
    ) -> None:
        self._core = core
        self._known: dict[type[Piece], Mapping[str, Fingerprint]] = {}
        self._wholes: dict[type[Piece], str] = {}
        # Results of `said` by member, for nodes whose only output is the document of their member, of classes without
        # inputs: the same in all pieces of the class.
        self._said: dict[tuple[type[Piece], str], tuple[str, str, str]] = {}
        self.defaults = DeclaredDefaults(pieces, core, tasks, limits)

    def of(self, cls: type[Piece], code: str) -> str | None:
        """Return the fingerprint of the code of a member. None: it has none."""
        # fault+ fingerprint.code_ignored: return "="
        if not code:
            return OURS
        said = self._all(cls).get(code, UNKNOWN).digest
        return None if said is None else f"{OURS}{said}"

    def kinds(self, cls: type[Piece], code: str) -> str:
        """Return the parts of that fingerprint by kind, which a preview compares."""
        # fault fingerprint.code_ignored: return ""
        return self._all(cls).get(code, UNKNOWN).kinds if code else ""

    def why(self, cls: type[Piece], code: str) -> str:
        """Return why the code of a member has no fingerprint. Empty: it has one."""
        return self._all(cls).get(code, UNKNOWN).why if code else ""

    def _all(self, cls: type[Piece]) -> Mapping[str, Fingerprint]:
        known = self._known.get(cls)
        if known is None:
            known = self._known[cls] = described_members(cls)
        return known

    def whole(self, cls: type[Piece], made: Callable[[], str]) -> str:
        """Return the fingerprint of all code of a class, computed once by `made`."""
        found = self._wholes.get(cls)
        if found is None:
            found = self._wholes[cls] = made()
        return found

    def why_opaque(self, cls: type[Piece], code: str) -> str:
        """Examine a class before its code has run, because a run may change globals that the code refers to.

        Return why the code of a member has no fingerprint. Empty: it has one.
        """
        known = self._known.get(cls)
        if known is None:
            known = self._all(cls)
        return known.get(code, UNKNOWN).why if code else ""

    def fingerprint_node(self, instance: PieceInstance, spec: NodeSpec, identity: NodeIdentity) -> tuple[str, str, str]:
        """Return the fingerprint of a node, empty if it cannot be known, its kind, and its delays."""
        given = describe_inputs(self._core, instance)
        outputs = spec.outputs
        is_shared = (
            given == ""
            and len(outputs) == 1
            and not spec.envelope
            and not identity.scope
            and not identity.element
            and identity.member == identity.code
            and outputs[0].key == (SPACE_SCOPE, f"{instance.id}:{identity.member}")
        )
        at = (instance.cls, identity.member)
        found = self._said.get(at) if is_shared else None
        if found is None:
            found = self._describe(instance, spec, identity, given)
            if is_shared:
                self._said[at] = found
        return found

    def _describe(
        self, instance: PieceInstance, spec: NodeSpec, identity: NodeIdentity, given: str | None
    ) -> tuple[str, str, str]:
        code = self.of(instance.cls, identity.code)
        fingerprint = ""
        if code is not None and given is not None:
            places = [_place(instance, identity, each.key) for each in spec.outputs]
            places += [_place(instance, identity, inside.key, path) for inside, path in spec.envelope]
            # fault fingerprint.always_the_same: fingerprint = "always the same"
            fingerprint = derive_cached("node", code, given, *places)
        # fault fingerprint.always_the_same: kind = spec.kind.value
        kind = with_kinds(spec.kind.value, self.kinds(instance.cls, identity.code))
        return fingerprint, kind, f"{spec.debounce_ms:g}/{spec.throttle_ms:g}"

    def forget(self) -> None:
        self._known.clear()
        self._said.clear()
        self._wholes.clear()
        self.defaults.forget()


def about(
    codes: CodeFingerprints, instance: PieceInstance, spec: NodeSpec, identity: NodeIdentity, generation: int
) -> About:
    """Return the part of an observation that is the same in every run of a node."""
    member, child, scope, principal = identity.key(instance.child_id)
    fingerprint, kind, delays = codes.fingerprint_node(instance, spec, identity)
    return About(NodeKey(instance.root.id, generation, member, child, scope, principal), kind, fingerprint, delays)


def _address(space: str, doc: DocKey) -> str:
    """Name a document by its full address. No name that `_place` returns begins like this one."""
    return f"@{space}/{doc_text(doc)}"


def _place(instance: PieceInstance, identity: NodeIdentity, key: DocKey, path: Path = ()) -> str:
    """Name a document as seen from its node: the same for all rows of an `each`, and in all pieces of a class.

    The name of the node has the rest. Texts that are equal in ten thousand rows are stored once.
    """
    scope, id = key
    row = (
        child_name(instance.id, identity.member.removesuffix(row_of("")), identity.element) if identity.element else ""
    )
    for sign, own in (("//", row), ("/", instance.id)):
        if own and id.startswith(own):
            id = sign + id[len(own) :]
            break
    else:
        id = f" {id}"
    if identity.principal and scope == f"user:{identity.principal}":
        scope = "user"
    return address_text(scope, id, path)
