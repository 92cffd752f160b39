"""Asks a server's desk over HTTP, as commands and browsers do."""

from __future__ import annotations

import asyncio
import json
from http.client import HTTPConnection
from typing import Any

from headwater.protocol.command_messages import COMMAND_PATH
from headwater.server import Server


async def ask(
    server: Server, question: dict[str, Any] | bytes, *, token: str = "", origin: str = ""
) -> tuple[int, str]:
    """Ask one question; the status and the text of the answer."""

    def post() -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", server.address[1], timeout=20)
        # The content type that a browser sends to another site without asking it first.
        headers = {"content-type": "text/plain"}
        headers |= {"authorization": f"Bearer {token}"} if token else {}
        headers |= {"origin": origin} if origin else {}
        body = question if isinstance(question, bytes) else json.dumps(question).encode()
        connection.request("POST", COMMAND_PATH, body, headers)
        response = connection.getresponse()
        try:
            return response.status, response.read().decode()
        finally:
            connection.close()

    return await asyncio.to_thread(post)
