"""What the stories about events share: a world per story, an engine that says no on demand, and what is in its log.

A story answers what is wrong in the end, in words, and nothing if all is well. So it is told twice: as things are, and
with one mechanism switched off, where it has to complain.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from headwater import Piece
from headwater.data.address import Depth, DocKey
from headwater.engine import Engine, Logged
from headwater.engine.admission import Admission
from headwater.engine.branches import Branch
from headwater.engine.sessions import Session
from headwater.protocol.commit import Commit
from headwater.protocol.verdict import Collision, Conflict, Rejection, RuleRefused
from headwater.runtime import Policy, Runtime
from headwater.testing import Simulation
from headwater.testing.author_seeds import run_seed
from headwater.testing.author_stored import log_of

Story = Callable[[Simulation], Awaitable[list[str]]]
Answer = Callable[[Admission, Branch, Commit], Rejection]


def told(story: Story, *, seed: int = 0, faults: tuple[str, ...] = ()) -> list[str]:
    """Tell a story in a world of its own. What is wrong in the end; an error is wrong, too."""
    found: list[str] = []

    async def tell(sim: Simulation) -> None:
        found.extend(await story(sim))

    try:
        run_seed(tell, seed, faults)
    except AssertionError as error:
        found.append(str(error) or repr(error))
    return found


@contextmanager
def policy(**values: float) -> Iterator[None]:
    """Every runtime that is made inside has this policy."""
    defaults: Any = Runtime.__init__.__kwdefaults__
    with patch.dict(defaults, policy=Policy(**values)):  # type: ignore[arg-type]
        yield


# ---- an engine that says no ----------------------------------------------------------------------------


def stale(admission: Admission, branch: Branch, commit: Commit) -> Rejection:
    """Somebody was faster: with what is there now, which everybody knows already."""
    doc = commit.operations[0].doc
    seq = admission._heads.get(branch, doc).seq
    return Conflict((Collision(doc, (), Depth.DEEP, 0, seq, "rival", "somebody's handler"),))


def forbidden(admission: Admission, branch: Branch, commit: Commit) -> Rejection:
    """A rule is against it, for good."""
    return RuleRefused("of the test", "nobody writes here today")


class Front:
    """Stands in front of the engine: it rejects so many commits of a handler, as a server under load does."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[int, Answer]] = {}
        self.judged: Counter[str] = Counter()  # by handler: commits that came, those it rejected included
        self.rejected: Counter[str] = Counter()

    def reject(self, handler: str, times: int, answer: Answer = stale) -> None:
        """Reject the next commits of a handler."""
        self._answers[handler] = (times, answer)

    def judge(
        self,
        real: Callable[..., Any],
        admission: Admission,
        session: Session,
        branch: Branch,
        commit: Commit,
        size: int,
    ) -> Any:
        name = commit.provenance.node.rpartition(":")[2]
        self.judged[name] += 1
        left, answer = self._answers.get(name, (0, stale))
        if left > 0:
            self._answers[name] = (left - 1, answer)
            self.rejected[name] += 1
            return answer(admission, branch, commit)
        return real(admission, session, branch, commit, size)

    @contextmanager
    def standing(self) -> Iterator[Front]:
        real = Admission.judge

        def judge(admission: Admission, session: Session, branch: Branch, commit: Commit, size: int) -> Any:
            return self.judge(real, admission, session, branch, commit, size)

        with patch.object(Admission, "judge", judge):
            yield self


# ---- what is in the log ----------------------------------------------------------------------------------


def read(sim: Simulation, work: Callable[[Mapping[str, Engine]], Any]) -> Any:
    return sim._server.read(work)


def commits(sim: Simulation, space: str = "s", handler: str = "") -> list[Logged]:
    """The commits of a space, or those of a handler of that name."""

    def look(engines: Mapping[str, Engine]) -> list[Logged]:
        if space not in engines:
            return []
        return [each for each in log_of(engines[space]) if each.commit.provenance.node.endswith(handler)]

    found: list[Logged] = read(sim, look)
    return found


def stored(sim: Simulation) -> list[str]:
    """The streams of all events that are stored and that nobody has handled."""

    def look(engines: Mapping[str, Engine]) -> list[str]:
        return [event.stream for engine in engines.values() for event in engine.events(limit=1_000).items]

    found: list[str] = read(sim, look)
    return found


def durable(sim: Simulation, piece: Piece, member: str, space: str = "s") -> Any:
    """What a cell of a piece holds in the log of its space, as it is stored. None: nothing."""
    document: DocKey = getattr(piece, member).document.key

    def look(engines: Mapping[str, Engine]) -> Any:
        value = engines[space].read(document).value
        return value if isinstance(value, (int, str, bool, Mapping, tuple)) else None

    return read(sim, look)


async def outcome(work: Awaitable[Any]) -> Any:
    """What an awaited send answers, or the error that it ends with."""
    try:
        return await work
    except Exception as error:
        return error


async def outcomes(*work: Awaitable[Any]) -> list[Any]:
    return list(await asyncio.gather(*map(outcome, work)))
