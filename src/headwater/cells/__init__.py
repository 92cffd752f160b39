"""Handles on typed data: how a program reads and writes a place in a document.

Start with `handle` (`Input`, which reads) and `cell` (`Cell`, which also writes). `open_run` is the run that reads and
writes are recorded in; `runtime_port` is the part of a runtime that handles call, with streams and topics;
`handle_base` refuses the use of a handle as a value. `view` reads lazily, `selector` evaluates `at(lambda ...)`,
`typed_path` walks a stored path along its declared types. `codec` finds the codec of a type; `codec_base`, `scalars`,
`containers`, `records` and `unions` are the codecs; `model` has `Model`.

Imported by `pieces`, `scheduler`, `runtime`, `server` and `cli`. Imports `replica`, `data` and `errors`.
"""
