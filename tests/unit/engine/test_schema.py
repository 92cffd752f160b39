"""A new file has the schema of this version; a file with any other content is refused by name and left as it is."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from headwater.clock import VirtualClock
from headwater.data.patch import replace
from headwater.engine.engine import Engine
from headwater.engine.store.schema import APPLICATION_ID, DRAFT_APPLICATION_IDS, SCHEMA_VERSION
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import NewerVersionError, NotASpaceError, StorageError
from headwater.protocol.commit import Commit
from tests.unit.engine.kit import open_engine, value_of, write


def written(path: Path) -> None:
    engine = open_engine(path)
    engine.open_session("s")
    engine.submit("s", Commit(1, (write("d", replace((), "kept")),)))
    engine.close()


def pragma(path: Path, text: str) -> object:
    connection = apsw.Connection(str(path))
    try:
        return next(iter(connection.cursor().execute(f"PRAGMA {text}")), (None,))[0]
    finally:
        connection.close()


def test_new_file_has_the_mark_and_the_version_of_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    SqliteStore(path).close()
    assert pragma(path, "application_id") == APPLICATION_ID
    assert pragma(path, "user_version") == SCHEMA_VERSION
    assert APPLICATION_ID.to_bytes(4) == b"HWS2"


def test_file_of_a_newer_version_is_refused_by_name_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    written(path)
    pragma(path, f"user_version={SCHEMA_VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(NewerVersionError) as caught:
        SqliteStore(path)
    assert str(caught.value) == (
        f"{path} has schema version {SCHEMA_VERSION + 1}, this Headwater knows versions up to {SCHEMA_VERSION}. "
        "Upgrade Headwater, or open the file with the version that wrote it."
    )
    assert path.read_bytes() == before


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("mark", DRAFT_APPLICATION_IDS)
def test_file_from_before_schema_version_1_is_refused_by_name_and_not_touched(
    tmp_path: Path, mark: int, create: bool
) -> None:
    path = tmp_path / "s.space"
    written(path)
    pragma(path, f"application_id={mark}")
    pragma(path, "user_version=8")
    before = path.read_bytes()
    with pytest.raises(NotASpaceError, match="was made by a Headwater from before schema version 1"):
        SqliteStore(path, create=create)
    assert path.read_bytes() == before


def test_database_of_another_program_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.cursor().execute("CREATE TABLE theirs (x)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(NotASpaceError, match=r"is an SQLite file, but not a Headwater space\. Choose another file\."):
        SqliteStore(path)
    assert path.read_bytes() == before
    pragma(path, "application_id=7")
    with pytest.raises(NotASpaceError, match="not a Headwater space"):
        SqliteStore(path)


def test_file_that_has_to_exist_is_never_made(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        SqliteStore(tmp_path / "missing.space", create=False)
    assert not (tmp_path / "missing.space").exists()


def test_file_that_has_to_exist_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "s.space"
    written(path)
    engine = Engine(SqliteStore(path, create=False), clock=VirtualClock())
    assert value_of(engine, "d") == "kept"
    engine.close()


def test_new_space_that_was_never_finished_is_begun_again(tmp_path: Path) -> None:
    """It grows under another name, so that a process killed meanwhile leaves nothing that looks like a space."""
    path = tmp_path / "s.space"
    for left in (b"", b"SQLite format 3\x00" + b"\x00" * 50, b"nonsense" * 1_000):
        (tmp_path / "s.space.new").write_bytes(left)
        written(path)
        assert sorted(each.name for each in tmp_path.iterdir()) == ["s.space"]
        assert pragma(path, "user_version") == SCHEMA_VERSION
        path.unlink()
