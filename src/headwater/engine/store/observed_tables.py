"""The part of the store port on SQLite that is about what nodes last did. Nothing is decided here: see `observed`."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from headwater.data.address import DocKey
from headwater.engine.store import observation_sql
from headwater.engine.store.database import Database
from headwater.engine.store.port import MirrorRow, NodeNumbers, ObservationRow, ReaderRow


class ObservedTables:
    """Names, observations, readers and mirrors of one space."""

    __slots__ = ("_db",)

    _db: Database

    def name_of(self, number: int) -> str | None:
        return observation_sql.name_of(self._db, number)

    def number_of(self, name: str) -> int | None:
        return observation_sql.number_of(self._db, name)

    def add_name(self, name: str) -> int:
        return observation_sql.add_name(self._db, name)

    def drop_names(self, after: int, limit: int, used: Container[int]) -> tuple[int | None, int]:
        return observation_sql.drop_names(self._db, after, limit, used)

    def observation(self, key: NodeNumbers) -> ObservationRow | None:
        return observation_sql.observation(self._db, key)

    def observations_after(self, after: NodeNumbers, limit: int) -> list[ObservationRow]:
        return observation_sql.observations_after(self._db, after, limit)

    def put_observations(self, rows: Iterable[ObservationRow], added: int) -> None:
        observation_sql.put_observations(self._db, rows, added)

    def drop_observations(self, keys: Iterable[NodeNumbers]) -> None:
        observation_sql.drop_observations(self._db, keys)

    def newest_generation(self, branch: int, piece: int) -> int | None:
        return observation_sql.newest_generation(self._db, branch, piece)

    def observed_pieces(self, branch: int, after: int, limit: int) -> list[int]:
        return observation_sql.observed_pieces(self._db, branch, after, limit)

    def reader(self, doc: int, branch: int, piece: int) -> int:
        return observation_sql.reader(self._db, doc, branch, piece)

    def put_readers(self, rows: Iterable[ReaderRow], added: int) -> None:
        observation_sql.put_readers(self._db, rows, added)

    def readers_of(self, doc: int, branch: int, after: int, limit: int) -> list[int]:
        return observation_sql.readers_of(self._db, doc, branch, after, limit)

    def count_readers(self, branch: int) -> int:
        return observation_sql.count_readers(self._db, branch)

    def mirror_owners(self, branch: int) -> list[int]:
        return observation_sql.mirror_owners(self._db, branch)

    def has_absent_readers(self) -> bool:
        return observation_sql.has_absent_readers(self._db)

    def rename_readers(self, doc: int, into: int) -> None:
        observation_sql.rename_readers(self._db, doc, into)

    def drop_observed_branch(self, branch: int) -> None:
        observation_sql.drop_observed_branch(self._db, branch)

    def mirrors_after(self, branch: int, owner: int, piece: int, limit: int) -> list[MirrorRow]:
        return observation_sql.mirrors_after(self._db, branch, owner, piece, limit)

    def put_mirror(self, row: MirrorRow) -> None:
        observation_sql.put_mirror(self._db, row)

    def keys_of(self, docs: Iterable[int]) -> dict[int, DocKey]:
        return observation_sql.keys_of(self._db, docs)

    def head_seqs(self, branch: int, docs: Iterable[int] | None, after: int = 0) -> dict[int, int]:
        return observation_sql.head_seqs(self._db, branch, docs, after)

    @property
    def changes_made(self) -> int:
        return self._db.number("SELECT total_changes()")

    def observations_of(self, branch: int, member: int, pieces: Iterable[int]) -> list[ObservationRow]:
        return observation_sql.observations_of(self._db, branch, member, pieces)

    def observations_holding(
        self, branch: int, pieces: Iterable[int], limit: int, holds: Sequence[bytes]
    ) -> list[ObservationRow]:
        return observation_sql.observations_holding(self._db, branch, pieces, limit, holds)

    def counted_readers(self, doc: int, branch: int, pieces: Iterable[int]) -> dict[int, int]:
        return observation_sql.counted_readers(self._db, doc, branch, pieces)

    def numbers_of(self, names: Iterable[str]) -> dict[str, int]:
        return observation_sql.numbers_of(self._db, names)

    def names_of(self, numbers: Iterable[int]) -> dict[int, str]:
        return observation_sql.names_of(self._db, numbers)

    def written_of(self, branch: int, scope: str, ids: Iterable[str]) -> dict[str, int]:
        return observation_sql.written_of(self._db, branch, scope, ids)

    def readers_met(self, branch: int, after: int) -> dict[int, int]:
        return observation_sql.readers_met(self._db, branch, after)
