"""The wire: frames as RFC 6455 has them, and bytes that stay in order whoever sends them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from websockets.frames import Frame
from websockets.streams import StreamReader

from headwater.protocol.framing import framed
from headwater.protocol.messages import Answer, Query
from headwater.server.serve import Server
from tests.unit.server.test_connection import opened, served


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("length", [0, 1, 125, 126, 65_535, 65_536, 100_000])
def test_a_frame_is_read_as_it_was_meant(length: int, text: bool) -> None:
    reader = StreamReader()
    reader.feed_data(framed(b"x" * length, text=text))
    with pytest.raises(StopIteration) as read:
        next(Frame.parse(reader.read_exact, mask=False))
    frame = read.value.value
    assert isinstance(frame, Frame)
    assert bytes(frame.data) == b"x" * length
    assert frame.fin
    assert frame.opcode.name == ("TEXT" if text else "BINARY")


def test_what_threads_say_at_once_arrives_whole_and_in_the_order_of_each(tmp_path: Path) -> None:
    """Long messages, so that the socket takes only parts of them, from the host's side and the event loop's."""

    async def tell(server: Server) -> None:
        peer = await opened(server)
        (connection,) = server.door._connections

        def talk(first: int) -> None:
            for n in range(first, first + 200):
                connection.tell([Answer(n, 0, (), "x" * 20_000)])

        threads = [threading.Thread(target=talk, args=(first,)) for first in (1_000, 2_000)]
        for thread in threads:
            thread.start()
        heard: list[int] = []
        while len(heard) < 400:
            message = await peer.hear()
            assert isinstance(message, Answer)
            heard.append(message.id)
        for thread in threads:
            await asyncio.to_thread(thread.join)
        for first in (1_000, 2_000):
            assert [n for n in heard if first <= n < first + 200] == list(range(first, first + 200))
        await peer.say(Query(7, "space", "d"))
        assert (await peer.hear()).id == 7

    served(tmp_path, tell)
