"""How many files of the broker one request passes: ``python -m perf.way [--names]``.

A broker runs in this process under a profiler, which notes every file of Qbus that a function is
called in, while a client sends one ``acks=all`` record of an idempotent producer, and then one
fetch that is answered at once. Both were warmed up.
"""

import os
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from confluent_kafka import Producer

from perf import quiet
from qbus.cli.root import qbus
from tests.support.ports import free_port

_TOPIC = b"way"
_WARM_UP = 20


class Files:
    """The files of Qbus that functions were called in, in all threads but the client's."""

    def __init__(self) -> None:
        self.client = 0
        self._seen: set[str] | None = None

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Take a call from the interpreter's profiler."""
        seen = self._seen
        if seen is None or event != "call" or threading.get_ident() == self.client:
            return
        path = frame.f_code.co_filename
        if "/qbus/" in path:
            seen.add(path.rpartition("/qbus/")[2])

    def during(self, work: Callable[[], object]) -> list[str]:
        """Do ``work``, and return the files it took."""
        time.sleep(0.3)
        self._seen = seen = set()
        work()
        time.sleep(0.05)
        self._seen = None
        return sorted(seen)


def _fetch(port: int) -> Callable[[], object]:
    """A Fetch of version 4 for the start of the topic, to be sent again and again."""
    connection = socket.create_connection(("127.0.0.1", port))
    body = struct.pack(">iiiib", -1, 0, 1, 1 << 20, 0) + struct.pack(">ih", 1, len(_TOPIC))
    body += _TOPIC + struct.pack(">iiqi", 1, 0, 0, 1 << 20)
    request = struct.pack(">hhih", 1, 4, 7, 1) + b"c" + body

    def fetch() -> None:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        connection.recv(size, socket.MSG_WAITALL)

    return fetch


def _drive(port: int, files: Files) -> None:
    files.client = threading.get_ident()
    sys.setprofile(None)
    time.sleep(1.5)
    options = {**quiet.at(f"127.0.0.1:{port}"), "linger.ms": 0, "enable.idempotence": True}
    producer = Producer(options)

    def produce() -> None:
        producer.produce(_TOPIC.decode(), b"x", partition=0)
        producer.flush(10)

    for _ in range(_WARM_UP):
        produce()
    ways = {"produce": files.during(produce)}
    fetch = _fetch(port)
    fetch()
    ways["fetch"] = files.during(fetch)
    for name, passed in ways.items():
        print(f"{name}: {len(passed)} files")
        if "--names" in sys.argv:
            print("".join(f"  {path}\n" for path in passed), end="")
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    """Run a broker until the client has printed what it found."""
    files, port = Files(), free_port()
    threading.setprofile(files.note)
    threading.Thread(target=_drive, args=(port, files), daemon=True).start()
    sys.setprofile(files.note)
    with tempfile.TemporaryDirectory(prefix="qbus-way-") as directory:
        options = ["--listen", f"127.0.0.1:{port}", "--log-level", "error"]
        qbus(args=["broker", "--data-dir", str(Path(directory, "data")), *options])


if __name__ == "__main__":
    main()
