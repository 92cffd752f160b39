"""An agent that reads: it is given a question, follows links from page to page, and keeps what it learnt.

    headwater run examples/agent/app.py --insecure-local

Its memory is in cells, so that it can be stopped at any moment: started again, it goes on with the page it was at.
What comes from outside is a resource: fetched while somebody wants it, retried, never twice for the same page. Here the
pages are files of the folder `library`; a model, a search or a browser would be called in the same place.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

import headwater
from headwater import Backoff, Cell, Piece, Ready, Refused, cell, computed, handler, resource

LIBRARY = Path(__file__).parent / "library"
FIRST = "start"
MOST_PAGES = 50
LINK = re.compile(r"\[\[([\w-]+)\]\]")
WORD = re.compile(r"\w{4,}")


class Page(headwater.Model):
    name: str
    sentences: tuple[str, ...]
    links: tuple[str, ...] = ()


class Memory(headwater.Model):
    order: int  # when it was read, counted from 0
    sentences: tuple[str, ...]
    links: tuple[str, ...] = ()


async def read(name: str) -> str:
    """The text of a page. Stands for whatever is slow and outside."""
    return await asyncio.to_thread((LIBRARY / f"{name}.txt").read_text, encoding="utf-8")


class Agent(Piece, name="agent.Agent"):
    question: Cell[str] = cell(default="")
    memory: Cell[Mapping[str, Memory]] = cell(default={})

    @computed
    def wanted(self) -> str:
        """The page to read next: the first link that leads somewhere new. Empty: there is nothing to do."""
        memory = self.memory.get()
        if not self.question.get() or len(memory) >= MOST_PAGES:
            return ""
        found = [FIRST, *(link for each in sorted(memory.values(), key=lambda m: m.order) for link in each.links)]
        return next((name for name in found if name not in memory), "")

    @resource(wanted, timeout_ms=30_000, limit=2, backoff=Backoff.exponential(base_ms=200, max_ms=5_000, jitter=0.5))
    async def page(self, name: str) -> Page:
        if not name:
            return Page(name="", sentences=())
        text = await read(name)
        parts = [each.strip() for each in LINK.sub(r"\1", text).replace("\n", " ").split(". ")]
        return Page(name=name, sentences=tuple(each for each in parts if each), links=tuple(LINK.findall(text)))

    @computed
    def findings(self) -> tuple[str, ...]:
        """The sentences that have most of the question's words, best first."""
        asked = {word.lower() for word in WORD.findall(self.question.get())}
        scored = [
            (len(asked & {word.lower() for word in WORD.findall(sentence)}), -each.order, sentence)
            for each in self.memory.get().values()
            for sentence in each.sentences
        ]
        return tuple(sentence for score, _, sentence in sorted(scored, reverse=True) if score)[:5]

    @computed
    def status(self) -> str:
        wanted, count = self.wanted.get(), len(self.memory.get())
        if not self.question.get():
            return "waiting for a question"
        return f"reading {wanted}, {count} read" if wanted else f"done, {count} read"

    @handler
    def ask(self, question: str) -> None:
        if not WORD.search(question):
            raise Refused("ask something with a longer word in it")
        self.question.set(question.strip())
        self.memory.set({})

    @handler
    def learn(self, page: Page) -> None:
        """Remember a page, once: a page that is known, or was for another question, changes nothing."""
        if page.name != self.wanted.get():
            return
        order = len(self.memory.get())
        self.memory.key(page.name).set(Memory(order=order, sentences=page.sentences, links=page.links))


async def start(rt: headwater.Runtime) -> None:
    """What `headwater run` opens."""
    await rt.space("agent").open(Agent, "main")


async def work(rt: headwater.Runtime) -> None:
    """What `headwater run` does as long as the process lives: carry what was fetched into memory, page after page.

    It may end at any await, and nothing is lost: what was fetched is kept, and `learn` knows what it has learnt.
    """
    agent = rt.space("agent").piece(Agent, "main")
    async for state in agent.page.watch():
        if isinstance(state, Ready) and state.value.name:
            await agent.learn.send(state.value)
