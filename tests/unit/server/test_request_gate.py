"""The gate in front of every route: malformed requests get 4xx, other hosts nothing, and no answer may be framed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headwater.clock import RealClock
from headwater.server import Server, new_token
from headwater.server.operation.service import make_logger
from tests.aid.serving import serving

COMMANDS = "/v1/desk"
PATHS = ("/", "/healthz", "/readyz", "/metrics", "/headwater.js", COMMANDS, "/v1/sync", "/v1/page", "/absent")
UPGRADE = (
    "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="
)


async def ask(server: Server, *lines: str | bytes, body: bytes = b"") -> tuple[int, str, bytes]:
    """Send a request, and return status, head and the first bytes of the answer."""
    reader, writer = await asyncio.open_connection(*server.address)
    head = b"\r\n".join([line if isinstance(line, bytes) else line.encode() for line in lines])
    writer.write(head + b"\r\n\r\n" + body)
    answered = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    writer.close()
    return int(answered.split()[1]), answered, b""


def play(folder: Path, story: Callable[[Server], Awaitable[None]], *, with_keys: bool = False) -> None:
    async def run() -> None:
        async with serving(folder, with_keys=with_keys) as server:
            await story(server)

    asyncio.run(run())


@pytest.mark.parametrize("with_keys", [False, True])
@pytest.mark.parametrize(
    "line",
    [
        "host: [",
        "host: a]b",
        "host:",
        "host: user@127.0.0.1",
        "host: 127.0.0.1:port",
        "host: 127.0.0.1/path",
        b"host: \xff\xfe",
        "host: 127.0.0.1\r\norigin: http://[",
        "host: 127.0.0.1\r\norigin: http://a:port",
        "host: 127.0.0.1\r\norigin: http://a\r\norigin: http://b",
    ],
)
def test_malformed_host_or_origin_is_refused_on_every_path(tmp_path: Path, line: str | bytes, with_keys: bool) -> None:
    async def story(server: Server) -> None:
        for path in PATHS:
            for more in ((), (UPGRADE,)):
                status, _, _ = await ask(server, f"GET {path} HTTP/1.1", line, *more)
                assert status == 400, (path, status)

    play(tmp_path, story, with_keys=with_keys)


def test_rebound_host_gets_nothing_on_any_path(tmp_path: Path) -> None:
    """A web site gave its own name the address of this machine. It sends no origin with requests to its own name."""

    async def story(server: Server) -> None:
        for path in PATHS:
            for more in ((), (UPGRADE,)):
                status, _, _ = await ask(server, f"GET {path} HTTP/1.1", "host: evil.example", *more)
                assert status == 421, (path, status)

    play(tmp_path, story)
    play(tmp_path / "keys", story, with_keys=True)


def test_addresses_and_localhost_are_names_of_every_server(tmp_path: Path) -> None:
    async def story(server: Server) -> None:
        for name in ("127.0.0.1", f"127.0.0.1:{server.address[1]}", "localhost", "[::1]:80", "10.0.0.7"):
            assert (await ask(server, "GET /healthz HTTP/1.1", f"host: {name}"))[0] == 200, name

    play(tmp_path, story)


def test_answers_may_not_be_framed(tmp_path: Path) -> None:
    async def story(server: Server) -> None:
        for path in ("/", "/headwater.js", "/metrics", "/absent"):
            _, head, _ = await ask(server, f"GET {path} HTTP/1.1", "host: 127.0.0.1")
            assert "x-frame-options: deny" in head
            assert "content-security-policy: frame-ancestors 'none'" in head
            assert "x-content-type-options: nosniff" in head

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("status", "lines", "body"),
    [
        (400, ("content-length: 13",), b'{"what":"\xff\xff"}'),
        (400, ("content-length: 5000",), b"[" * 5000),
        (415, ("content-length: 3", "content-encoding: gzip"), b"\x1f\x8b\x08"),
        (400, ("content-length: 3", "content-length: 4"), b"abc"),
        (400, ("transfer-encoding: gzip",), b""),
        (400, ("content-length: -3",), b""),
    ],
)
def test_malformed_bodies_get_4xx(tmp_path: Path, status: int, lines: tuple[str, ...], body: bytes) -> None:
    async def story(server: Server) -> None:
        token = f"authorization: bearer {new_token(tmp_path, 'ann')}"
        found = await ask(server, f"POST {COMMANDS} HTTP/1.1", "host: 127.0.0.1", token, *lines, body=body)
        assert found[0] == status

    play(tmp_path, story, with_keys=True)


def test_compressed_frames_are_not_offered_and_not_taken(tmp_path: Path) -> None:
    """A frame that unpacks to gigabytes cannot be sent: the extension is not agreed on."""

    async def story(server: Server) -> None:
        asks = "sec-websocket-extensions: permessage-deflate; client_max_window_bits"
        wants = "sec-websocket-protocol: headwater.v1.msgpack"
        status, head, _ = await ask(server, "GET /v1/sync HTTP/1.1", "host: 127.0.0.1", UPGRADE, asks, wants)
        assert status == 101
        assert "sec-websocket-extensions" not in head

    play(tmp_path, story)


def test_malformed_request_behind_another_ends_the_connection_without_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(server: Server) -> None:
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n\x00\x01\r\n\r\n")
        await reader.read()
        writer.close()

    play(tmp_path, story)
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_log_has_the_place_of_a_defect_and_no_value(capsys: pytest.CaptureFixture[str]) -> None:
    log = make_logger(RealClock())
    try:
        try:
            int("the secret of ann")
        except ValueError as cause:
            raise KeyError("another secret") from cause
    except KeyError as error:
        log.error("request failed", exc_info=error)
    line = json.loads(capsys.readouterr().err)
    assert line["error"] == "KeyError"
    assert [place.split()[1] for place in line["places"]] == [
        "test_log_has_the_place_of_a_defect_and_no_value",
        "test_log_has_the_place_of_a_defect_and_no_value",
    ]
    assert "secret" not in json.dumps(line)
