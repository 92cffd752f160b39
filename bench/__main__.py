"""`./dev bench [NAME ...]`: runs the named benches, or all; exits 1 when a goal is not met."""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench import attack, engine, events, reactions, resume, startup, sync
from bench.author import run as author
from bench.figures import Figures, note
from bench.reactive import run as reactive

BENCHES: dict[str, Callable[[Figures], None]] = {
    "startup": startup.run,
    "engine": engine.run,
    "sync": sync.run,
    "events": events.run,
    "resume": resume.run,
    "reactions": reactions.run,
    "reactive": reactive.run,
    "author": author.run,
    "attack": attack.run,
}


def main(names: list[str]) -> int:
    if "--help" in names or "-h" in names:
        print(f"usage: ./dev bench [NAME ...]\n\nbenches: {', '.join(BENCHES)}; without a name, all of them")
        return 0
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"no bench named {', '.join(unknown)}; there are: {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    figures = Figures()
    for name in names or list(BENCHES):
        note(f"bench {name}")
        BENCHES[name](figures)
    if figures.missed:
        note(f"goals not met: {', '.join(figures.missed)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
