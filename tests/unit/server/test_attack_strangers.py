"""Attacks by strangers: what somebody without a token can make a server do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from headwater.protocol.messages import FromReplica, decode_from_replica
from headwater.runtime.channel.websocket import PATH
from headwater.server.sync import connection as module
from tests.unit.runtime.kit import address, run, serving


def test_a_long_message_before_hello_is_refused_without_being_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[int] = []

    def noted(data: bytes, *others: object) -> FromReplica:
        lengths.append(len(data))
        return decode_from_replica(data, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "decode_from_replica", noted)

    async def play() -> None:
        async with serving(tmp_path, insecure_local=True) as server:
            name = Subprotocol("headwater.v1.json")
            async with connect(address(server) + PATH, subprotocols=[name]) as stranger:
                await stranger.send('["transact",[' + "0," * 500_000 + "0]]")
                async with asyncio.timeout(30):
                    await stranger.wait_closed()

    run(play)
    assert not lengths
