"""An environment with the wheel of this project, and the shell that runs commands of the documentation in it.

The wheel is built once. Its environment has the wheel itself and, through a path file, the packages of the environment
that runs the tests. It does not have the sources of the checkout: that environment knows them by a path file of its
own, which is not read here.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60
PORT = "8900"
"""The port of servers in the documentation. In a test it is a free one."""
READY = {
    "headwater run": " is at http://",
    "headwater serve": '"event": "listening"',
    "headwater worker": "working for ",
    "headwater intents http": "stored",
    "uvicorn": "Uvicorn running on ",
}
"""The beginnings of commands that go on until they are interrupted, and the text that each prints when it is ready."""
FINGERPRINT = re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{12}\b")
ENDS = (0, -signal.SIGINT, 128 + signal.SIGINT)

_SCRIPTS = {
    "pytest": "import sys, pytest\nsys.exit(pytest.main())\n",
    "uvicorn": "import sys, uvicorn\nsys.exit(uvicorn.main())\n",
    # Stands for Graphviz, which need not be installed.
    "dot": "import sys\nassert sys.stdin.read().startswith('digraph')\nprint('<svg/>')\n",
}


class Environment:
    """A virtual environment with the wheel."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.python = self.bin / "python"

    @classmethod
    def shared(cls, folder: Path) -> Environment:
        """Make the environment in a folder, unless another process has made it there."""
        with (folder / "installed.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            place = folder / "installed"
            return cls(place / "venv") if (place / "venv" / "bin" / "dot").exists() else cls.make(place)

    @classmethod
    def make(cls, folder: Path) -> Environment:
        """Build the wheel and install it into a new environment."""
        made = cls(folder / "venv")
        _call(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist"))
        (wheel,) = (folder / "dist").glob("*.whl")
        venv.create(made.folder, with_pip=False, symlinks=True)
        _call(
            *(sys.executable, "-m", "pip", "--python", str(made.python), "install", "--no-deps", "--no-index"),
            *("--quiet", "--disable-pip-version-check", str(wheel)),
        )
        (made.packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        for name, code in _SCRIPTS.items():
            file = made.bin / name
            file.write_text(f"#!{made.python}\n{code}")
            file.chmod(0o755)
        return made

    @property
    def packages(self) -> Path:
        (found,) = self.folder.glob("lib/python3.*/site-packages")
        return found

    def variables(self) -> dict[str, str]:
        """The variables of a shell in which the environment is active."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "COVERAGE", "COV_", "HEADWATER", "PYTEST"))
        }
        return {**kept, "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": str(self.folder)}


def _call(*words: str) -> None:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done


class Shell:
    """Runs commands as a person types them, in a folder. Commands that go on run until the shell is closed."""

    def __init__(self, environment: Environment, folder: Path) -> None:
        self._variables = environment.variables()
        self._running: list[tuple[str, subprocess.Popen[str], _Output]] = []
        self.folder = folder
        self.port = _free_port()

    def run(self, command: str) -> str:
        """Run a command to its end, or until it is ready if it goes on. Return its standard output."""
        words = command.partition("  #")[0].split()
        if words[0] == "cd":
            self.folder /= words[1]
            return ""
        if ready := next((text for begin, text in READY.items() if command.startswith(begin)), None):
            return self._start(command, ready)
        done = subprocess.run(
            ["bash", "-c", command.replace(PORT, self.port)],
            cwd=self.folder,
            env=self._variables,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        is_fine = done.returncode == 0 and (words[0] == "python" or not done.stderr)  # A program may log its errors.
        assert is_fine, f"{command}: {done}"
        return done.stdout.replace(self.port, PORT)

    def fetch(self, path: str, *, method: str = "GET") -> str:
        """Return the first part of an answer of the server that runs."""
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        try:
            with urllib.request.urlopen(asked, timeout=LIMIT_S) as answer:
                text: str = answer.read1().decode()
                return text
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{method} {path}: {error}") from None

    def _start(self, command: str, ready: str) -> str:
        has_port = "--port" in command or not command.startswith(("headwater run", "headwater serve"))
        line = command if has_port else f"{command} --port {PORT}"
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line.replace(PORT, self.port)}"],
            cwd=self.folder,
            env={**self._variables, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        output = _Output(process)
        self._running.append((command, process, output))
        return output.until(ready, command).replace(self.port, PORT)

    def close(self) -> None:
        """Interrupt the commands that still run, the last one first. Each has to end in order."""
        while self._running:
            command, process, output = self._running.pop()
            process.send_signal(signal.SIGINT)
            code = process.wait(LIMIT_S)
            assert code in ENDS, f"{command}: {code} {output.rest()}"

    def kill(self) -> None:
        for _, process, _ in self._running:
            process.kill()
            process.wait()


class _Output:
    """The lines that a process prints, read by a thread."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: Queue[str | None] = Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def until(self, text: str, command: str) -> str:
        """Return the line that holds a text."""
        seen = ""
        while True:
            try:
                line = self._lines.get(timeout=LIMIT_S)
            except Empty:
                line = None
            assert line is not None, f"{command} did not print {text!r}: {seen}"
            seen += line
            if text in line:
                return line

    def rest(self) -> str:
        self._thread.join(LIMIT_S)
        lines = iter(self._lines.get, None)
        return "".join(line for line in lines if line is not None)


def _free_port() -> str:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return str(held.getsockname()[1])


@contextmanager
def shell(environment: Environment, folder: Path, files: Mapping[str, str] | None = None) -> Iterator[Shell]:
    """A shell in a new folder that has these files."""
    folder.mkdir(parents=True)
    for name, text in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    made = Shell(environment, folder)
    try:
        yield made
        made.close()
    finally:
        made.kill()


def plain_lines(text: str) -> list[str]:
    """Lines without the parts that differ: durations, fingerprints of errors, and the widths that follow from them."""
    lines = [re.sub(r"\b[1-9][\d.]* (us|ms|s)\b", "TIME", line) for line in text.splitlines()]
    lines = [FINGERPRINT.sub("HASH", line) for line in lines]
    return [" ".join(line.split()) for line in lines if line.strip()]
