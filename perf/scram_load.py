"""SCRAM handshakes as the load: ``python -m perf.scram_load PORT SECONDS THREADS USER PASSWORD``.

Each is a connection of its own: SaslHandshake, two SaslAuthenticate, and the end. What a client
derives from its password is kept, as Kafka's clients may, so that the server has the most to do.
Prints one JSON object; the first fifth of the time is warm-up.
"""

import base64
import hashlib
import hmac
import json
import os
import socket
import sys
import threading
import time
from functools import cache
from struct import pack, unpack

_HASH = "sha256"
_MECHANISM = b"SCRAM-SHA-256"
_CLIENT = b"perf"
_WARM_UP = 0.2


def main(port: int, seconds: float, threads: int, user: str, password: str) -> None:
    """Shake hands in ``threads`` threads for so long, and print how often it went well."""
    counts = [0] * threads
    counting, ended = threading.Event(), threading.Event()
    failures: list[Exception] = []

    def work(index: int) -> None:
        try:
            while not ended.is_set():
                shake_hands(port, user, password)
                if counting.is_set():
                    counts[index] += 1
        except Exception as error:  # noqa: BLE001 - told below
            failures.append(error)

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    time.sleep(seconds * _WARM_UP)
    print("counting", flush=True)
    counting.set()
    started = time.perf_counter()
    time.sleep(seconds)
    counting.clear()
    elapsed = time.perf_counter() - started
    ended.set()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    print(json.dumps({"handshakes": sum(counts), "seconds": elapsed}), flush=True)


def shake_hands(port: int, user: str, password: str) -> None:
    """Connect, authenticate, and close. Raises RuntimeError, if the server is not content."""
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answer = _ask(sock, 17, 1, pack(">h", len(_MECHANISM)) + _MECHANISM)
        if answer[:2] != b"\0\0":
            raise RuntimeError("the server has no such mechanism")
        bare = b"n=" + user.encode() + b",r=" + base64.b64encode(os.urandom(18))
        first = _authenticate(sock, b"n,," + bare)
        fields = dict(part.split(b"=", 1) for part in first.split(b","))
        client_key, stored_key = _keys(password, fields[b"s"], int(fields[b"i"]))
        without_proof = b"c=biws,r=" + fields[b"r"]
        signed = b",".join((bare, first, without_proof))
        signature = hmac.digest(stored_key, signed, _HASH)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        last = _authenticate(sock, without_proof + b",p=" + base64.b64encode(proof))
        if not last.startswith(b"v="):
            raise RuntimeError("the server did not prove itself")


@cache
def _keys(password: str, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    salted = hashlib.pbkdf2_hmac(_HASH, password.encode(), base64.b64decode(salt), iterations)
    client_key = hmac.digest(salted, b"Client Key", _HASH)
    return client_key, hashlib.new(_HASH, client_key).digest()


def _authenticate(sock: socket.socket, message: bytes) -> bytes:
    answer = _ask(sock, 36, 0, pack(">i", len(message)) + message)
    (code, said) = unpack(">hh", answer[:4])
    if code:
        raise RuntimeError(f"refused with {code}: {answer[4 : 4 + max(said, 0)].decode()}")
    begin = 4 + max(said, 0) + 4
    return answer[begin:]


def _ask(sock: socket.socket, key: int, version: int, body: bytes) -> bytes:
    header = pack(">hhih", key, version, 1, len(_CLIENT)) + _CLIENT
    sock.sendall(pack(">i", len(header) + len(body)) + header + body)
    (size,) = unpack(">i", _receive(sock, 4))
    return _receive(sock, size)[4:]


def _receive(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise RuntimeError("the server closed the connection")
        data += more
    return data


if __name__ == "__main__":
    _port, _seconds, _threads, _user, _password = sys.argv[1:]
    main(int(_port), float(_seconds), int(_threads), _user, _password)
