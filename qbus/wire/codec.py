"""Messages to and from bytes, alone and as the frames of requests and responses.

A frame is a length, a header and a message. Request headers have version 1, or version 2 (with
tagged fields) for flexible requests; response headers have version 0, or version 1 for flexible
responses. The response to ApiVersions always has header version 0, because the client does not
know yet which versions the broker has (KIP-511). A client id never has a compact length (KIP-482).
"""

import struct
from struct import Struct as Packer
from typing import Any, Final, NamedTuple, TypeVar

from qbus.errors import WireError
from qbus.wire.api import API, ApiKey
from qbus.wire.declare import Struct
from qbus.wire.decoder import compile_decoder
from qbus.wire.encoder import compile_encoder
from qbus.wire.primitives import Buffer, skip_header_tags

M = TypeVar("M", bound=Struct)

Part = Any  # bytes, or what was given as records: anything with a length

_REQUEST: Final = Packer(">hhih")  # API key, version, correlation id, length of the client id
_RESPONSE: Final = Packer(">ii")  # frame length, correlation id
_LENGTH: Final = Packer(">i")


class RequestHeader(NamedTuple):
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode(cls: type[M], version: int, buf: Buffer, pos: int = 0, *, exact: bool = True) -> M:
    """Read the message of ``version`` that fills ``buf`` from ``pos`` to its end.

    Records are not copied: they are views of ``buf``. Without ``exact``, more bytes may follow.

    Raises:
        WireError: the bytes are truncated or malformed, or other bytes follow.
    """
    view = buf if isinstance(buf, memoryview) else memoryview(buf)
    end = len(view)
    decoder = cls.decoders.get(version)
    if decoder is None:
        decoder = cls.decoders[version] = compile_decoder(cls, version)
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
        WireError: a value does not fit its field, or ``version`` lacks a field that is set.
    """
    return _encode_onto(bytearray(), message, version)


def decode_request_header(buf: Buffer) -> tuple[RequestHeader, int]:
    """Read the header of a request frame (without its length); return it and where it ends.

    The tagged fields of a flexible header are skipped if the API and the version are known.
    Otherwise the header ends after the client id: nobody can tell what follows.

    Raises:
        WireError: the frame is too short, or the client id is not UTF-8.
    """
    try:
        key, version, correlation_id, length = _REQUEST.unpack_from(buf)
        stop = _REQUEST.size
        client_id = None
        if length >= 0:
            stop += length
            client_id = str(buf[_REQUEST.size : stop], "utf-8")
        elif length != -1:
            raise WireError(f"a client id of {length} bytes")
        api = API.get(key)
        if api is not None and api.first_flexible <= version <= api.max_version:
            stop = skip_header_tags(buf, stop, len(buf)) if buf[stop] else stop + 1
    except UnicodeDecodeError as error:
        raise WireError("a client id is not UTF-8") from error
    except (IndexError, struct.error) as error:
        raise WireError("a request ends within its header") from error
    if stop > len(buf):
        raise WireError("a request ends within its client id")
    return RequestHeader(key, version, correlation_id, client_id), stop


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: Struct
) -> list[Part]:
    """Write a whole request frame, its length included.

    Raises:
        WireError: as ``encode``, or the client id does not fit a header.
    """
    out = bytearray(_LENGTH.size)
    try:
        name = b"" if client_id is None else client_id.encode()
        length = -1 if client_id is None else len(name)
        out += _REQUEST.pack(api_key, version, correlation_id, length)
    except (struct.error, UnicodeEncodeError) as error:
        raise WireError(f"a request header cannot be written: {error}") from error
    out += name
    if version >= type(message).first_flexible:
        out += b"\0"
    return _with_length(_encode_onto(out, message, version))


def encode_response(api_key: int, version: int, correlation_id: int, message: Struct) -> list[Part]:
    """Write a whole response frame, its length included.

    Raises:
        WireError: as ``encode``.
    """
    out = bytearray(_RESPONSE.pack(0, correlation_id))
    if version >= type(message).first_flexible and api_key != ApiKey.API_VERSIONS:
        out += b"\0"
    return _with_length(_encode_onto(out, message, version))


def decode_response(api_key: int, version: int, buf: Buffer) -> tuple[int, Any]:
    """Read a response frame (without its length); return the correlation id and the message.

    Raises:
        WireError: as ``decode``.
    """
    view = memoryview(buf)
    if len(view) < _LENGTH.size:
        raise WireError("a response ends within its header")
    api = API[api_key]  # type: ignore[index] # an int finds its ApiKey
    (correlation_id,) = _LENGTH.unpack_from(view)
    pos = _LENGTH.size
    if version >= api.first_flexible and api_key != ApiKey.API_VERSIONS:
        try:
            pos = skip_header_tags(view, pos, len(view))
        except IndexError as error:
            raise WireError("a response ends within its header") from error
    return correlation_id, decode(api.response, version, view, pos)


def _encode_onto(out: bytearray, message: Struct, version: int) -> list[Part]:
    """Write a message behind the bytes in ``out``."""
    cls = type(message)
    parts: list[Part] = []
    encoder = cls.encoders.get(version)
    if encoder is None:
        encoder = cls.encoders[version] = compile_encoder(cls, version)
    try:
        out = encoder(message, parts, out)
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
        raise WireError(f"{cls.__name__} v{version} cannot be written: {error}") from error
    if out or not parts:
        parts.append(out)
    return parts


def _with_length(parts: list[Part]) -> list[Part]:
    _LENGTH.pack_into(parts[0], 0, sum(map(len, parts)) - _LENGTH.size)
    return parts
