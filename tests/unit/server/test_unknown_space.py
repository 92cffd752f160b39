"""A space that nobody has committed to: it can be opened, watched and read over a socket, and leaves no file behind."""

from __future__ import annotations

from pathlib import Path

from headwater.data.patch import replace
from headwater.protocol.commit import Commit, Operation
from headwater.protocol.messages import Answer, Hello, Open, Opened, Query, Selector, Transact, Verdicts, Watch, Watched
from headwater.protocol.verdict import Accepted
from headwater.server.server import Server
from tests.unit.runtime.kit import SPACE, doc
from tests.unit.server.test_connection import Raw, raw, served


async def opened(server: Server, resume: str, following: str) -> Raw:
    peer = await raw(server)
    await peer.say(Hello((1,)), Open(SPACE, "s", resume, following))
    await peer.hear()
    assert isinstance(await peer.hear(), Opened)
    return peer


def spaces_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("*.space*"))


def test_watching_and_reading_an_unknown_space_finds_nothing_and_makes_no_file(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        peer = await opened(server, "", "t")
        await peer.say(Watch(1, (Selector(doc()),)), Query(2, "space", "d"), Query(3, "space"))
        watched, one, page = await peer.hear(), await peer.hear(), await peer.hear()
        assert isinstance(watched, Watched)
        assert [state.present for state in watched.documents] == [False]
        assert isinstance(one, Answer)
        assert [state.present for state in one.documents] == [False]
        assert page == Answer(3, 0, ())
        assert spaces_in(tmp_path) == []

    served(tmp_path, tell)
    assert spaces_in(tmp_path) == []


def test_the_first_commit_makes_the_file_before_its_verdict_leaves(tmp_path: Path) -> None:
    async def tell(server: Server) -> None:
        peer = await opened(server, "", "t")
        await peer.say(Transact((Commit(1, (Operation(doc(), (replace((), 1),)),)),)))
        verdicts = await peer.hear()
        assert isinstance(verdicts, Verdicts)
        assert isinstance(verdicts.verdicts[0], Accepted)
        assert f"{SPACE}.space" in spaces_in(tmp_path)

    served(tmp_path, tell)
    assert spaces_in(tmp_path) == [f"{SPACE}.space"]


def test_a_session_that_watched_an_unknown_space_goes_on_after_a_restart(tmp_path: Path) -> None:
    async def before(server: Server) -> None:
        await opened(server, "", "t1")

    async def after(server: Server) -> None:
        peer = await opened(server, "t1", "t2")
        await peer.say(Transact((Commit(1, (Operation(doc(), (replace((), 1),)),)),)))
        assert isinstance((await peer.hear()).verdicts[0], Accepted)

    served(tmp_path, before)
    served(tmp_path, after)
