"""Which users of a space get observations of nodes, over real sockets, with real tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater.data.patch import replace
from headwater.engine.admission.access import ACCESS
from headwater.errors import LoadError
from headwater.protocol.observations import (
    Backlog,
    DocumentsWritten,
    Observations,
    QueryBacklog,
    QueryObservations,
    QueryReaders,
    QueryWrittenDocuments,
    Readers,
    WatchWrittenDocuments,
    WrittenDocuments,
)
from tests.unit.runtime.kit import Client, doc
from tests.unit.server.test_access_over_the_wire import Town, founded, story

QUESTIONS: tuple[Any, ...] = (
    QueryObservations(0),
    QueryBacklog(0),
    QueryReaders(0, doc()),
    QueryWrittenDocuments(0, 0),
)


async def _answer(client: Client, question: Any) -> Any:
    """The answer to a question, or the problem with it."""
    heard: list[Any] = []
    client.driver.session.queries.look(question, heard.append)
    client.driver.flush()
    await client.driver.until(lambda: bool(heard))
    return heard[0]


def test_writers_and_readers_get_all_but_the_backlog(tmp_path: Path) -> None:
    async def tell(there: Town) -> None:
        ann = await founded(there)
        will, rita = there.user("will"), there.user("rita")
        for client in (will, rita):
            await client.driver.loaded(doc())
        for question, kind in zip(QUESTIONS, (Observations, Backlog, Readers, WrittenDocuments), strict=True):
            assert isinstance(await _answer(ann, question), kind)
            for client, name in ((will, "will"), (rita, "rita")):
                answer = await _answer(client, question)
                assert isinstance(answer, LoadError if kind is Backlog else kind), question
                assert kind is not Backlog or f"may see its backlog, and '{name}' is not an owner" in str(answer)

    story(tell, tmp_path)


def test_user_without_a_right_any_more_is_not_answered_any_more(tmp_path: Path) -> None:
    async def tell(there: Town) -> None:
        ann = await founded(there)
        assert isinstance(await _answer(ann, QUESTIONS[0]), Observations)
        assert isinstance(await _answer(ann, WatchWrittenDocuments(0)), DocumentsWritten)

        def leave(transaction: Any) -> None:
            transaction.write(ACCESS, replace(("owners",), ["will"]))

        await ann.writer.transact(leave)
        assert isinstance(await _answer(ann, QUESTIONS[0]), LoadError)
        will = there.user("will")
        await will.driver.loaded(doc())
        assert isinstance(await _answer(will, QUESTIONS[0]), Observations)

    story(tell, tmp_path)
