"""Kafka's wire protocol: messages declared as classes, compiled to and from bytes. No IO."""

from qbus.wire.api import API, Api, ApiKey
from qbus.wire.codec import (
    Part,
    RequestHeader,
    decode,
    decode_request_header,
    decode_response,
    encode,
    encode_request,
    encode_response,
)
from qbus.wire.declare import ZERO_UUID, Struct

__all__ = [
    "API",
    "ZERO_UUID",
    "Api",
    "ApiKey",
    "Part",
    "RequestHeader",
    "Struct",
    "decode",
    "decode_request_header",
    "decode_response",
    "encode",
    "encode_request",
    "encode_response",
]
