"""The project's commands: `./dev --help`.

Uses the standard library only, since it runs before anything is installed. Owns `.venv`: makes it on first use,
installs the packages that the command needs by hash and the project in place, and does so again when either changes.
Commands then run inside it.

Packages come in three tiers, each with a lock file of its own that contains the tiers before it: `run` (the project
with its extras), `test` (pytest and its helpers), `check` (type checkers, browsers, databases, and the libraries that
benchmarks compare with).
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
COMPILED = ROOT / "build" / "compiled"
NO_COMPILER = 3  # as tools.compiled says it
PYTHON = VENV / "bin" / "python"
TIERS = ("run", "test", "check")
"""What can be installed, the smallest first: a tier contains those before it."""
TIER_OF = {"demo": "run", "model": "run", "test": "test", "flaky": "test", "chaos": "test"}
"""The tier that a command needs, if it is not the largest; see `tier_of`."""
LOCKS = ROOT / "requirements"
PYPROJECT = ROOT / "pyproject.toml"
# Written last, so that an interrupted install is done again.
STAMP = VENV / "headwater-stamp"
# There while pip works. If it is found later, pip was interrupted and may have left half a package behind.
UNFINISHED = VENV / "headwater-unfinished"
# Beside .venv, not inside: it must survive .venv being cleared while another process waits for it.
MUTEX = ROOT / ".dev-lock"

QUICK = "not thorough"
"""Which tests `./dev test` runs, as pytest's marker expression."""
TEST_SCALE = "0.01"
"""Which part of its full count each random suite runs in `./dev test`."""
CHECK_SCALE = "0.1"
CHECK_MINUTES = 25
"""How long `./dev check` should take at most. Beyond, its last line says so."""
PARALLEL = ("-n", "4", "--dist", "worksteal")
"""For two cores: further workers use the time in which tests wait for servers and processes."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
"""Commands of the browsers that tests/browser can use, the first one that there is."""
BROWSER_TESTS = ROOT / "tests" / "browser"
BENCHES = ("startup", "engine", "sync", "events", "resume", "reactions", "reactive", "author", "attack")
"""Those of bench/__main__.py, which imports packages that `--help` does not install."""

PIP_INSTALL = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input")


class Failed(Exception):
    """Something that the person at the terminal has to know. Shown without a traceback."""


# --- the environment -------------------------------------------------------------------------------------


def prepare(tier: str) -> None:
    """Make `.venv` contain a tier of packages. Takes a few milliseconds if it does."""
    if is_prepared(tier):
        return
    with one_at_a_time():
        if is_prepared(tier):
            return  # Another ./dev did it while this one waited.
        started = time.monotonic()
        keep_or_make_environment()
        UNFINISHED.touch()
        STAMP.unlink(missing_ok=True)
        lock = lock_of(tier)
        say(f"installing {lock.relative_to(ROOT)} into {VENV.name} (this happens once; later calls start at once)")
        # The lock has every package. With dependencies, pip looks for the newest release of a package that is named
        # with an extra (`psycopg[binary]`), and refuses it because the lock has another one.
        install("--no-deps", "--require-hashes", "--requirement", str(lock))
        # Without isolation and dependencies: everything it needs has just been installed, by hash.
        install("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
        UNFINISHED.unlink()
        STAMP.write_text(f"{tier}\n{stamp()}")
        say(f"ready after {time.monotonic() - started:.0f} s")


def is_prepared(tier: str) -> bool:
    try:
        installed, _, made_from = STAMP.read_text().partition("\n")
    except (FileNotFoundError, NotADirectoryError):
        return False
    return installed in TIERS[TIERS.index(tier) :] and made_from == stamp()


def lock_of(tier: str) -> Path:
    return LOCKS / f"{tier}.lock"


def stamp() -> str:
    """What `.venv` was made from. Its own path belongs to that: the scripts inside it name it."""
    digest = hashlib.sha256()
    for path in (*map(lock_of, TIERS), PYPROJECT):
        digest.update(path.read_bytes())
    return f"{digest.hexdigest()}\n{home_of_venv()}"


def home_of_venv() -> str:
    """Where `.venv` is and which Python it runs, or an empty string if it does not run or is too old."""
    code = "import sys; print(*sys.version_info[:3], sep='.'); sys.exit(sys.version_info < (3, 11))"
    command = [str(PYTHON), "-I", "-S", "-c", code]
    try:
        version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{VENV} {version}"


def keep_or_make_environment() -> None:
    """Keep a `.venv` that works here, also one that was not made by this script; make it anew otherwise."""
    home = home_of_venv()
    moved = STAMP.exists() and STAMP.read_text().splitlines()[2:] != [home]
    usable = home and not moved and not UNFINISHED.exists()
    if not (usable and run_quietly(PYTHON, "-m", "pip", "--version")):
        make_environment()


def make_environment() -> None:
    say(f"making {VENV.name} with Python {sys.version.split()[0]}")
    if not run_quietly(sys.executable, "-c", "import venv, ensurepip"):
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise Failed(
            f"{sys.executable} has no venv module, or its ensurepip part is missing.\n"
            "Install it and run the same command again:\n"
            f"  Debian, Ubuntu:  apt-get install python3-venv   (or python{version}-venv)\n"
            "  elsewhere:       it is part of Python as pyenv, Homebrew and Fedora install it"
        )
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=False)
    if made.returncode != 0:
        raise Failed(f"could not make {VENV}; the lines above say why. Remove it and run the same command again.")


def install(*arguments: str) -> None:
    if subprocess.run([PYTHON, *PIP_INSTALL, *arguments], cwd=ROOT, check=False).returncode != 0:
        UNFINISHED.unlink()  # pip gave up in order: it leaves whole packages only.
        raise Failed(
            f"`pip install {shlex.join(relative(arguments))}` failed; its lines above say why.\n"
            "It needs a package index that it can reach (`pip config list` shows which it asks).\n"
            "A package without a wheel for this machine also needs a C compiler and the Python headers:\n"
            "  Debian, Ubuntu:  apt-get install build-essential python3-dev"
        )


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Two calls must not install into one `.venv` at once. The kernel frees the lock if this one dies."""
    with MUTEX.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say(f"another ./dev is preparing {VENV.name}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


# --- the commands ----------------------------------------------------------------------------------------


def demo(check: bool) -> int:
    return run(module("examples.demo", *(["--check"] if check else [])))


def test(marked: str, arguments: Sequence[str]) -> int:
    """The tests that a newcomer runs: all but those marked `thorough`, random suites at their smallest counts.

    `marked` chooses among them: the packages that the others import are not installed.
    """
    counts = {"HEADWATER_RANDOM_SCALE": os.environ.get("HEADWATER_RANDOM_SCALE", TEST_SCALE)}
    return run(pytest("-m", quick(marked), *arguments), {**counts, **kept_bytecode()})


def quick(marked: str = "") -> str:
    """The marker expression of `./dev test -m MARKED`."""
    return f"({QUICK}) and ({marked})" if marked else QUICK


def is_quick(expression: str) -> bool:
    """Whether a marker expression is one of `./dev test`: folders of which no test is run are not collected then."""
    return expression == QUICK or expression.startswith(f"({QUICK}) and (")


def sim(seeds: int | None, arguments: Sequence[str]) -> int:
    counts = {"HEADWATER_RANDOM_SCALE": os.environ.get("HEADWATER_RANDOM_SCALE", "1.0")}
    if seeds is not None:
        counts["HEADWATER_SEEDS"] = str(seeds)
    return run(pytest("--durations=10", *arguments), {**counts, **kept_bytecode()})


def planted(names: Sequence[str]) -> int:
    return run(module("tools.planted", *names), kept_bytecode())


def flaky(arguments: Sequence[str]) -> int:
    return run(module("tools.flaky", *arguments), kept_bytecode())


def help_of(name: str) -> int:
    """Print the help of a module that uses the standard library only, with the Python that runs this one."""
    return subprocess.run([sys.executable, "-m", name, "--help"], cwd=ROOT, check=False).returncode


def kept_bytecode() -> dict[str, str]:
    """The tests start hundreds of processes: where bytecode is not kept, each compiles the whole package again."""
    return {"PYTHONDONTWRITEBYTECODE": ""} if os.environ.get("PYTHONDONTWRITEBYTECODE") else {}


def bench(names: Sequence[str], *, pure: bool) -> int:
    """The reactive figures are those of the compiled package, where there is a compiler; --pure for the others."""
    compiled = not pure and (not names or "reactive" in names) and build() == 0
    return run(module("bench", *names), {"PYTHONPATH": str(COMPILED)} if compiled else None)


def build() -> int:
    """Compile the hot modules into build/compiled."""
    return run(module("tools.compiled"))


def check() -> int:
    """Every check, also after one has failed: the second finding should not need a second run."""
    steps = {
        "format": module("ruff", "format", "--check", "."),
        "lint": module("ruff", "check", "."),
        "types": module("mypy"),
        "layers": [str(VENV / "bin" / "lint-imports"), "--no-logo"],
        "rooms": module("tools.rooms"),
        "seams": module("tools.seams"),
        "native": module("tools.compiled"),  # The tests try the native code, too, if it is there.
        # First what `./dev test` runs, then the rest, so that the coverage of each is known.
        "test": module("tools.covered", "run", "test", *PARALLEL, "-m", quick()),
        "rest": module("tools.covered", "run", "rest", *PARALLEL, "-m", "thorough or random"),
        "coverage": module("tools.covered", "report", "test", "rest"),
    }
    variables = {
        "test": {"HEADWATER_RANDOM_SCALE": TEST_SCALE, **kept_bytecode()},
        "rest": {"HEADWATER_RANDOM_SCALE": CHECK_SCALE, **kept_bytecode()},
    }
    results = {}
    began = time.monotonic()
    for name, command in steps.items():
        print(f"\n=== {name}: {shlex.join(relative(command))}", flush=True)
        started = time.monotonic()
        code = run(command, variables.get(name), announce=False)
        if name == "native" and code == NO_COMPILER:
            code = 0  # It said so. Everything runs without.
        results[name] = (code, time.monotonic() - started)
    print("\n=== summary")
    for name, (code, seconds) in results.items():
        print(f"{'ok    ' if code == 0 else 'FAILED'} {name:<8} {seconds:6.1f} s", end="")
        print("" if code == 0 else f"   run it alone: {shlex.join(relative(steps[name]))}")
    if browser() is None and os.environ.get("HEADWATER_BROWSER") != "required":  # The tests fail where it is.
        print(f"NOT RUN: {', '.join(browser_tests())}: there is no browser here; apt-get install chromium")
    print(f"./dev check took {bounded((time.monotonic() - began) / 60)}")
    return 1 if any(code for code, _ in results.values()) else 0


def bounded(minutes: float) -> str:
    """A duration and whether it is within its bound. A check does not fail beyond: the machine may be busy."""
    if minutes > CHECK_MINUTES:
        return f"{minutes:.1f} minutes: !! over the bound of {CHECK_MINUTES} minutes"
    return f"{minutes:.1f} minutes (at most {CHECK_MINUTES})"


def browser() -> str | None:
    """The path of a browser for tests/browser, if there is one."""
    return next((found for found in map(shutil.which, BROWSERS) if found is not None), None)


def browser_tests() -> list[str]:
    """The files whose tests are left out where there is no browser."""
    return relative([str(path) for path in sorted(BROWSER_TESTS.glob("test_*.py"))])


def lock() -> int:
    """Resolve pyproject.toml anew. Needs the package index; the resolver gets an environment of its own."""
    with tempfile.TemporaryDirectory(prefix="headwater-lock-") as scratch:
        say("installing the resolver into a temporary environment")
        subprocess.run([sys.executable, "-m", "venv", scratch], check=True)
        python = Path(scratch) / "bin" / "python"
        subprocess.run([python, *PIP_INSTALL, "pip-tools>=7.4"], check=True)
        pins = Path(scratch) / "pins.txt"
        pins.touch()
        for tier in reversed(TIERS):  # The largest one first: it decides the versions of the others.
            resolve(tier, python, Path(scratch), pins)
            say(f"wrote {lock_of(tier).relative_to(ROOT)}")
    return 0


def resolve(tier: str, python: Path, scratch: Path, pins: Path) -> None:
    """Write the lock file of one tier, with the versions in `pins` where it names them, and pin its own."""
    wanted = scratch / f"{tier}.in"
    wanted.write_text("".join(f"{line}\n" for line in [f"-c {pins}", *requirements(tier)]))
    resolved = scratch / f"{tier}.txt"
    if lock_of(tier).exists():
        shutil.copy(lock_of(tier), resolved)  # Versions that still fit stay: a lock moves when it is deleted.
    command = [
        *(str(python), "-m", "piptools", "compile", "--quiet", "--generate-hashes", "--strip-extras"),
        *("--allow-unsafe", "--no-header", "--no-annotate"),
        # The lock names packages, never the hosts they come from: every machine asks its own index.
        *("--no-emit-index-url", "--no-emit-trusted-host", "--no-emit-find-links", "--no-emit-options"),
        *("--output-file", str(resolved), str(wanted)),
    ]
    if subprocess.run(command, check=False).returncode != 0:
        raise Failed("the resolver found no set of versions that fits pyproject.toml; its lines above say why")
    body = resolved.read_text()
    pins.write_text("".join(f"{line.split()[0]}\n" for line in body.splitlines() if "==" in line))
    LOCKS.mkdir(exist_ok=True)
    lock_of(tier).write_text(
        f"# Packages of the tier `{tier}`, resolved from pyproject.toml by `./dev lock`. Do not edit.\n"
        "# To move to newer versions, delete this folder first.\n" + body
    )


def requirements(tier: str) -> list[str]:
    """The package's own dependencies, those of its extras, and the dependency groups up to `tier`."""
    import tomllib  # noqa: PLC0415 (only this command needs it)

    tables = tomllib.loads(PYPROJECT.read_text())
    project = tables["project"]
    groups = [
        project["dependencies"],
        *project["optional-dependencies"].values(),
        *(tables["dependency-groups"][name] for name in TIERS[: TIERS.index(tier) + 1]),
    ]
    return sorted({requirement for group in groups for requirement in group})


# --- running things --------------------------------------------------------------------------------------


def module(name: str, *arguments: str) -> list[str]:
    return [str(PYTHON), "-m", name, *arguments]


def pytest(*arguments: str) -> list[str]:
    return module("pytest", *PARALLEL, *arguments)


def run(command: Sequence[str], variables: Mapping[str, str] | None = None, *, announce: bool = True) -> int:
    variables = variables or {}
    if announce:
        settings = [f"{name}={value}" for name, value in variables.items()]
        say(" ".join([*settings, shlex.join(relative(command))]))
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=False).returncode


def run_quietly(*command: str | Path) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def relative(command: Sequence[str]) -> list[str]:
    """The command as a person in the project's directory would type it."""
    return [part.removeprefix(f"{ROOT}{os.sep}") for part in command]


def say(message: str) -> None:
    print(f"./dev: {message}", file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="./dev",
        description="Everything one does with this project. The first call makes .venv.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    one = commands.add_parser("demo", help="see what works so far, in under a minute")
    one.add_argument("--check", action="store_true", help="also verify what it shows; fails if anything is off")
    one = commands.add_parser(
        "test",
        usage="./dev test [-h] [-m EXPR] [ARGUMENT ...]",
        help="run the tests that take three minutes together; takes pytest's arguments",
        epilog=f"Other arguments are pytest's; `{VENV.name}/bin/python -m pytest --help` lists them.",
    )
    one.add_argument("-m", dest="marked", default="", metavar="EXPR", help="of these tests, those with such markers")
    commands.add_parser(
        "check",
        help="format, lint, types, layers, seams, all tests and their coverage: what must pass before a change lands",
    )
    one = commands.add_parser("bench", help="run the benchmarks, or those named; one JSON line per figure")
    one.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHES)}; without a name, all")
    one.add_argument("--pure", action="store_true", help="do not compile anything, also if there is a C compiler")
    one = commands.add_parser(
        "sim",
        usage="./dev sim [-h] [--seeds N] [ARGUMENT ...]\n       ./dev sim --fuzz N [--seed N]\n"
        "       ./dev sim --planted [-h] [--list] [NAME ...]",
        help="run the tests with random suites at their full counts; takes pytest's arguments, too",
        epilog="Without --planted, other arguments are pytest's. With it, NAME is the beginning of the names of the "
        "faults to plant, all if there is none, and --list prints the faults and plants none.",
        add_help=False,  # With --planted, it is another one.
    )
    one.add_argument("-h", "--help", action="store_true", help="show this help message and exit")
    one.set_defaults(print_help=one.print_help)
    one.add_argument("--seeds", type=count, metavar="N", help="cases per random suite, instead of its own count")
    one.add_argument(
        "--fuzz", type=count, metavar="N", help="send N messages that no client would send, and nothing else"
    )
    one.add_argument(
        "--planted", action="store_true", help="plant each known bug in a copy of the product; its test has to find it"
    )
    commands.add_parser(
        "flaky",
        help="repeat the tests that touch real time, sockets, threads or processes; print those that failed once",
        add_help=False,  # tools.flaky has it.
    ).add_argument("-h", "--help", action="store_true")
    one = commands.add_parser(
        "chaos", help="kill, pause and hinder a server while clients write to it, and check what they were told"
    )
    one.add_argument("--minutes", type=float, default=10.0, metavar="N", help="how long (default: 10)")
    one.add_argument("--seed", type=int, metavar="N", help="repeat the faults of this seed")
    commands.add_parser(
        "baseline",
        help="count and measure the project as it is: code, imports, calls, times; writes bench/baseline.json",
    )
    commands.add_parser("build", help="compile the hot modules into build/compiled (needs a C compiler)")
    one = commands.add_parser("model", help="check the models of the protocol and of derived results")
    one.add_argument("level", nargs="?", choices=("quick", "full", "vast"), default="quick")
    commands.add_parser("lock", help="resolve pyproject.toml into the lock files in requirements/ anew")
    return top


def tier_of(options: argparse.Namespace) -> str:
    """The smallest tier that has all packages of a command."""
    if options.command == "sim" and options.planted:
        return "test"  # No test of tests/planted.txt is in a folder that needs more.
    return TIER_OF.get(options.command, "check")


def count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def main(argv: Sequence[str]) -> int:
    top = parser()
    options, rest = top.parse_known_args(argv)
    if rest and options.command not in ("test", "sim", "flaky"):
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    if options.command == "sim" and options.planted and options.seeds is not None:
        top.error("--planted takes no --seeds: tests/planted.txt says how many cases each bug has")
    if options.command == "flaky" and options.help:
        return help_of("tools.flaky")
    if options.command == "sim" and options.help:
        if options.planted:
            return help_of("tools.planted")
        options.print_help()
        return 0
    try:
        if options.command == "lock":
            return lock()
        prepare(tier_of(options))
        match options.command:
            case "demo":
                return demo(options.check)
            case "test":
                return test(options.marked, rest)
            case "check":
                return check()
            case "bench":
                return bench(options.names, pure=options.pure)
            case "baseline":
                return run(module("tools.baseline"))
            case "build":
                return build()
            case "model":
                return run(module("model", options.level))
            case "sim":
                if options.fuzz is not None:
                    return run(module("tools.fuzz", str(options.fuzz), *rest))
                return planted(rest) if options.planted else sim(options.seeds, rest)
            case "chaos":
                seed = [] if options.seed is None else ["--seed", str(options.seed)]
                return run(module("tools.chaos", "--minutes", str(options.minutes), *seed))
            case "flaky":
                return flaky(rest)
            case unknown:
                raise AssertionError(f"a command without a branch: {unknown}")
    except Failed as failure:
        say(str(failure))
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
