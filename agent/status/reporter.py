"""The whole status document of a process: who it is, what it was told, how it goes."""

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qbus._version import __version__
from qbus.clock import Clock
from qbus.service.control.document import TIME, encode

from .document import MAX_BYTES, document
from .model import AgentStatus

_LOCAL_BYTES = 16 * 1024 * 1024
FILE = "status.json"


class Reporter:
    """Makes status documents; ``configuration`` and ``status`` tell how things are."""

    def __init__(
        self,
        name: str,
        group: str | None,
        host: str,
        configuration: Callable[[], dict[str, Any]],
        status: Callable[[], AgentStatus],
        clock: Clock,
    ) -> None:
        self._configuration = configuration
        self._status = status
        self._clock = clock
        self._head = {
            "version": 1,
            "name": name,
            "group": group,
            "host": host,
            "pid": os.getpid(),
            "instance": secrets.token_hex(8),
            "qbus": __version__,
            "started_ms": clock.time_ms(),
        }

    def report(self, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
        """The document as of now; ``max_bytes`` are for the list of files."""
        return {
            **self._head,
            TIME: self._clock.time_ms(),
            "configuration": self._configuration(),
            **document(self._status(), max_bytes),
        }

    def write(self, data_dir: Path) -> None:
        """Leave the document, with all files in it, in the data directory. Raises OSError."""
        path = data_dir / FILE
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(encode(self.report(_LOCAL_BYTES)))
        temporary.replace(path)
