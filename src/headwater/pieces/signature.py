"""The arguments and the result of a handler, as values: arguments are checked where they enter, and stored by name.

Nothing is called here. An argument that a stored event lacks has the default of the handler that takes it, so that an
event outlives a new parameter with a default.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Final

from headwater.cells.codec_base import TypeCodec
from headwater.cells.containers import decode_given
from headwater.data.limits import DEFAULT_VALUE_LIMITS
from headwater.data.text import shown
from headwater.data.value import Value, freeze, is_frozen
from headwater.errors import AuthoringError, InvalidValueError

__all__ = ["Signature", "argument_error"]

_OF_A_ROOT: Final = "at the root: "
_OF_A_WRITE: Final = ": write a value of the declared type"


def argument_error(error: InvalidValueError) -> str:
    """Return the error text for data of a sender, of which the message already names the argument or the place."""
    return str(error).removeprefix(_OF_A_ROOT).removesuffix(_OF_A_WRITE)


class Signature:
    """The parameters of one handler and the type of its result."""

    __slots__ = ("_by_place", "_codecs", "_name", "_parameters", "_shape", "result")

    def __init__(
        self,
        name: str,
        parameters: list[inspect.Parameter],
        codecs: Mapping[str, TypeCodec[Any]],
        result: TypeCodec[Any],
    ) -> None:
        self._name = name
        self._shape = inspect.Signature(parameters)
        self._parameters = dict(self._shape.parameters)
        are_plain = all(each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters)
        self._by_place = tuple([each.name for each in parameters]) if are_plain else None
        self._codecs = codecs
        self.result = result

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Value:
        """The payload of an event."""
        bound: Iterable[tuple[str, Any]]
        if self._by_place is not None and len(args) == len(self._by_place) and not kwargs:
            bound = zip(self._by_place, args, strict=True)  # As nearly always: binding costs as much as the rest.
        else:
            try:
                bound = self._shape.bind(*args, **kwargs).arguments.items()
            except TypeError as error:
                raise AuthoringError(f"{self._name}: {error}; it takes {self._shape}") from None
        payload = {}
        for name, value in bound:
            try:
                payload[name] = self._codecs[name].encode(value)
            except InvalidValueError as error:
                raise InvalidValueError(f"{self._name}, argument {name}: {error}", path=(name, *error.path)) from None
        return payload if is_frozen(payload, DEFAULT_VALUE_LIMITS) else freeze(payload)

    def encode_result(self, result: Any) -> Value:
        """Return the result of a call as it is stored."""
        try:
            return self.result.encode(result)
        except InvalidValueError as error:
            raise InvalidValueError(f"{self._name}, result: {error}", path=error.path) from None

    def decode(self, payload: Value) -> dict[str, Any]:
        """The arguments that a payload stands for."""
        if type(payload) is not dict:  # As `freeze` makes every object.
            raise InvalidValueError(f"{self._name} takes {self._shape}, not {shown(payload)}: name each argument")
        for name in payload:
            if name not in self._codecs:
                raise InvalidValueError(f"{self._name} takes {self._shape}: there is no argument {shown(name)}")
        arguments = {}
        for name, parameter in self._parameters.items():
            if name in payload:
                try:
                    arguments[name] = decode_given(self._codecs[name], payload[name])
                except InvalidValueError as error:
                    raise InvalidValueError(
                        f"{self._name}, argument {name}: {argument_error(error)}", path=(name,)
                    ) from None
            elif parameter.default is parameter.empty:
                raise InvalidValueError(f"{self._name} takes {self._shape}: argument {name} is missing")
        return arguments

    def __str__(self) -> str:
        return str(self._shape)
