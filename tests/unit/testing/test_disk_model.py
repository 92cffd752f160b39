"""What a disk with a volatile cache keeps and loses."""

from __future__ import annotations

import pytest

from headwater.clock import Random
from headwater.testing.disk.model import SECTOR_BYTES, DiskOp, Loss, OpKind, Platter

OLD = b"o" * 4 * SECTOR_BYTES
NEW = b"n" * 4 * SECTOR_BYTES


def create(file: str) -> DiskOp:
    return DiskOp(kind=OpKind.CREATE, file=file)


def write(file: str, data: bytes, offset: int = 0) -> DiskOp:
    return DiskOp(kind=OpKind.WRITE, file=file, offset=offset, data=data)


def truncate(file: str, size: int) -> DiskOp:
    return DiskOp(kind=OpKind.TRUNCATE, file=file, size=size)


def sync(file: str) -> DiskOp:
    return DiskOp(kind=OpKind.SYNC, file=file)


def delete(file: str, *, directory_synced: bool = False) -> DiskOp:
    return DiskOp(kind=OpKind.DELETE, file=file, directory_synced=directory_synced)


def platter(*ops: DiskOp, sector_garbled: bool = False) -> Platter:
    """A disk that holds `a` with old content, durably, and on which this was done."""
    made = Platter({"a": OLD}, sector_garbled=sector_garbled)
    for op in ops:
        made.apply(op)
    return made


def after(disk: Platter, loss: Loss, seed: int = 0) -> dict[str, bytes]:
    return disk.after_crash(loss, Random(seed))


def test_an_unsynced_write_is_seen_and_lost() -> None:
    disk = platter(write("a", NEW))
    assert disk.visible() == {"a": NEW}
    assert after(disk, Loss.DROPPED) == {"a": OLD}
    assert after(disk, Loss.KEPT) == {"a": NEW}


@pytest.mark.parametrize("loss", list(Loss))
def test_a_synced_write_survives_everything(loss: Loss) -> None:
    disk = platter(write("a", NEW), sync("a"))
    assert disk.is_settled()
    assert after(disk, loss) == {"a": NEW}


def test_an_unsynced_truncation_may_be_lost() -> None:
    disk = platter(truncate("a", 10))
    assert disk.visible() == {"a": OLD[:10]}
    assert after(disk, Loss.DROPPED) == {"a": OLD}
    assert after(disk, Loss.KEPT) == {"a": OLD[:10]}


def test_a_write_past_the_end_leaves_zeros_before_it() -> None:
    disk = platter(write("a", b"x", offset=len(OLD) + 3))
    assert disk.visible() == {"a": OLD + b"\0\0\0x"}


def test_a_torn_write_ends_inside_a_sector() -> None:
    for seed in range(200):
        left = after(platter(write("a", NEW)), Loss.TORN, seed)["a"]
        kept = len(left) - len(left.lstrip(b"n"))
        border = -(-kept // SECTOR_BYTES) * SECTOR_BYTES
        assert left[border:] == OLD[border:], "whatever is behind the torn sector is as it was"
    cuts = {after(platter(write("a", NEW)), Loss.TORN, seed)["a"].rstrip(b"o") for seed in range(200)}
    assert any(len(cut) % SECTOR_BYTES for cut in cuts)


def test_a_later_write_can_survive_without_an_earlier_one() -> None:
    second = 2 * SECTOR_BYTES
    disk = platter(write("a", b"1" * SECTOR_BYTES), write("a", b"2" * SECTOR_BYTES, offset=second))
    lefts = [after(disk, Loss.REORDERED, seed)["a"] for seed in range(50)]
    assert any(left[:1] == b"o" and left[second : second + 1] == b"2" for left in lefts)


def test_an_older_write_can_win_over_a_newer_one() -> None:
    disk = platter(write("a", b"1" * SECTOR_BYTES), write("a", b"2" * SECTOR_BYTES))
    lefts = [after(disk, Loss.REORDERED, seed)["a"][:1] for seed in range(50)]
    assert {b"1", b"2", b"o"} == set(lefts)


def test_scattered_loss_keeps_any_sectors_and_tears_some() -> None:
    lefts = [after(platter(write("a", NEW)), Loss.SCATTERED, seed)["a"] for seed in range(200)]
    sectors = [left[at : at + SECTOR_BYTES] for left in lefts for at in range(0, len(left), SECTOR_BYTES)]
    whole = {OLD[:SECTOR_BYTES], NEW[:SECTOR_BYTES]}
    assert whole <= set(sectors)
    assert any(sector not in whole for sector in sectors)
    assert any(left[:SECTOR_BYTES] == OLD[:SECTOR_BYTES] and left.endswith(b"n") for left in lefts)


def test_a_scattered_write_can_leave_only_a_longer_file() -> None:
    grown = [after(platter(write("a", b"x", offset=len(OLD))), Loss.SCATTERED, s)["a"] for s in range(200)]
    assert OLD + b"\0" in grown


def test_a_torn_write_destroys_its_own_bytes_only_unless_sectors_are_garbled() -> None:
    inside = write("a", b"n" * 10, offset=100)
    for seed in range(50):
        left = after(platter(inside), Loss.TORN, seed)["a"]
        assert left[:100] == OLD[:100]
        assert left[110:] == OLD[110:]
    garbled = [after(platter(inside, sector_garbled=True), Loss.TORN, seed)["a"] for seed in range(5)]
    assert all(left[:100] != OLD[:100] and left[SECTOR_BYTES:] == OLD[SECTOR_BYTES:] for left in garbled)


def test_a_new_file_is_found_again_only_once_a_journal_was_synced_beside_it() -> None:
    new = [create("b"), write("b", b"x"), sync("b")]
    assert after(platter(*new), Loss.DROPPED) == {"a": OLD}
    assert after(platter(*new), Loss.KEPT) == {"a": OLD, "b": b"x"}
    beside = [*new, create("b-wal"), sync("b-wal")]
    assert after(platter(*beside), Loss.DROPPED) == {"a": OLD, "b": b"x", "b-wal": b""}


def test_a_deleted_file_may_come_back_unless_its_directory_was_synced() -> None:
    disk = platter(delete("a"))
    assert disk.visible() == {}
    assert not disk.is_settled()
    assert after(disk, Loss.DROPPED) == {"a": OLD}
    assert {tuple(after(disk, Loss.TORN, seed)) for seed in range(20)} == {(), ("a",)}
    assert after(platter(delete("a", directory_synced=True)), Loss.DROPPED) == {}


def test_a_file_made_again_does_not_inherit_the_content_of_its_name() -> None:
    disk = platter(delete("a"), create("a"), write("a", b"x"))
    assert disk.visible() == {"a": b"x"}
    assert after(disk, Loss.DROPPED) == {"a": OLD}


def test_pages_taken_for_clean_are_seen_and_never_written() -> None:
    disk = platter(write("a", NEW))
    disk.forget_pending("a")
    disk.apply(sync("a"))
    assert disk.visible() == {"a": NEW}
    assert after(disk, Loss.DROPPED) == {"a": OLD}


def test_a_copy_changes_by_itself() -> None:
    disk = platter(write("a", NEW))
    twin = disk.copy()
    twin.apply(sync("a"))
    assert after(twin, Loss.DROPPED) == {"a": NEW}
    assert after(disk, Loss.DROPPED) == {"a": OLD}


@pytest.mark.parametrize("loss", list(Loss))
def test_the_same_seed_loses_the_same(loss: Loss) -> None:
    disk = platter(write("a", NEW), write("a", OLD, offset=700), create("b-wal"), write("b-wal", NEW))
    assert after(disk, loss, seed=3) == after(disk, loss, seed=3)


def test_the_same_operations_make_the_same_disk() -> None:
    ops = [
        write("a", NEW),
        create("b-wal"),
        write("b-wal", OLD),
        sync("b-wal"),
        truncate("a", 900),
        delete("a"),
    ]
    one, two = platter(*ops), platter(*ops)
    for loss in Loss:
        assert after(one, loss, seed=1) == after(two, loss, seed=1)
