"""`headwater intents` of what is no data directory: a wrong name does not look like good news."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.cli.app import run


def test_of_what_is_no_directory_it_does_not_say_that_nothing_is_on_its_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for wrong in (tmp_path / "none", file):
        assert run(["intents", str(wrong)]) != 0
        said = capsys.readouterr()
        assert "is not a directory" in said.err
        assert said.out == ""
