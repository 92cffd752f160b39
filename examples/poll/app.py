"""A poll: everybody votes at once, into one map, until the deadline. Of a voter, the last word counts.

    headwater run examples/poll/app.py --insecure-local

Open the printed address in several windows, with ?user=ann, ?user=bob and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import headwater
from headwater import Cell, Piece, Refused, cell, computed, fold, handler

NEVER = datetime.max.replace(tzinfo=UTC)
OPEN_FOR = timedelta(minutes=10)


class Vote(headwater.Model):
    option: str
    changes: int = 0  # how often its voter had another opinion before


class Poll(Piece, name="poll.Poll"):
    question: Cell[str] = cell(default="What shall we drink?")
    options: Cell[tuple[str, ...]] = cell(default=("tea", "coffee", "water"))
    votes: Cell[Mapping[str, Vote]] = cell(default={})
    closes: Cell[datetime] = cell(default=NEVER)
    cast: Cell[int] = cell(default=0)  # votes that were handled, changed ones included

    # Costs the changed vote only, however many there are.
    tally = fold(votes, by=lambda vote: vote.option, start=0, add=lambda n, vote: n + 1, remove=lambda n, vote: n - 1)

    @computed
    def leader(self) -> str | None:
        """Who is ahead; of several that are level, the one that was named first."""
        tally = self.tally.get()
        best = max(tally.values(), default=0)
        return next((each for each in self.options.get() if best and tally.get(each) == best), None)

    @computed
    def is_open(self) -> bool:
        """Time is read like data: this runs again when the deadline has come."""
        return not self.ctx.past(self.closes.get())

    @computed
    def result(self) -> str:
        leader = self.leader.get()
        if self.is_open.get():
            return "open"
        return "nobody voted" if leader is None else f"{leader} it is"

    @computed(scope="user")
    def mine(self) -> str | None:
        vote = self.votes.key(self.ctx.user).get(None)
        return None if vote is None else vote.option

    @handler(allow="reader")
    def vote(self, option: str) -> int:
        """Vote, or vote again. Answers how often this voter has changed their mind."""
        if self.ctx.past(self.closes.get()):
            raise Refused("the poll is closed")
        if option not in self.options.get():
            raise Refused(f"there is no option {option!r}")
        if not self.ctx.user:
            raise Refused("say who you are")
        place = self.votes.key(self.ctx.user)
        before = place.get(None)  # collides only with another vote of the same voter
        changes = 0 if before is None else before.changes + 1
        place.set(Vote(option=option, changes=changes))
        self.cast.increment(1)  # merges with everybody else's
        return changes

    @handler
    def begin(self, question: str, options: tuple[str, ...], seconds: float) -> None:
        """Ask something else, from now on."""
        if not question.strip() or len({each.strip() for each in options}) < 2:
            raise Refused("a poll needs a question and two different options")
        if not 0 < seconds <= 86_400:
            raise Refused("a poll is open for a day at most")
        self.question.set(question.strip())
        self.options.set(tuple(dict.fromkeys(each.strip() for each in options)))
        self.votes.set({})
        self.cast.set(0)
        self.closes.set(self.ctx.now() + timedelta(seconds=seconds))


async def start(rt: headwater.Runtime) -> None:
    """What `headwater run` opens."""
    await rt.space("poll").open(Poll, "main")
