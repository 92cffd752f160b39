"""`./dev chaos`: the check reads notes and files alone, and finds an acknowledged append that is not there."""

from __future__ import annotations

import json
from pathlib import Path

from headwater.data.patch import append, replace
from headwater.engine.directory import Directory
from tests.unit.engine.kit import Writer, write
from tools.chaos import judge


def prepare(folder: Path, *stored: str) -> None:
    """A space with one list, and the notes of a client that had two appends acknowledged."""
    with Directory(folder / "data") as directory:
        writer = Writer(directory.space("one"), "s")
        writer.lands(write("x0", replace((), ())))
        for value in stored:
            writer.lands(write("x0", append((), (value,))))
    lines: list[dict[str, object]] = []
    for number, seen in ((1, []), (2, ["c.1"])):
        lines.append({"id": f"c.{number}", "began": number, "appends": {"one/x0": f"c.{number}"}})
        lines.append({"id": f"c.{number}", "ended": number + 0.5, "outcome": "ok", "reads": {"one/x0": seen}})
    (folder / "c.notes").write_text("\n".join(map(json.dumps, lines)))


def test_history_that_the_files_agree_with_has_no_anomaly(tmp_path: Path) -> None:
    prepare(tmp_path, "c.1", "c.2")
    assert judge(tmp_path) == ([], 2, 0)


def test_acknowledged_append_that_is_not_in_the_files_is_found(tmp_path: Path) -> None:
    prepare(tmp_path, "c.1")
    found, _, _ = judge(tmp_path)
    assert [each.kind for each in found] == ["lost append"]
