"""What starting costs: `import headwater`, and the help of the command line, against what they stand on.

Fresh processes, taking turns; of each the quickest counts. The same interpreter and the same caches for all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Final

from bench.figures import Figures, interleaved

ROUNDS: Final = 12
IMPORTS: Final = "import asyncio, msgspec, apsw"
PROGRAMS: Final = {
    IMPORTS: ["-c", IMPORTS],
    "import headwater": ["-c", "import headwater"],
    "import headwater, and its names": ["-c", "from headwater import *"],
    f"{IMPORTS}, cyclopts": ["-c", f"{IMPORTS}, cyclopts"],
    "headwater --help": ["-c", "import sys; from headwater.cli import main; sys.argv[1:] = ['--help']; main()"],
}
MOST: Final = 1.5


def run(figures: Figures) -> None:
    best = interleaved({name: _process(words) for name, words in PROGRAMS.items()}, rounds=ROUNDS)
    for name, against, at_most in (
        ("import headwater", IMPORTS, MOST),
        ("import headwater, and its names", IMPORTS, None),
        ("headwater --help", f"{IMPORTS}, cyclopts", MOST),
    ):
        ratio = best[name] / best[against]
        figures.report(name, best[name] * 1_000, "ms", against=against, ratio=ratio, at_most=at_most)


def _process(words: list[str]) -> Callable[[], int]:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}

    def once() -> int:
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, env=environment)
        return 1

    return once
