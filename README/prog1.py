import tempfile

from headwater.data.address import Depth, DocKey
from headwater.data.patch import append, replace
from headwater.engine.directory import Directory
from headwater.protocol.commit import Commit, Operation, Read
from headwater.protocol.verdict import Accepted, Rejected, conflict_text

cart = DocKey("space", "cart")

with Directory(tempfile.mkdtemp()) as directory:
    shop = directory.space("shop")  # one SQLite file per space
    shop.open_session("ann")
    shop.open_session("bob")
    shop.submit("ann", Commit(1, (Operation(cart, (replace((), {"note": "", "lines": []}),)),)))

    seen = shop.last_seq  # what both of them have read
    note = Read(cart, ("note",), Depth.DEEP, seen)
    write = Operation(cart, (replace(("note",), "by four, please"),))
    assert isinstance(shop.submit("ann", Commit(2, (write,), (note,)))[0], Accepted)

    # Bob appends a line: an intent that reads nothing, and collides with nobody.
    tea = Operation(cart, (append(("lines",), ["tea"]),))
    assert isinstance(shop.submit("bob", Commit(1, (tea,)))[0], Accepted)

    # Bob changes the note he read before Ann wrote it. He is told which address, and who was faster.
    late = Operation(cart, (replace(("note",), "no hurry"),))
    verdict = shop.submit("bob", Commit(2, (late,), (note,)))[0]
    assert isinstance(verdict, Rejected)
    print(conflict_text(verdict.rejection))

    assert shop.read(cart).value == {"note": "by four, please", "lines": ("tea",)}
    assert shop.read(cart, at=seen).value == {"note": "", "lines": ()}  # the past is still there
