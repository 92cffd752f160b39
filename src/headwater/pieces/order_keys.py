"""Order keys: texts that sort between two neighbours.

`between` makes the rank of an element that is put between two others, so that a move writes one small field and
touches no neighbour. It uses no randomness and no clock: the same neighbours give the same rank. Two writers who
insert at the same place at the same time may therefore get the same one; their order then falls back to the key, and
one of them has to be moved before an element can be put between them.

Ranks compare as plain `str`. A rank made here never ends in the lowest digit, because nothing made of digits sorts
between `V` and `V0`. How long they become:

- at the end, at the front, and when one thing after the other is put right behind (or right before) the same
  neighbour, `between` counts, in a notation that sorts: 10,000 of them take six characters;
- insertions at random places take few characters, about as many as the number of things has digits;
- a writer that always inserts between the last two inserted ones, on changing sides, adds a character in two
  insertions. Some such growth is unavoidable: n insertions have 2^n possible orders, so that a rank needs up to n
  bits.

Any other text is accepted as a neighbour, such as `ctx.now().isoformat()`. The digits behind its last other
character are then counted, so that a card put behind a timestamp stays before the timestamps that are still to come.
"""

from __future__ import annotations

from typing import Final

from headwater.errors import AuthoringError

__all__ = ["between"]

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BASE: Final = len(_DIGITS)
_VALUE: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_LOWEST: Final = _DIGITS[0]
_HIGHEST: Final = _DIGITS[-1]
_MIDDLE: Final = _DIGITS[_BASE // 2]

# A counter is a digit; or `z` and two digits; `zz` and four; `zzz` and eight, and so on with eight: each range is far
# larger than the one before and sorts behind it. Counting down is the same with `0`.
_WIDEST: Final = 8


def between(left: str | None, right: str | None) -> str:
    """A text that sorts behind `left` and before `right`. None is an open end.

    The same neighbours give the same rank: things with equal ranks are ordered by their keys.
    """
    for neighbour in (left, right):
        if neighbour is not None and not isinstance(neighbour, str):
            raise AuthoringError(
                f"between({left!r}, {right!r}): a rank is a text: pass the rank of each neighbour, or None at an end"
            )
    if right is None:
        return _MIDDLE if left is None else _behind(left)
    if left is not None and left >= right:
        raise AuthoringError(_wrong_order(left, right))
    start = _common(left or "", right)
    return right[:start] + _inside((left or "")[start:], right[start:], left, right)


def _wrong_order(left: str, right: str) -> str:
    if left == right:
        return (
            f"between({left!r}, {right!r}): nothing sorts between two equal ranks: give one of the two neighbours a "
            f"new rank first, between({left!r}, <the rank of the next one that differs, or None>)"
        )
    return (
        f"between({left!r}, {right!r}): the left rank sorts behind the right one: sort the neighbours by rank and pass "
        f"between({right!r}, {left!r})"
    )


def _common(left: str, right: str) -> int:
    """How many characters both begin with."""
    length = min(len(left), len(right))
    return next((at for at in range(length) if left[at] != right[at]), length)


def _inside(left: str, right: str, whole_left: str | None, whole_right: str) -> str:
    """Between two texts that differ from their first character on; `left` may be empty."""
    if not left:
        made = _before(right)
        if made is None:
            raise AuthoringError(
                f"between({whole_left!r}, {whole_right!r}): nothing sorts between them: give the right one a new rank "
                f"first, between({whole_left!r}, None)"
            )
        return made
    low, high = left[0], right[0]
    # The lowest digit is left out: a rank must not end in it.
    free = [digit for digit in _DIGITS[1:] if low < digit < high]
    if free:
        return free[len(free) // 2]
    return low + _behind(left[1:])


def _behind(text: str) -> str:
    """The next text behind `text`, and close to it, with no bound above."""
    start = _counter_start(text)
    counter = text[start:]
    if not counter:
        return text + _MIDDLE
    depth = len(counter) - len(counter.lstrip(_HIGHEST))
    number = _number(counter[depth:], depth) + 1
    if number % _BASE == 0:
        number += 1
    if number >= (_BASE - 1) * _BASE ** (_width(depth) - 1):  # It would begin with `z`, as the next range does.
        depth, number = depth + 1, 1
    return text[:start] + _HIGHEST * depth + _text(number, depth)


def _before(text: str) -> str | None:
    """The text before `text`, close to it, with no bound below; None where there is none."""
    head = text
    while head:
        start = _counter_start(head)
        counter = head[start:]
        if counter.strip(_LOWEST):
            return head[:start] + _counted_down(counter)
        if start == 0:
            break
        # Nothing but the lowest digits, as at the end of `+00:00`. A digit that sorts before the character in front of
        # them is as good; without one, a text before the rest sorts before all of it.
        lower = [digit for digit in _DIGITS[1:] if digit < head[start - 1]]
        if lower:
            return head[: start - 1] + lower[-1]
        head = head[: start - 1]
    # No digit sorts before it, so it takes a character that sorts before the digits. Only a foreign text comes here.
    for at in range(len(text) - 1, -1, -1):
        if text[at] != "\0":
            return text[:at] + chr(ord(text[at]) - 1) + _MIDDLE
    return None


def _counted_down(counter: str) -> str:
    depth = len(counter) - len(counter.lstrip(_LOWEST))
    number = _number(counter[depth:], depth) - 1
    if number % _BASE == 0:
        number -= 1
    if number < _BASE ** (_width(depth) - 1):  # It would begin with `0`, as the next range does.
        depth += 1
        number = _BASE ** _width(depth) - 1
    return _LOWEST * depth + _text(number, depth)


def _counter_start(text: str) -> int:
    """Where the digits at the end of `text` begin."""
    start = len(text)
    while start and text[start - 1] in _VALUE:
        start -= 1
    return start


def _width(depth: int) -> int:
    return min(1 << min(depth, _WIDEST), _WIDEST)


def _number(digits: str, depth: int) -> int:
    number = 0
    for digit in digits[: _width(depth)].ljust(_width(depth), _LOWEST):
        number = number * _BASE + _VALUE[digit]
    return number


def _text(number: int, depth: int) -> str:
    digits = []
    for _ in range(_width(depth)):
        number, value = divmod(number, _BASE)
        digits.append(_DIGITS[value])
    return "".join(reversed(digits))
