"""A TLS connection as a transport: the promises that a connection builds on."""

import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import pack

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from qbus.broker.net.tls_transport import CHUNK, READ, RECORD, TlsTransport
from qbus.broker.net.transport import WriteBuffer
from qbus.security.client import ClientSecurity
from qbus.security.tls import client_context, server_context
from tests.support.certificates import Certificates
from tests.unit.security.test_tls import Settings


class Pair:
    """A transport, and its client as a blocking socket."""

    def __init__(
        self, certificates: Certificates, version: str, keylog: Path | None = None
    ) -> None:
        settings = Settings(
            ssl_keystore_location=str(certificates.server()), ssl_enabled_protocols=(version,)
        )
        trust = ClientSecurity(protocol="SSL", ssl_ca_location=str(certificates.ca))
        ours, theirs = socket.socketpair()
        made: list[ssl.SSLSocket] = []

        def connect() -> None:
            context = client_context(trust)
            if keylog is not None:
                context.keylog_filename = str(keylog)
            made.append(context.wrap_socket(theirs, server_hostname="localhost"))

        thread = threading.Thread(target=connect)
        thread.start()
        ours.settimeout(10)
        self.transport = TlsTransport(
            ours,
            server_context(settings),
            memoryview(bytearray(READ)),
            memoryview(bytearray(CHUNK)),
        )
        self.transport.feed()
        while not self.transport.shake_hands():
            self.transport.feed()
        thread.join()
        (self.client,) = made
        ours.setblocking(False)

    def close(self) -> None:
        self.transport.close()
        self.client.close()


@pytest.fixture(params=["TLSv1.2", "TLSv1.3"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    made = Pair(Certificates(tmp_path / "ca"), request.param)
    yield made
    made.close()


def received(transport: TlsTransport, room: int = 1 << 20) -> bytes:
    target = memoryview(bytearray(room))
    return bytes(target[: transport.receive_into(target)])


def test_nothing_to_receive_would_block(pair: Pair) -> None:
    with pytest.raises(BlockingIOError):
        received(pair.transport)
    pair.client.sendall(b"hello")
    assert received(pair.transport) == b"hello"
    with pytest.raises(BlockingIOError):
        received(pair.transport)


def test_what_is_not_received_is_told_of(pair: Pair) -> None:
    pair.client.sendall(b"0123456789")
    assert pair.transport.pending == 0  # the descriptor tells of it
    assert received(pair.transport, 4) == b"0123"
    assert pair.transport.pending == 6  # and would not tell of this
    assert received(pair.transport, 4) == b"4567"
    assert received(pair.transport, 4) == b"89"
    assert pair.transport.pending == 0


def test_nothing_is_left_behind_by_a_receive_that_had_room(pair: Pair) -> None:
    for size in (1, RECORD - 1, RECORD, RECORD + 1, 50_000):
        sent = os.urandom(size)
        pair.client.sendall(sent)
        pair.client.sendall(b"more")
        assert received(pair.transport) == sent + b"more"
        assert pair.transport.pending == 0


def test_the_end_of_the_stream(pair: Pair) -> None:
    pair.client.setblocking(False)
    with pytest.raises(ssl.SSLWantReadError):  # its end is announced, and ours not waited for
        pair.client.unwrap()
    assert received(pair.transport) == b""


def test_an_end_that_is_not_announced_is_one_too(pair: Pair) -> None:
    pair.client.close()
    assert received(pair.transport) == b""


def test_records_that_were_changed_break_the_stream(pair: Pair) -> None:
    raw = socket.socket(fileno=os.dup(pair.client.fileno()))
    with raw:
        raw.sendall(b"\x17\x03\x03\x00\x20" + os.urandom(32))
    with pytest.raises(OSError, match=r"BAD_RECORD_MAC|DECRYPTION_FAILED"):
        received(pair.transport)


def test_buffers_and_files_go_out_in_order(pair: Pair, tmp_path: Path) -> None:
    content = os.urandom(300_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    with path.open("rb") as file:
        output = WriteBuffer()
        output.add([b"header", Region(file.fileno(), 1000, 200_000), b"", b"tail" * 1000])
        expected = b"header" + content[1000:201_000] + b"tail" * 1000
        got = send_all(pair, output, len(expected))
    assert got == expected


def test_a_slow_client_gets_everything_once(pair: Pair) -> None:
    sent = [os.urandom(size) for size in (10, 70_000, 1, 2_000_000, 50)]
    output = WriteBuffer()
    output.add(sent[:2])
    output.send(pair.transport)
    output.add(sent[2:])  # more comes while a record is half sent
    assert send_all(pair, output, sum(map(len, sent))) == b"".join(sent)


def test_others_are_served_during_a_long_answer(pair: Pair) -> None:
    output = WriteBuffer()
    output.add([bytes(8 << 20)])
    reader = Reader(pair.client, 8 << 20)
    turns = 0
    while not output.send(pair.transport):
        turns += 1
    assert turns >= 7
    assert len(reader.result()) == 8 << 20


def test_closing_announces_the_end(pair: Pair) -> None:
    pair.transport.close()
    assert pair.client.recv(10) == b""  # and no error


class Region:
    """A range of a file."""

    def __init__(self, fd: int, position: int, size: int) -> None:
        self._fd, self.position, self._size = fd, position, size

    def __len__(self) -> int:
        return self._size

    def fileno(self) -> int:
        return self._fd

    def read(self) -> bytes:
        return os.pread(self._fd, self._size, self.position)

    def close(self) -> None:
        self._size = 0


class Reader:
    """Receives so many bytes in a thread."""

    def __init__(self, client: ssl.SSLSocket, size: int) -> None:
        self._client, self._left = client, size
        self._parts: list[bytes] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while self._left and (part := self._client.recv(1 << 16)):
            self._parts.append(part)
            self._left -= len(part)

    def result(self) -> bytes:
        self._thread.join(30)
        return b"".join(self._parts)


def send_all(pair: Pair, output: WriteBuffer, size: int) -> bytes:
    reader = Reader(pair.client, size)
    while not output.send(pair.transport):
        pass
    return reader.result()


# A client that has nothing to say, and says it again and again


class KeyUpdates:
    """Records of TLS 1.3 that change a client's keys once more each, and carry nothing else."""

    def __init__(self, client: ssl.SSLSocket, secret: bytes) -> None:
        cipher = client.cipher()
        assert cipher is not None
        self._hash = hashes.SHA384() if "SHA384" in cipher[0] else hashes.SHA256()
        self._key_size = 32 if "256_GCM" in cipher[0] else 16
        self._secret = secret

    def record(self, *, requested: bool) -> bytes:
        key, iv = self._expand(b"key", self._key_size), self._expand(b"iv", 12)
        message = b"\x18\x00\x00\x01" + bytes([requested]) + b"\x16"
        header = b"\x17\x03\x03" + pack(">H", len(message) + 16)
        self._secret = self._expand(b"traffic upd", self._hash.digest_size)
        return header + AESGCM(key).encrypt(iv, message, header)  # the first under this key

    def _expand(self, label: bytes, size: int) -> bytes:
        """HKDF-Expand-Label (RFC 8446, 7.1)."""
        name = b"tls13 " + label
        info = pack(">HB", size, len(name)) + name + b"\x00"
        return HKDFExpand(self._hash, size, info).derive(self._secret)


@pytest.mark.parametrize("requested", [False, True], ids=["told", "asked back"])
def test_records_that_carry_nothing_do_not_keep_the_broker(tmp_path: Path, requested: bool) -> None:
    keys = tmp_path / "keys"
    pair = Pair(Certificates(tmp_path / "ca"), "TLSv1.3", keylog=keys)
    (secret,) = [
        bytes.fromhex(line.split()[2])
        for line in keys.read_text().splitlines()
        if line.startswith("CLIENT_TRAFFIC_SECRET_0")
    ]
    with pytest.raises(OSError, match=r"carry nothing|does not read its answers"):
        flood(pair, KeyUpdates(pair.client, secret), requested=requested)
    pair.close()


def flood(pair: Pair, updates: KeyUpdates, *, requested: bool) -> None:
    """Send such records until the connection is broken; no receive may take long."""
    waiting = b""
    with socket.socket(fileno=os.dup(pair.client.fileno())) as raw:
        raw.setblocking(False)
        for _ in range(8000):
            waiting += updates.record(requested=requested)
            if len(waiting) < 30_000:
                continue
            waiting = waiting[raw.send(waiting) :]
            began = time.perf_counter()
            with suppress(BlockingIOError):
                pair.transport.receive_into(memoryview(bytearray(1 << 18)))
            assert time.perf_counter() - began < 0.5
