"""A piece belongs to the class that made it, also if that class has no cells and no derived members."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater
from headwater import AuthoringError, Piece, handler


class Mailer(Piece, name="classes.Mailer"):
    @handler
    def mail(self, text: str) -> str:
        return f"mailed {text}"


class Shredder(Piece, name="classes.Shredder"):
    @handler
    def mail(self, text: str) -> str:
        return f"shredded {text}"


class Postman(Piece, name="classes.Postman", was="classes.Mailer"):
    @handler
    def mail(self, text: str) -> str:
        return f"carried {text}"


def test_program_with_another_class_opens_no_piece_of_the_name(tmp_path: Path) -> None:
    async def make() -> None:
        async with headwater.open(tmp_path) as rt:
            mailer = await rt.space("s").open(Mailer, "main")
            assert await mailer.mail.send("a letter") == "mailed a letter"

    async def mistake() -> None:
        async with headwater.open(tmp_path) as rt:
            with pytest.raises(AuthoringError, match=r"is a classes\.Mailer, not a classes\.Shredder"):
                await rt.space("s").open(Shredder, "main")

    async def send() -> None:
        async with headwater.open(tmp_path) as rt:
            with pytest.raises(AuthoringError, match=r"is a classes\.Mailer, not a classes\.Shredder"):
                await rt.space("s").piece(Shredder, "main").mail.send("a letter")

    async def rename() -> None:
        async with headwater.open(tmp_path) as rt:
            postman = await rt.space("s").open(Postman, "main")
            assert await postman.mail.send("a letter") == "carried a letter"

    for story in (make, mistake, send, make, rename):
        headwater.run(story)
