"""Shows on stderr which measurement runs, and for how long."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

EVERY_S = 10.0


@contextmanager
def progress(name: str, number: int, count: int, *, every: float = EVERY_S) -> Iterator[None]:
    """Print ``[number/count] name`` at the start, every ``every`` seconds, and at the end."""
    stream: TextIO = sys.stderr
    began, ended = time.monotonic(), threading.Event()
    title = f"[{number}/{count}] {name}"

    def report() -> None:
        while not ended.wait(every):
            print(f"{title}: {time.monotonic() - began:.0f} s so far", file=stream, flush=True)

    print(f"{title} ...", file=stream, flush=True)
    thread = threading.Thread(target=report, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        print(f"{title}: {time.monotonic() - began:.0f} s", file=stream, flush=True)
