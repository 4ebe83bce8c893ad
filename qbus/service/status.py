"""Status documents: what a daemon says of itself, as JSON of bounded size."""

import json
import os
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from qbus._version import __version__
from qbus.clock import Clock

TIME = "updated_ms"
"""The field with the time a document was made, in milliseconds since the Unix epoch."""
MAX_BYTES = 256 * 1024
"""The longest list in a document that goes to ZooKeeper, which takes no node above 1 MiB."""

_LONGEST_ERROR = 500


class StatusReporter:
    """Makes the status documents of one process.

    identity: fields that name the process. configuration: describes the configuration in force.
    work: describes what the daemon does; its argument bounds its lists, in bytes of JSON.
    """

    def __init__(
        self,
        identity: Mapping[str, Any],
        configuration: Callable[[], dict[str, Any]],
        work: Callable[[int], dict[str, Any]],
        clock: Clock,
    ) -> None:
        self._configuration = configuration
        self._work = work
        self._clock = clock
        self._head = {
            "version": 1,
            **identity,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "instance": secrets.token_hex(8),
            "qbus": __version__,
            "started_ms": clock.time_ms(),
        }

    def report(self, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
        """Return the document as of now; ``max_bytes`` bounds its lists."""
        return {
            **self._head,
            TIME: self._clock.time_ms(),
            "configuration": self._configuration(),
            **self._work(max_bytes),
        }


def encode(document: dict[str, Any]) -> bytes:
    """Return JSON in ASCII, which can hold what is not text, such as some file names."""
    return json.dumps(document, separators=(",", ":")).encode()


def fitting(documents: Iterable[dict[str, Any]], max_bytes: int) -> Iterable[dict[str, Any]]:
    """Yield the first of ``documents`` that together take at most ``max_bytes`` of a JSON list."""
    left = max_bytes
    for document in documents:
        left -= len(encode(document)) + 1
        if left < 0:
            return
        yield document


def short(error: str | None) -> str | None:
    """Return an error's text, cut if it is very long."""
    if error is None or len(error) <= _LONGEST_ERROR:
        return error
    return error[:_LONGEST_ERROR] + "..."
