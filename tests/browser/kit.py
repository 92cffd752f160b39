"""A real browser and a real server process for tests of pages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue

import pytest

from tools import dev

ROOT = Path(__file__).parents[2]
START_S = 30.0


def browser() -> str:
    """The path of a browser. Without one the test is left out, or fails where one is required."""
    found = dev.browser()
    if found is not None:
        return found
    said = "there is no browser: apt-get install chromium"
    if os.environ.get("HEADWATER_BROWSER") == "required":
        pytest.fail(said)
    pytest.skip(said)


class Served:
    """`headwater run` of an application, in a process of its own that can be killed."""

    def __init__(self, app: Path, data: Path) -> None:
        self._app = app
        self._data = data
        self._process: subprocess.Popen[str] | None = None
        self._said: Queue[str] = Queue()
        self._listening: threading.Thread | None = None
        self.port = 0

    def start(self) -> None:
        """Start it, on the same port as before if there was one, and wait until it listens."""
        command = [sys.executable, "-m", "headwater.cli", "run", str(self._app), "--data", str(self._data)]
        command += ["--port", str(self.port), "--insecure-local"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
        self._said = Queue()
        self._listening = threading.Thread(target=self._listen, args=(self._process, self._said), daemon=True)
        self._listening.start()
        lines: list[str] = []
        while True:
            try:
                line = self._said.get(timeout=START_S)
            except Empty:
                raise AssertionError("it did not start:\n" + "".join(lines)) from None
            lines.append(line)
            if not line:
                raise AssertionError("it ended:\n" + "".join(lines))
            if "http://" in line:
                self.port = int(line.split("http://", 1)[1].split("/", 1)[0].rpartition(":")[2].split()[0])
                return

    @staticmethod
    def _listen(process: subprocess.Popen[str], said: Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            said.put(line)
        said.put("")

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._ended()

    def stop(self) -> int:
        """Ask it to end, and wait for it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._ended()

    def _ended(self) -> int:
        assert self._process is not None
        assert self._listening is not None
        code = self._process.wait(timeout=START_S)
        self._listening.join()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"


@contextmanager
def served(app: Path, data: Path) -> Iterator[Served]:
    """An application that runs as long as the block."""
    running = Served(app, data)
    try:
        running.start()
        yield running
    finally:
        running.kill()
