"""The record of a piece: the data that a space has of it independent of its class.

The transaction that creates a piece writes its record, so that any program with the class can open the piece again. The
record is stored under `@`, which cannot be the name of a member. If the class of a record is not imported, the error
says which module to import.

An input is stored as the address that its handle leads to, so that a piece can be opened again without its maker. A
callback has no address; it is stored as the name of its handler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from headwater.cells.cell import Cell
from headwater.cells.codec import codec_for
from headwater.cells.handle import Input
from headwater.cells.model import Model
from headwater.data.address import address_text
from headwater.data.patch import Patch
from headwater.data.value import ABSENT, Value, freeze
from headwater.errors import AbsentError, AuthoringError, NotReadyError
from headwater.pieces.handles import Handler
from headwater.pieces.names import SEPARATOR, document_id
from headwater.pieces.piece import Piece
from headwater.replica.document import NOT_HERE, Document
from headwater.runtime.core.local_space import LocalSpace
from headwater.runtime.pieces.classes import cell_names, has_other_code, member_digests
from headwater.runtime.pieces.view import OtherScopeHandle

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core
    from headwater.runtime.pieces.instance import PieceInstance

RECORD = "@"

HANDLER: Final = "handler "
"""Prefix of a callback in its stored form."""


def record_document(space: LocalSpace, id: str) -> Document:
    """Return the document with the record of a piece."""
    return space.document(document_id(id, RECORD))


class NotArrivedError(NotReadyError):
    """A record is not loaded yet. Carries its document, so that a caller can wait for it."""

    def __init__(self, message: str, document: Document) -> None:
        super().__init__(message)
        self.document = document


class Record(Model):
    """The stored data of a piece."""

    cls: str
    name: str
    inputs: Mapping[str, str]
    generation: int = 1  # rises when the piece is opened with other fingerprints than `members`, or a higher version
    members: Mapping[str, str] = {}  # fingerprints of its members and those of its children
    cells: tuple[str, ...] = ()  # cells of its class and of the classes of its children, as of the last opening
    version: int = 0  # of its class, as its author said; never goes back
    made: str = ""  # tells the piece apart from a deleted one of the same name


class Records:
    """Reading and writing of records, inside and outside runs."""

    __slots__ = ("_codec", "_core", "_templates")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._codec: Any = None
        # By class, with the fingerprints that it has: they change when code is replaced in the running program.
        self._templates: WeakKeyDictionary[type[Piece], tuple[object, dict[str, Value]]] = WeakKeyDictionary()

    def cell(self, space: LocalSpace, id: str) -> Cell[Record]:
        if self._codec is None:
            self._codec = codec_for(Record)
        return Cell(self._core, record_document(space, id), self._codec)

    def read(self, instance: PieceInstance) -> Record:
        """Return the record of a piece that is known by its name. Inside a run this is not recorded as a read."""
        return self.read_at(instance.space, instance.id, instance.name)

    def read_at(self, space: LocalSpace, id: str, name: str) -> Record:
        """Return the record of the piece with an id. `name` names the piece in errors."""
        cell = self.cell(space, id)
        document: Document = cell.document
        value = document.value
        run = self._core.current.run
        if value is NOT_HERE:
            if run is not None:
                run.tracker.absent(run, document)  # Stops the attempt until the record is loaded.
            self._core.load(document)
            raise NotArrivedError(f"piece {name!r} of {space.name} has not arrived yet: await pull() first", document)
        if value is ABSENT:
            raise AbsentError(f"{space.name} has no piece {name!r}: open or create it first")
        return cell.memo().decode(value)  # type: ignore[no-any-return]

    def _template(self, cls: type[Piece]) -> dict[str, Value]:
        """Return the stored form of a new record of a class.

        It depends on the class alone, except for the name, the inputs and `made`.
        """
        members = member_digests(cls)
        known = self._templates.get(cls)
        if known is None or known[0] is not members:
            schema, cells = cls.__schema__, cell_names(cls)
            record = Record(cls=schema.name, name="", inputs={}, members=members, cells=cells, version=schema.version)
            known = self._templates[cls] = (members, self._codec.encode(record))
        return known[1]

    def write(self, instance: PieceInstance) -> frozenset[str]:
        """Inside a transaction: create the piece or update its record. Refuse a record of another class.

        Return the cells that the class had when the piece was opened before, and does not have any more.
        """
        cell = self.cell(instance.space, instance.id)
        schema = instance.schema
        inputs: Any = written(self._core, instance.inputs or {})
        there = cell.get(None)
        if there is None:
            run = self._core.current.run
            assert run is not None
            value = {
                **self._template(instance.cls),
                "name": instance.name,
                "inputs": freeze(inputs),
                "made": self._core.clock.new_token(8),
            }
            run.tracker.write(run, cell.document, Patch("add", (), value))
            instance.generation, instance.is_new = 1, True
            return frozenset()
        if there.cls not in (schema.name, schema.was):
            raise self._another(instance, there)
        if there.version > schema.version:
            raise self._older(instance, there)
        if there.cls != schema.name:
            cell.at(lambda record: record.cls).set(schema.name)
        if instance.inputs and dict(there.inputs) != dict(inputs):
            cell.at(lambda record: record.inputs).set(inputs)
        instance.generation, instance.is_new = there.generation, False
        if there.version != schema.version:
            cell.at(lambda record: record.version).set(schema.version)
        if there.version != schema.version or has_other_code(instance.cls, there.members):
            instance.generation += 1
            cell.at(lambda record: record.generation).set(instance.generation)
            cell.at(lambda record: record.members).set(member_digests(instance.cls))
        cells = cell_names(instance.cls)
        if there.cells == cells:
            return frozenset()
        cell.at(lambda record: record.cells).set(cells)
        return frozenset(there.cells).difference(cells)

    def adopt(self, instance: PieceInstance) -> bool:
        """Outside a run: return whether the record names the code of this program, which then runs its generation.

        A piece without a record is run by any program.
        """
        value = self.cell(instance.space, instance.id).document.value
        if value is ABSENT or value is NOT_HERE:
            return value is ABSENT  # It was deleted meanwhile; or its record has to arrive again.
        there, schema = self.read(instance), instance.schema
        is_own = there.cls == schema.name and there.version == schema.version
        if not is_own or has_other_code(instance.cls, there.members):
            return False
        instance.generation, instance.is_new = there.generation, False
        return True

    def _another(self, instance: PieceInstance, there: Record) -> AuthoringError:
        return AuthoringError(
            f"{instance.name!r} of {instance.space.name} is a {there.cls}, not a {instance.schema.name}: choose "
            f"another name, or, if it was renamed, write class {instance.cls.__name__}(Piece, was={there.cls!r})"
        )

    def _older(self, instance: PieceInstance, there: Record) -> AuthoringError:
        schema = instance.schema
        here = f"version {schema.version}" if schema.version else "a class without a version"
        return AuthoringError(
            f"{instance!r} is run by version {there.version} of its class, and this program has {here}: start the "
            f"program with the new code, or, if its code is the newer one, write class {instance.cls.__name__}(Piece, "
            f"version={there.version + 1})"
        )

    def is_checked(self, instance: PieceInstance) -> bool:
        """Check that the record of a piece does not name another class. False: the record is not here."""
        if instance.is_made or instance.parent is not None:
            return True
        cell = self.cell(instance.space, instance.id)
        value = cell.document.value
        if value is NOT_HERE:
            return False
        if value is not ABSENT:
            there = cell.memo().decode(value)
            if there.cls not in (instance.schema.name, instance.schema.was):
                raise self._another(instance, there)
            instance.is_made = True
        return True

    async def check(self, instance: PieceInstance) -> None:
        """Load the record of a piece, and check that it does not name another class."""
        if not self.is_checked(instance):
            await self._core.loaded(self.cell(instance.space, instance.id).document)
            self.is_checked(instance)

    def keep(self, instance: PieceInstance) -> None:
        """Inside a handler: create the piece with its first event, if it was not opened before or was deleted."""
        if instance.parent is None and not self.exists(instance):
            self.write(instance)

    def emitter(self, instance: PieceInstance) -> str:
        """Inside a transaction: return the text that names a piece in the records that it emits.

        It is the id of the piece and, if the piece at the top has a record, `made` of that, which another piece of the
        same name does not have.
        """
        root = instance.id.partition(SEPARATOR)[0]
        made = self.cell(instance.space, root).at(lambda record: record.made).get("")
        return document_id(instance.id, made) if made else instance.id

    def exists(self, instance: PieceInstance) -> bool:
        """Inside a transaction: return whether the piece has a record."""
        return self.cell(instance.space, instance.id).exists()


# ---- inputs --------------------------------------------------------------------------------------------


def same_inputs(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two makings of a piece pass the same handles."""
    return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, OtherScopeHandle):
        return one.same(other)
    if isinstance(one, Input) and isinstance(other, Input):
        return type(one) is type(other) and one.document is other.document and one.path == other.path
    if isinstance(one, Handler) and isinstance(other, Handler):
        return one.same(other)
    return False


def described(core: Core, piece: Piece) -> Value:
    """Return the stored form of a child: its class, and the places of its inputs."""
    return freeze({"class": type(piece).__schema__.name, "inputs": written(core, piece.__inputs__)})


def written(core: Core, inputs: Mapping[str, Any]) -> Value:
    """Return the stored form of inputs."""
    return freeze({name: _written(core, value) for name, value in sorted(inputs.items())})


def _written(core: Core, value: Any) -> Value:
    if _core_of(value) is not core:
        raise AuthoringError(f"{value!r} is of another runtime: give a piece handles of the runtime that it runs in")
    if isinstance(value, Input):
        return place_of(core, value)
    if isinstance(value, Handler):
        return f"{HANDLER}{value.sender.place(value.member)}"
    return repr(value)


def _core_of(value: Any) -> object:
    """Return the core of the runtime that a handle belongs to."""
    if isinstance(value, Input):
        return value._runtime
    if isinstance(value, Handler):
        return value.sender.core
    return value.core if isinstance(value, OtherScopeHandle) else None


def place_of(core: Core, handle: Input[Any]) -> str:
    """Return the address that a handle leads to, as text."""
    key = handle.document.key
    return address_text(key.scope, key.id, handle.path, space=core.space_of(handle.document).name)
