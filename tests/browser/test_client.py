"""The script of a page in a real browser: what it shows of its own writes, inputs that are bound, and its ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Page, sync_playwright

from tests.browser.kit import Served, browser, served

APP = """
from __future__ import annotations

from collections.abc import Mapping

import headwater
from headwater import Cell, Input, Piece, Refused, cell, computed, each, given, handler


class Row(Piece):
    number: Input[int] = given()
    note: Cell[str] = cell(default="")

    @computed
    def double(self) -> int:
        return self.number.get() * 2


class Form(Piece):
    numbers: Cell[Mapping[str, int]] = cell(default={})
    count: Cell[int] = cell(default=0)
    tags: Cell[tuple[str, ...]] = cell(default=())
    text: Cell[str] = cell(default="")
    number: Cell[int] = cell(default=7)
    colour: Cell[str] = cell(default="red")
    here: Cell[str] = cell(default="", scope="session")

    @handler
    def fill(self, by: int) -> int:
        if by < 0:
            raise Refused("less than none")
        self.count.set(by)
        return by

    @each(numbers)
    def rows(self, number: Input[int]) -> Row:
        return Row(number=number)

    @handler
    def keep(self, key: str) -> None:
        self.numbers.key(key).set(1)

    @handler
    def drop(self, key: str) -> None:
        self.numbers.key(key).delete()


async def start(rt: headwater.Runtime) -> None:
    await rt.space("forms").open(Form, "main")
"""
PAGE = """<!doctype html><title>form</title>
<input id="text"><input id="number" type="number">
<input name="colour" type="radio" value="red" id="red"><input name="colour" type="radio" value="blue" id="blue">
<script type="module">
  import { connect } from "/headwater.js";
  window.app = connect({ user: "ann" });
  window.form = app.space("forms").piece("Form", "main");
  window.errors = [];
  form.text.bind(document.getElementById("text"));
  form.number.bind(document.getElementById("number"), { onError: error => errors.push(error.message) });
  for (const id of ["red", "blue"]) form.colour.bind(document.getElementById(id));
  window.counts = []; window.tags = []; window.here = [];
  form.count.watch(() => { throw new Error("a watcher that fails"); });
  form.count.watch(value => counts.push(value));
  form.tags.watch(value => tags.push(value));
  form.here.watch(value => here.push(value));
  window.online = [];
  app.onConnection(isOnline => online.push(isOnline));
</script>
"""
WITHIN_MS = 20_000


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = browser()
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@pytest.fixture
def form(tmp_path: Path) -> Iterator[Served]:
    folder = tmp_path / "app"
    (folder / "page").mkdir(parents=True)
    (folder / "form.py").write_text(APP)
    (folder / "page" / "index.html").write_text(PAGE)
    with served(folder / "form.py", tmp_path / "data") as running:
        yield running


def opened(chromium: Browser, form: Served) -> Page:
    page = chromium.new_context().new_page()
    page.set_default_timeout(WITHIN_MS)
    page.goto(form.url)
    page.wait_for_function("window.app && app.isOnline && counts.length > 0 && tags.length > 0")
    return page


def told(page: Page, script: str) -> Any:
    return page.evaluate(script)


def test_an_own_write_is_shown_once(chromium: Browser, form: Served) -> None:
    page = opened(chromium, form)
    for _ in range(3):
        told(page, "form.count.increment(1)")
        told(page, "form.tags.push('x')")
    assert told(page, "form.count.set(10).then(() => form.tags.set(['y']))") is None
    page.wait_for_function("form.count.value === 10 && form.tags.value.length === 1")
    assert max(told(page, "counts.slice(0, -1)")) <= 10
    assert sorted(set(told(page, "counts"))) == told(page, "counts.filter((n, at) => counts.indexOf(n) === at)")
    assert max(len(each) for each in told(page, "tags")) == 3


def test_errors_have_the_names_of_their_classes(chromium: Browser, form: Served) -> None:
    page = opened(chromium, form)
    assert told(page, "form.fill.send({ by: -1 }).catch(String)") == "Refused: less than none"
    assert told(page, "form.fill.send(2).catch(error => error.name)") == "Failed"


def test_one_wrong_call_fails_alone(chromium: Browser, form: Served) -> None:
    page = opened(chromium, form)
    wrong = {
        "form.fill.send(2)": "name each argument",
        "form.fill.send('x')": "name each argument",
        "form.fill.send({ by: 1n })": "cannot be written as JSON",
        "form.fill.send(() => 1)": "name each argument",
        "form.fil.send({})": "has no member 'fil'",
        "form.count.send({})": "is not a handler",
        "form.count.push(1)": "push needs a cell of a tuple",
        "form.count.set(1n)": "cannot be written as JSON",
        "form.count.increment(1n)": "cannot be written as JSON",
        "form.count.set('x')": "expected int",
        "form.count.set()": "expected int",
        "form.text.add('x')": "add needs a cell of a tuple",
        "form.text.discard('x')": "discard needs a cell of a tuple",
        "form.text.set('x'.repeat(5e6))": "over the limit of 4194304",
        "form.text.set('x'.repeat(70e6))": "over the limit of 4194304",
        "app.space('forms').piece('Form').fill.send({ by: 1 })": "cannot name a piece",
        "app.space().piece('Form', 'main').fill.send({ by: 1 })": "`space`",
        "form.text.at({}).set('x')": "$.place.path",
    }
    for call, why in wrong.items():
        assert why in told(page, f"{call}.then(() => 'it was done', error => error.message)"), call
    with pytest.raises(Error, match="BigInt"):
        told(page, "app.space('forms').piece('Form', 1n).text.watch(() => 0)")
    assert told(page, "[online, app.isOnline]") == [[False, True], True]
    assert told(page, "form.fill.send({ by: 5 })") == 5
    page.wait_for_function("form.count.value === 5 && counts.at(-1) === 5")


def test_watch_of_a_row_that_left_tells_its_page(chromium: Browser, form: Served) -> None:
    page = opened(chromium, form)
    logged: list[str] = []
    page.on("console", lambda message: logged.append(message.text))
    told(page, "form.keep.send({ key: 'a' })")
    told(page, "window.ended = []")
    told(page, "void form.rows.watch(rows => window.rows = rows)")
    page.wait_for_function("window.rows?.length === 1")
    told(page, "window.row = app.space('forms').child(rows[0])")
    told(page, "void row.note.bind(document.createElement('input'), { onError: error => ended.push(error) })")
    told(page, "void row.double.watch(n => window.n = n, { onError: error => ended.push(error) })")
    page.wait_for_function("window.n === 2")
    assert logged == []
    told(page, "form.drop.send({ key: 'a' })")
    page.wait_for_function("ended.length === 2 && window.rows.length === 0")
    assert told(page, "ended.map(error => [error.name, error.message.includes('its key left')])") == [
        ["Failed", True],
        ["Failed", True],
    ]
    assert logged == []


def test_inputs_are_bound_by_their_kind(chromium: Browser, form: Served) -> None:
    one, other = opened(chromium, form), opened(chromium, form)
    one.wait_for_function("document.getElementById('number').value === '7'")
    assert one.locator("#red").is_checked()
    one.fill("#number", "42")
    other.wait_for_function("document.getElementById('number').value === '42'")
    one.check("#blue")
    other.wait_for_function("document.getElementById('blue').checked && !document.getElementById('red').checked")
    assert other.locator("#red").get_attribute("value") == "red"
    one.fill("#number", "1.5")
    one.wait_for_function("errors.length === 1")
    assert "expected int" in told(one, "errors[0]")


def test_two_people_who_type_into_one_field_see_the_same(chromium: Browser, form: Served) -> None:
    one, other = opened(chromium, form), opened(chromium, form)
    for number in range(6):
        one.fill("#text", f"one {number}")
        other.fill("#text", f"other {number}")
        same = "document.getElementById('text').value"
        other.wait_for_timeout(250)  # as long as the script waits for more to be typed, and a little more
        for page in (one, other):
            page.wait_for_function(f"form.text.value === {same}")
        one.wait_for_function(f"form.text.value === {told(other, 'form.text.value')!r}")


def test_a_window_that_was_duplicated_has_a_session_of_its_own(chromium: Browser, form: Served) -> None:
    context = chromium.new_context()
    first = context.new_page()
    first.goto(form.url)
    first.wait_for_function("app.isOnline && here.length > 0")
    told(first, "form.here.set('first')")
    with context.expect_page() as opening:
        told(first, "window.open(location.href)")  # It has a copy of what the first one keeps.
    second = opening.value
    second.wait_for_function("window.app && app.isOnline && here.length > 0")
    assert told(second, "app.session") != told(first, "app.session")
    session = told(first, "app.session")
    first.reload()
    first.wait_for_function("window.app && app.isOnline && here.length > 0")
    assert told(first, "[app.session, form.here.value]") == [session, "first"]


def test_a_page_that_is_closed_stays_closed_and_what_had_no_answer_fails(chromium: Browser, form: Served) -> None:
    page = opened(chromium, form)
    form.kill()
    page.wait_for_function("!app.isOnline")
    told(page, "form.count.increment(1).catch(error => errors.push(error.message)); app.close()")
    page.wait_for_function("errors.length === 1")
    form.start()
    later = opened(chromium, form)  # Whoever comes later is there, and the closed one is not.
    later.wait_for_function("app.isOnline")
    assert told(page, "online") == [False, True, False]


def test_a_page_that_is_refused_is_told_and_does_not_try_again(chromium: Browser, form: Served) -> None:
    page = opened(chromium, form)
    script = """async () => {
      const { connect } = await import("/headwater.js");
      const app = connect({ url: `ws://${location.host}/v1/page`, token: "no token at all", user: 7 });
      return await new Promise(resolve => app.onError(error => resolve(error.message)));
    }"""
    assert "cannot be understood" in page.evaluate(script)


LOSSY = """
  window.sockets = []; window.lost = [];  // types of messages that do not arrive, or do not leave
  window.WebSocket = class extends WebSocket {
    constructor(url) { super(url); sockets.push(this); }
    set onmessage(fn) { super.onmessage = event => { if (!lost.includes(JSON.parse(event.data).type)) fn(event); }; }
    send(text) { if (!lost.includes(JSON.parse(text).type)) super.send(text); }
  };
"""


def lossy(chromium: Browser, form: Served) -> Page:
    """A page whose connection loses what it is told to, and is cut by `cut()`."""
    page = chromium.new_context().new_page()
    page.set_default_timeout(WITHIN_MS)
    page.add_init_script(LOSSY)
    page.goto(form.url)
    page.wait_for_function("window.app && app.isOnline && counts.length > 0 && tags.length > 0")
    return page


def test_nothing_flickers_around_an_answer_that_was_lost(chromium: Browser, form: Served) -> None:
    other = opened(chromium, form)
    page = lossy(chromium, form)
    # It was done, and nobody heard of that: it comes again, and is shown once.
    told(page, "lost = ['made', 'done', 'shown']; window.said = form.count.increment(1); null")
    other.wait_for_function("form.count.value === 1")
    told(page, "lost = []; sockets.at(-1).close(); said.then(() => window.isOver = true); null")
    page.wait_for_function("window.isOver && app.isOnline")
    assert set(told(page, "counts")) == {0, 1}
    assert told(page, "counts.indexOf(1) > counts.lastIndexOf(0)")
    # The same with a value in the place of another.
    told(page, "counts.length = 0; lost = ['made', 'done', 'shown']; isOver = false; said = form.count.set(40); null")
    other.wait_for_function("form.count.value === 40")
    told(page, "lost = []; sockets.at(-1).close(); said.then(() => isOver = true); null")
    page.wait_for_function("isOver && app.isOnline")
    told(other, "form.count.increment(2)")
    page.wait_for_function("form.count.value === 42")
    assert [n for n in told(page, "counts") if n not in (40, 42)] == []


def test_nothing_flickers_around_what_never_arrived(chromium: Browser, form: Served) -> None:
    other = opened(chromium, form)
    page = lossy(chromium, form)
    told(page, "lost = ['write']; window.said = Promise.all([form.count.increment(5), form.tags.push('a')]); null")
    told(other, "form.count.increment(1)")
    page.wait_for_function("form.count.value === 6")
    told(page, "lost = []; sockets.at(-1).close(); said.then(() => window.isOver = true); null")
    page.wait_for_function("window.isOver && app.isOnline")
    other.wait_for_function("form.count.value === 6 && form.tags.value.length === 1")
    page.wait_for_function("form.count.value === 6 && form.tags.value.length === 1")
    counts = told(page, "counts")
    assert counts[counts.index(5) :].count(0) == 0
    assert set(counts) == {0, 5, 6}
    assert max(len(each) for each in told(page, "tags")) == 1


def test_what_is_typed_and_not_answered_stays_as_it_was_typed(chromium: Browser, form: Served) -> None:
    other = opened(chromium, form)
    page = lossy(chromium, form)
    told(page, "lost = ['made', 'done']; window.texts = []; form.text.watch(text => texts.push(text)); null")
    page.fill("#text", "typed")
    other.wait_for_function("form.text.value === 'typed'")
    told(page, "lost = []; sockets.at(-1).close()")
    page.wait_for_function("app.isOnline && form.text.value === 'typed'")
    told(other, "form.text.set('another')")
    page.wait_for_function("document.getElementById('text').value === 'another'")
    texts = told(page, "texts")
    assert texts[texts.index("typed") :].count("") == 0
