"""Whether a Kafka broker serves, asked without any client library."""

import socket
import struct

_CORRELATION_ID = 7
# Length, then api key, version, correlation id and null client id; Metadata v1 asks for no topic.
_API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, _CORRELATION_ID, -1)
_METADATA_V1 = struct.pack(">ihhihi", 14, 3, 1, _CORRELATION_ID, -1, 0)


def answers(port: int, timeout: float = 1.0, host: str = "127.0.0.1") -> bool:
    """Tell whether the broker answers ApiVersions and knows of a broker."""
    try:
        with socket.create_connection((host, port), timeout) as connection:
            versions = _ask(connection, _API_VERSIONS_V0)
            metadata = _ask(connection, _METADATA_V1)
    except OSError:
        return False
    error = int.from_bytes(versions[4:6], signed=True) if len(versions) >= 6 else -1
    brokers = int.from_bytes(metadata[4:8], signed=True) if len(metadata) >= 8 else 0
    return error == 0 and brokers > 0


def _ask(connection: socket.socket, request: bytes) -> bytes:
    connection.sendall(request)
    length = connection.recv(4, socket.MSG_WAITALL)
    return connection.recv(int.from_bytes(length), socket.MSG_WAITALL)
