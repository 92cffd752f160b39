"""What the tests of declarations share: a module that is made of text, with annotations that are text or are not."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import dedent
from types import ModuleType

_numbers = itertools.count()
LAZY = "from __future__ import annotations\n"
BEFORE = """\
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
import headwater
from headwater import *
from headwater import Cell, Computed, Each, Handler, Input, Model, Piece, Topic
from headwater import cell, child, computed, each, effect, fold, given, handler, materializer, reaction, resource, topic
class Line(Model):
    id: str
    cents: int = 0
"""


@contextmanager
def module(source: str, *, lazy: bool) -> Iterator[ModuleType]:
    """A module of the author's, as long as it is needed."""
    name = f"declared_{next(_numbers)}"
    made = sys.modules[name] = ModuleType(name)
    try:
        exec(
            compile((LAZY if lazy else "") + BEFORE + dedent(source), f"<{name}>", "exec", dont_inherit=True),
            vars(made),
        )
        yield made
    finally:
        del sys.modules[name]
