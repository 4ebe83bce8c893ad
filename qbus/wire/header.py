"""Frames with their headers: who asks for what, and which answer belongs to which question.

Request headers are v1, v2 (with tags) for flexible requests; response headers v0, v1 for flexible
ones. ApiVersions is always answered with a v0 header, for the client does not know yet which
versions there are. A client id is never compact.
"""

import struct
from struct import Struct as Packer
from typing import Any, NamedTuple

from qbus.errors import WireError
from qbus.wire.api import KNOWN_API, ApiKey
from qbus.wire.codec import Part, decode, encode_onto
from qbus.wire.declare import Struct
from qbus.wire.primitives import Buffer, skip_header_tags

_REQUEST = Packer(">hhih")  # key, version, correlation id, length of the client id
_RESPONSE = Packer(">ii")  # frame length, correlation id
_LENGTH = Packer(">i")


class RequestHeader(NamedTuple):
    """What stands in front of every request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(buf: Buffer) -> tuple[RequestHeader, int]:
    """Read the header of a request frame (without its length); return it and where it ends.

    The tags of a flexible header are skipped when the API and the version are known; of others
    nothing behind the client id can be read.

    Raises:
        WireError: the frame is too short, or the client id no text.
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
        if _is_flexible(key, version):
            stop = skip_header_tags(buf, stop, len(buf))
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
    """A whole request frame, its length in front.

    Raises:
        WireError: as ``encode``, or the client id fits into no header.
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
    return _with_length(encode_onto(out, message, version))


def encode_response(api_key: int, version: int, correlation_id: int, message: Struct) -> list[Part]:
    """A whole response frame, its length in front.

    Raises:
        WireError: as ``encode``.
    """
    out = bytearray(_RESPONSE.pack(0, correlation_id))
    if version >= type(message).first_flexible and api_key != ApiKey.API_VERSIONS:
        out += b"\0"
    return _with_length(encode_onto(out, message, version))


def decode_response(api_key: int, version: int, buf: Buffer) -> tuple[int, Any]:
    """Read a response frame (without its length); return the correlation id and the message.

    Raises:
        WireError: as ``decode``.
    """
    view = memoryview(buf)
    if len(view) < _LENGTH.size:
        raise WireError("a response ends within its header")
    api = KNOWN_API[api_key]  # type: ignore[index] # an int finds its ApiKey
    (correlation_id,) = _LENGTH.unpack_from(view)
    pos = _LENGTH.size
    if version >= api.first_flexible and api_key != ApiKey.API_VERSIONS:
        try:
            pos = skip_header_tags(view, pos, len(view))
        except IndexError as error:
            raise WireError("a response ends within its header") from error
    return correlation_id, decode(api.response, version, view, pos)


def _is_flexible(key: int, version: int) -> bool:
    api = KNOWN_API.get(key)  # type: ignore[call-overload] # an int finds its ApiKey
    return api is not None and api.first_flexible <= version <= api.max_version


def _with_length(parts: list[Part]) -> list[Part]:
    size = sum(map(len, parts)) - _LENGTH.size
    _LENGTH.pack_into(parts[0], 0, size)
    return parts
