"""The runtime: a running program with its spaces, sessions and transports.

The names below are for servers, commands and tests that build a runtime from its parts; an application calls
`headwater.open` and `headwater.connect`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import load_on_use

if TYPE_CHECKING:
    from headwater.runtime.attachment import Attachment, Embedded, Remote
    from headwater.runtime.policy import Policy
    from headwater.runtime.reception import Reception
    from headwater.runtime.runtime import Runtime
    from headwater.runtime.shared_space import Space
    from headwater.runtime.transport import Heard, Lost, Transport

__all__ = [
    "Attachment",
    "Embedded",
    "Heard",
    "Lost",
    "Policy",
    "Reception",
    "Remote",
    "Runtime",
    "Space",
    "Transport",
]

__getattr__ = load_on_use(
    __name__,
    {
        "Attachment": "headwater.runtime.attachment",
        "Embedded": "headwater.runtime.attachment",
        "Remote": "headwater.runtime.attachment",
        "Policy": "headwater.runtime.policy",
        "Reception": "headwater.runtime.reception",
        "Runtime": "headwater.runtime.runtime",
        "Space": "headwater.runtime.shared_space",
        "Heard": "headwater.runtime.transport",
        "Lost": "headwater.runtime.transport",
        "Transport": "headwater.runtime.transport",
    },
)
