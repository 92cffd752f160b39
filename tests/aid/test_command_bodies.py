"""Messages of pages and bodies of commands are bounded, authenticated first, and decoded off the loop."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.protocol.command_messages import COMMAND_PATH
from headwater.server import DEFAULT_SERVER_LIMITS, Server, new_token
from tests.aid.serving import SPACE, WITHIN_S, page, place, serving, threads_that_call

LIMITS = replace(
    DEFAULT_SERVER_LIMITS, token=replace(DEFAULT_SERVER_LIMITS.token, body_bytes=10_000), aside_bytes=1_000
)
BLOCK = b"x" * 1_000


async def request(
    server: Server, *, length: int | None, token: str = "", body: bytes = b""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Begin to ask a question, and send a part of its body. Without a length, the body comes in chunks."""
    reader, writer = await asyncio.open_connection(*server.address)
    lines = ["POST /v1/desk HTTP/1.1", "Host: 127.0.0.1"]
    lines.append("Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}")
    if token:
        lines.append(f"Authorization: Bearer {token}")
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    return reader, writer


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any], str]:
    """Status and content of an answer, and its head."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length:")[2].split()[0])
    return int(head.split()[1]), json.loads(await reader.readexactly(length)), head


def test_body_of_a_stranger_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, limits=LIMITS, with_keys=True) as server:
            for length, token in ((100, ""), (100_000_000, ""), (None, ""), (100_000_000, "no token")):
                reader, writer = await request(server, length=length, token=token)  # and none of its body
                status, told, head = await answer(reader)
                assert (status, told["kind"]) == (401, "AccessError")
                assert "token" in told["error"]
                assert "www-authenticate: bearer" in head
                if length != 100:
                    assert not await reader.read()  # Nobody listens to the rest of it.
                writer.close()

    asyncio.run(play())


def test_body_over_the_limit_is_refused_by_its_length(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, limits=LIMITS, with_keys=True) as server:
            token = new_token(tmp_path, "ann", ttl_s=60)
            reader, writer = await request(server, length=10_001, token=token)  # and none of its body
            status, told, _ = await answer(reader)
            assert (status, told["kind"]) == (413, "LimitError")
            assert "at most 10,000 bytes" in told["error"]
            writer.close()
            chunk = f"{len(BLOCK):x}\r\n".encode() + BLOCK + b"\r\n"
            reader, writer = await request(server, length=None, token=token, body=chunk * 11)  # and no end of it
            assert (await answer(reader))[0] == 413
            writer.close()

    asyncio.run(play())


def test_client_that_closes_after_its_request_reads_why_a_long_body_is_refused(tmp_path: Path) -> None:
    """The body is longer than the buffers of the sockets: the client is still writing when its length is refused."""

    async def play() -> None:
        async with serving(tmp_path, limits=LIMITS, with_keys=True) as server:
            host, port = server.address
            headers = {"Authorization": f"Bearer {new_token(tmp_path, 'ann', ttl_s=60)}"}
            body = b"x" * 32_000_000
            asked = urllib.request.Request(f"http://{host}:{port}{COMMAND_PATH}", body, headers, method="POST")
            with pytest.raises(urllib.error.HTTPError) as caught:
                await asyncio.to_thread(urllib.request.urlopen, asked, timeout=WITHIN_S)  # says "Connection: close"
            with caught.value as error:
                assert error.code == 413
                assert "at most 10,000 bytes" in json.loads(error.read())["error"]

    asyncio.run(play())


def test_body_at_the_limit_is_answered(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path, limits=LIMITS, with_keys=True) as server:
            token = new_token(tmp_path, "ann", ttl_s=60)
            asked = {"what": "set", "space": SPACE, "place": "main.title", "value": ""}
            asked["value"] = "x" * (10_000 - len(json.dumps(asked)))
            body = json.dumps(asked).encode()
            assert len(body) == 10_000
            reader, writer = await request(server, length=len(body), token=token, body=body)
            status, told, _ = await answer(reader)
            assert (status, told["answer"]["value"]) == (200, asked["value"])
            writer.close()

    asyncio.run(play())


def test_long_values_are_decoded_off_the_loop(tmp_path: Path) -> None:
    async def play() -> None:
        with threads_that_call("from_json_form") as threads:
            async with serving(tmp_path, limits=LIMITS) as server:
                asked = {"what": "set", "space": SPACE, "place": "main.title", "value": "x" * 5_000}
                body = json.dumps(asked).encode()
                reader, writer = await request(server, length=len(body), body=body)
                assert (await answer(reader))[0] == 200
                writer.close()
                assert threads
                assert threading.get_ident() not in threads
                threads.clear()
                async with page(server) as ann:
                    message = {"type": "write", "place": place("title"), "kind": "set"}
                    assert (await ann.ask(**message, value="x" * 5_000))["type"] == "done"
                    assert threads
                    assert threading.get_ident() not in threads
                    threads.clear()
                    assert (await ann.ask(**message, value="short"))["type"] == "done"
                    assert threads == {threading.get_ident()}

    asyncio.run(play())
