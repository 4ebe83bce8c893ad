"""Whole messages from and to bytes."""

import struct
from typing import Any, TypeVar

from qbus.errors import WireError
from qbus.wire.declare import Struct
from qbus.wire.decoder import Decoder, compile_decoder
from qbus.wire.encoder import Encoder, compile_encoder
from qbus.wire.primitives import Buffer

M = TypeVar("M", bound=Struct)

Part = Any  # bytes, or what was given as records: anything with a length


def decode(cls: type[M], version: int, buf: Buffer, pos: int = 0, *, exact: bool = True) -> M:
    """Read a message of ``version`` that fills ``buf`` from ``pos`` to its end.

    Records are not copied: they are views of ``buf``. Without ``exact``, more bytes may follow.

    Raises:
        WireError: the bytes are not such a message: truncated, malformed, or followed by others.
    """
    view = buf if isinstance(buf, memoryview) else memoryview(buf)
    end = len(view)
    decoder = cls.decoders.get(version) or _new_decoder(cls, version)
    try:
        message, pos = decoder(view, pos, end)
    except (struct.error, IndexError):
        raise WireError(f"{cls.__name__} v{version} is truncated") from None
    except UnicodeDecodeError as error:
        raise WireError(f"{cls.__name__} v{version} holds a string that is not UTF-8") from error
    if pos != end and exact:
        raise WireError(f"{end - pos} bytes follow a {cls.__name__} v{version}")
    return message  # type: ignore[no-any-return] # the decoder of cls makes a cls


def encode(message: Struct, version: int) -> list[Part]:
    """Write a message of ``version``: one buffer, or several parts around large records.

    Raises:
        WireError: a value does not fit its field, or a field is set that ``version`` lacks.
    """
    return encode_onto(bytearray(), message, version)


def encode_onto(out: bytearray, message: Struct, version: int) -> list[Part]:
    """As ``encode``, with what is in ``out`` in front."""
    cls = type(message)
    parts: list[Part] = []
    encoder = cls.encoders.get(version) or _new_encoder(cls, version)
    try:
        out = encoder(message, parts, out)
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
        raise WireError(f"{cls.__name__} v{version} cannot be written: {error}") from error
    if out or not parts:
        parts.append(out)
    return parts


def _new_decoder(cls: type[Struct], version: int) -> Decoder:
    decoder = cls.decoders[version] = compile_decoder(cls, version)
    return decoder


def _new_encoder(cls: type[Struct], version: int) -> Encoder:
    encoder = cls.encoders[version] = compile_encoder(cls, version)
    return encoder
