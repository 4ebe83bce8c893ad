"""The whole status document of a process: who it is, what it was told, how it goes."""

import os
import secrets
import socket
from collections.abc import Callable, Sequence
from typing import Any

from qbus._version import __version__
from qbus.clock import Clock
from qbus.service.control.document import TIME

from .document import MAX_BYTES, link_document
from .model import LinkStatus


class Reporter:
    """Makes status documents; ``configuration`` and ``status`` tell how things are."""

    def __init__(
        self,
        process: str,
        configuration: Callable[[], dict[str, Any]],
        status: Callable[[], Sequence[LinkStatus]],
        clock: Clock,
    ) -> None:
        self._configuration = configuration
        self._status = status
        self._clock = clock
        self._head = {
            "version": 1,
            "process": process,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "instance": secrets.token_hex(8),
            "qbus": __version__,
            "started_ms": clock.time_ms(),
        }

    def report(self) -> dict[str, Any]:
        """The document as of now."""
        links = self._status()
        share = MAX_BYTES // max(len(links), 1)
        return {
            **self._head,
            TIME: self._clock.time_ms(),
            "configuration": self._configuration(),
            "links": [link_document(link, share) for link in links],
        }
