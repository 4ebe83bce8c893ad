"""Whether a Kafka broker answers, asked without any client library."""

import socket
import struct

_API_VERSIONS = 18
_CORRELATION_ID = 7
# Length, api key, version 0, correlation id, null client id.
_REQUEST = struct.pack(">ihhih", 10, _API_VERSIONS, 0, _CORRELATION_ID, -1)


def answers(port: int, timeout: float = 1.0) -> bool:
    """Tell whether the broker on 127.0.0.1 answers an ApiVersions request without error."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout) as connection:
            connection.sendall(_REQUEST)
            head = connection.recv(10, socket.MSG_WAITALL)
    except OSError:
        return False
    if len(head) < 10:
        return False
    _, correlation_id, error = struct.unpack(">iih", head)
    return bool(correlation_id == _CORRELATION_ID and error == 0)
