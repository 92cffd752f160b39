"""Declarations: the classes that an author writes, before anything runs.

Start with `members` (`cell`, `computed`, `handler` and the other functions of a class body) and `declarations` (one
class for each kind of member). `piece` is `Piece`, its `ctx` and `link`; `class_schema` collects and checks the
members of a class, `types` and `annotations` resolve their types, `signature` checks the arguments of a handler,
`handles` are the handles that only pieces have, `names` makes stored names, `order_keys` makes texts between two
others, `fingerprints` digests code.

Imported by `runtime`, `server` and `cli`. Imports `cells` and the layers below. Binds, reads and runs nothing.
"""
