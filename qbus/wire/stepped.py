"""Large messages to and from bytes in steps, between which an event loop does other work.

A message of 100,000 items takes a tenth of a second to read and as long to write. These generators
yield after some items, and return what :mod:`qbus.wire.codec` returns at once.
"""

import struct
from collections.abc import Callable, Generator
from functools import cache
from struct import Struct as Packer
from typing import Any, Final, TypeVar

from qbus.errors import WireError
from qbus.wire.api import ApiKey
from qbus.wire.codec import Part
from qbus.wire.declare import Struct
from qbus.wire.decoder import compile_decoder
from qbus.wire.encoder import compile_encoder

M = TypeVar("M", bound=Struct)

_RESPONSE: Final = Packer(">ii")  # frame length, correlation id
_LENGTH: Final = Packer(">i")


def decode_in_steps(
    cls: type[M], version: int, view: memoryview, pos: int = 0
) -> Generator[None, None, M]:
    """Read a message of ``version``; other bytes may follow it.

    ``view`` has to stay as it is until the end: records are views of it.

    Raises:
        WireError: the bytes are truncated or malformed.
    """
    name = f"{cls.__name__} v{version}"
    try:
        message, _ = yield from _decoder(cls, version)(view, pos, len(view))
    except (struct.error, IndexError):
        raise WireError(f"{name} is truncated") from None
    except UnicodeDecodeError as error:
        raise WireError(f"{name} holds a string that is not UTF-8") from error
    return message  # type: ignore[no-any-return] # the decoder of cls makes a cls


def encode_response_in_steps(
    api_key: int, version: int, correlation_id: int, message: Struct
) -> Generator[None, None, list[Part]]:
    """Write a whole response frame, its length included.

    Raises:
        WireError: a value does not fit its field, or ``version`` lacks a field that is set.
    """
    cls = type(message)
    out = bytearray(_RESPONSE.pack(0, correlation_id))
    if version >= cls.first_flexible and api_key != ApiKey.API_VERSIONS:
        out += b"\0"
    parts: list[Part] = []
    try:
        out = yield from _encoder(cls, version)(message, parts, out)
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
        raise WireError(f"{cls.__name__} v{version} cannot be written: {error}") from error
    if out or not parts:
        parts.append(out)
    _LENGTH.pack_into(parts[0], 0, sum(map(len, parts)) - _LENGTH.size)
    return parts


@cache
def _decoder(cls: type[Struct], version: int) -> Callable[..., Generator[None, None, Any]]:
    decoder: Callable[..., Generator[None, None, Any]] = compile_decoder(cls, version, stepped=True)
    return decoder


@cache
def _encoder(cls: type[Struct], version: int) -> Callable[..., Generator[None, None, Any]]:
    encoder: Callable[..., Generator[None, None, Any]] = compile_encoder(cls, version, stepped=True)
    return encoder
