"""What attackers do, in a process: ``python -m tests.security.attackers KIND PORT COUNT``.

They come from 127.0.0.66, so that limits by address do not meet the honest ones.
"""

import base64
import contextlib
import os
import selectors
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from struct import pack
from typing import Final

ATTACKER: Final = "127.0.0.66"
HOST: Final = "127.0.0.1"
_AT_A_TIME: Final = 16


def _connected(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), 10, source_address=(ATTACKER, 0))


def _request(key: int, version: int, body: bytes) -> bytes:
    frame = pack(">hhih", key, version, 0, -1) + body
    return pack(">i", len(frame)) + frame


def _guess(port: int, mechanism: bytes, first: bytes) -> None:
    with _connected(port) as connection:
        connection.sendall(_request(17, 1, pack(">h", len(mechanism)) + mechanism))
        connection.recv(4096)
        connection.sendall(_request(36, 1, pack(">i", len(first)) + first))
        connection.recv(4096)
        if mechanism != b"PLAIN":
            proof = b"c=biws,r=nonsense,p=" + base64.b64encode(os.urandom(32))
            connection.sendall(_request(36, 1, pack(">i", len(proof)) + proof))
            connection.recv(4096)


def passwords(port: int, count: int) -> None:
    """Guess passwords, some at a time, of users that exist and of others."""
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        for number in range(_AT_A_TIME):
            pool.submit(_guess_some, port, range(number, count, _AT_A_TIME))


def _guess_some(port: int, numbers: range) -> None:
    for number in numbers:
        user = b"honest" if number % 2 else b"nobody%d" % number
        with contextlib.suppress(OSError):
            if number % 4 < 2:
                _guess(port, b"PLAIN", b"\0" + user + b"\0wrong%d" % number)
            else:
                _guess(port, b"SCRAM-SHA-256", b"n,,n=" + user + b",r=%032d" % number)


def half_open(port: int, count: int) -> None:
    """Begin TLS handshakes and never go on; begin again what the broker closes, until killed."""
    waiting = selectors.DefaultSelector()
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(64)

    def begin() -> None:
        with contextlib.suppress(OSError):
            one = _connected(port)
            one.sendall(hello)
            one.setblocking(False)
            waiting.register(one, selectors.EVENT_READ)

    for _ in range(count):
        begin()
    print("all are there", flush=True)
    while True:
        for key, _ in waiting.select(1.0):
            waiting.unregister(key.fileobj)
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
            begin()


def garbage(port: int, count: int) -> None:
    """Send random bytes, and records of TLS that are cut off."""
    for number in range(count):
        with contextlib.suppress(OSError), _connected(port) as connection:
            connection.settimeout(1.0)
            if number % 3 == 0:
                connection.sendall(os.urandom(200))
            elif number % 3 == 1:
                connection.sendall(b"\x16\x03\x01\xff\xff" + os.urandom(100))
            else:
                connection.sendall(pack(">i", 2**31 - 1) + os.urandom(100))
            connection.shutdown(socket.SHUT_WR)
            connection.recv(100)


KINDS: Final = {"passwords": passwords, "half_open": half_open, "garbage": garbage}


if __name__ == "__main__":
    started = time.monotonic()
    KINDS[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
    print(f"done in {time.monotonic() - started:.1f} s", flush=True)
