"""Stories of connections that break: trains, sleeping laptops, servers that start again, thieves."""

from __future__ import annotations

from headwater.data.address import Link
from headwater.data.patch import add, append, increment, replace
from headwater.data.value import ABSENT
from headwater.engine import ACCESS, Hub, Limits
from headwater.errors import SessionExpiredError
from headwater.protocol.messages import Open, Opened, Problem, Watch
from headwater.protocol.verdict import Conflict, RuleRefused
from headwater.replica import Kind, LinkState
from tests.unit.replica.kit import Client, Told, World, bump, doc, putting, together

NIGHT_US = 8 * 3_600 * 1_000_000


def home() -> tuple[World, Client, Client]:
    """A phone and a laptop that share a list and a counter."""
    world = World("phone", "laptop")
    for client in world.clients:
        client.watch("list", "count")
    world.settle()
    phone, laptop = world.clients
    phone.do(together(putting("list", replace((), {"items": []})), putting("count", replace((), {"n": 0}))))
    world.settle()
    return world, phone, laptop


def last_opened(client: Client) -> Opened:
    return [message for message in client.received if isinstance(message, Opened)][-1]


def test_a_tunnel_between_the_write_and_its_verdict() -> None:
    """The commit landed, its verdict did not: it is not written twice, and nobody has to ask."""
    world, phone, laptop = home()
    told = phone.write("list", append(("items",), ["milk"]))
    phone.send()
    phone.down()
    laptop.write("list", append(("items",), ["bread"]))
    world.settle()
    assert told.calls == []
    phone.up()
    world.settle()
    assert told.landed
    assert phone.shows("list") == laptop.shows("list") == {"items": ("milk", "bread")}


def test_a_laptop_that_sleeps_over_night_wakes_up_to_the_truth_and_loses_nothing() -> None:
    world, phone, laptop = home()
    on_the_wire = laptop.write("list", append(("items",), ["tea"]))
    laptop.send()
    laptop.down()
    never_sent: list[Told] = []

    def retry(told: Told) -> None:
        """Whoever made it makes it again, once everything it needs is back."""
        laptop.session.watch([doc("list")])
        never_sent.append(told)

    again = Told()
    transaction = laptop.replica.begin()
    transaction.write(doc("list"), append(("items",), ["rice"]))
    laptop.replica.commit(transaction, again, lambda layer, why: retry(again) if why else None)
    world.later(NIGHT_US)
    phone.do(bump("count"))
    world.settle()
    laptop.heard.clear()
    laptop.up()
    world.settle()
    assert not last_opened(laptop).resumed
    assert on_the_wire.landed
    assert isinstance(again.rejection, Conflict)
    assert never_sent == [again]
    laptop.write("list", append(("items",), ["rice"]))
    world.settle()
    assert phone.shows("list") == laptop.shows("list") == {"items": ("tea", "rice")}
    assert laptop.shows("count") == {"n": 1}
    assert Kind.RESET in laptop.kinds()
    assert laptop.mirror.differences() == []


def test_watches_are_not_reinstalled_on_a_true_resume() -> None:
    world, phone, laptop = home()
    watches = sum(isinstance(message, Watch) for message in phone.sent)
    for _ in range(5):
        phone.again()
        laptop.do(bump("count"))
        world.settle()
        assert last_opened(phone).resumed
    assert sum(isinstance(message, Watch) for message in phone.sent) == watches
    assert phone.shows("count") == {"n": 5}


def test_a_stale_token_is_revoked_and_its_work_fails_loudly() -> None:
    """The session was taken up elsewhere with its token: whoever was robbed is told, and may not go on."""
    world, phone, _ = home()
    token = [message.following for message in phone.sent if isinstance(message, Open)][-1]
    world.engine.resume_session("phone", "", token, "the thief's next token")
    phone.drop()
    world.settle()
    told = phone.do(bump("count"))
    phone.up()
    world.settle()
    assert phone.session.link is LinkState.GONE
    assert [type(error) for error in phone.errors] == [SessionExpiredError]
    assert len(told.calls) == 1
    assert not told.landed
    assert world.value("count") == {"n": 0}


def test_a_session_that_is_really_gone_turns_work_into_failed_intents_not_into_new_commits() -> None:
    world, phone, _ = home()
    landed_unheard = phone.write("list", append(("items",), ["milk"]))
    phone.send()
    phone.session.receive(Problem("session_gone", "the space was restored from a backup"))
    assert isinstance(landed_unheard.rejection, RuleRefused)
    assert phone.shows("list") == {"items": ()}
    assert world.value("list") == {"items": ("milk",)}


def test_a_server_that_starts_again_is_noticed_by_nobody_s_work() -> None:
    world, phone, laptop = home()
    tolds = [phone.do(bump("count")) for _ in range(3)]
    phone.send(2)
    world.engine.drop_caches()
    world.hub = Hub(world.engine, world.clock, world.limits)
    for client in world.clients:
        client.drop()
        client.up()
    world.settle()
    assert all(told.landed for told in tolds)
    assert phone.shows("count") == laptop.shows("count") == {"n": 3}
    assert laptop.mirror.differences() == []


def test_working_on_a_train_with_a_tunnel_every_few_messages() -> None:
    world, phone, laptop = home()
    tolds = []
    for number in range(30):
        tolds.append(phone.write("list", append(("items",), [number])))
        phone.send(1)
        phone.hear(1)
        if number % 3 == 2:
            phone.again()
            while not phone.is_up:
                assert phone.send(1) + phone.hear(1)
    world.settle()
    assert all(len(told.calls) == 1 for told in tolds)
    value = world.value("list")
    assert isinstance(value, dict)
    landed = tuple(number for number, told in enumerate(tolds) if told.landed)
    assert value["items"] == landed
    assert laptop.shows("list") == value


def test_a_browser_and_a_worker_speak_different_encodings_about_the_same_documents() -> None:
    world = World()
    browser, worker = world.join("browser", encoding="json"), world.join("worker", encoding="msgpack")
    world.settle()
    for client in (browser, worker):
        client.watch("d", "linked")
    world.settle()
    odd = {"$key": b"\x00\xff", "link": Link(id="linked"), "deep": [[{"n": 0.5}]], "text": "ü😀"}
    browser.write("d", replace((), odd))
    world.settle()
    worker.write("d", add(("more",), [b"x"]))
    world.settle()
    assert browser.shows("d") == worker.shows("d") == world.value("d")


def test_a_dashboard_that_cannot_keep_up_costs_little_and_ends_right() -> None:
    world = World("dashboard", "sensor", limits=Limits(sync_window=2, sync_patches=3))
    dashboard, sensor = world.clients
    for client in world.clients:
        client.watch("reading")
    world.settle()
    sensor.write("reading", replace((), {"n": 0}))
    world.settle()
    for _ in range(500):
        sensor.write("reading", increment(("n",)))
        sensor.pump()
    assert len(dashboard.inbox) <= 3
    dashboard.heard.clear()
    world.settle()
    assert dashboard.shows("reading") == {"n": 500}
    assert len(dashboard.heard) <= 5
    assert dashboard.mirror.differences() == []


def test_sharing_a_space_and_taking_it_back() -> None:
    world = World(access=True)
    ann = world.join("ann-1", principal="ann")
    world.settle()
    ann.watch("notes", ACCESS)
    world.settle()
    ann.write("notes", replace((), {"text": "hello"}))
    world.settle()
    assert ann.shows(ACCESS) == {"owners": ("ann",), "writers": (), "readers": ()}
    ann.do(lambda t: t.write(ACCESS, append(("readers",), ["bob"])))
    world.settle()
    bob = world.join("bob-1", principal="bob")
    world.settle()
    bob.watch("notes")
    world.settle()
    assert bob.shows("notes") == {"text": "hello"}
    told = bob.write("notes", replace(("text",), "mine now"))
    assert bob.shows("notes") == {"text": "mine now"}
    world.settle()
    assert isinstance(told.rejection, RuleRefused)
    assert "may read this space, but not write to it" in told.rejection.detail
    assert bob.shows("notes") == {"text": "hello"}
    ann.do(lambda t: t.write(ACCESS, replace(("readers",), [])))
    ann.write("notes", replace(("text",), "secret"))
    ann.send()
    assert b"secret" not in b"".join(bob.inbox)


def test_a_tree_of_documents_is_followed_while_it_grows() -> None:
    world = World("reader", "writer")
    reader, writer = world.clients
    names = ["root", *(f"leaf{number}" for number in range(10))]
    writer.watch(*names)
    world.settle()
    writer.write("root", replace((), {"children": []}))
    world.settle()
    reader.watch("root", follow=True)
    world.settle()
    for name in names[1:]:
        writer.write(name, replace((), {"name": name}))
        writer.write("root", append(("children",), [Link(id=name)]))
        world.settle()
        assert reader.shows(name) == {"name": name}
    assert reader.mirror.differences() == []
    assert ABSENT not in dict(reader.replica.snapshot()).values()
