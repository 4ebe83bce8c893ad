"""Imports, soon after the start, what requests may need later.

A broker starts fast because it imports a handler when the first request for it comes. An import
opens a file: it fails once file descriptors are used up, and then every such request would fail.
So a thread imports the rest when the broker has just started.
"""

import logging
import threading
from importlib import import_module
from typing import Final

from qbus.wire import API

from .kafka.dispatch import Dispatcher

_log = logging.getLogger(__name__)

OTHERS: Final = (
    # Log lines with tracebacks, and names of hosts.
    "linecache",
    "tokenize",
    "encodings.idna",
    # Records that are looked into.
    "qbus.records.codec",
    "qbus.records.consume",
    "qbus.records.encode",
    "qbus.records.recompress",
    # Transactions, dead letters, other brokers.
    "qbus.broker.peers.client",
    "qbus.broker.replicator.fetchers",
)
"""What handlers, background tasks and the logging of errors import when they need it."""

COMPRESSIONS: Final = ("gzip", "cramjam", "lz4.frame", "zstandard")
"""What decompression imports, which few brokers need: 2 MB, taken where descriptors are few."""

_FEW: Final = 4096
_AFTER_S: Final = 0.5
_PAUSE_S: Final = 0.002
_AGAIN_S: Final = 5.0


class Preload:
    """Imports in a thread of its own, from :meth:`start` until all is there or it is stopped."""

    def __init__(self, dispatcher: Dispatcher, limit: int) -> None:
        """``limit``: how many descriptors this process may have."""
        self._dispatcher = dispatcher
        self._others = OTHERS if limit > _FEW else OTHERS + COMPRESSIONS
        self._stop = threading.Event()

    def start(self) -> None:
        """Begin. Where no thread can be started, modules are imported when they are needed."""
        try:
            threading.Thread(target=self._run, name="qbus-import", daemon=True).start()
        except RuntimeError as error:
            _log.warning("handlers are imported when they are needed: %s", error)

    def stop(self) -> None:
        """Import nothing more."""
        self._stop.set()

    def load(self) -> OSError | None:
        """Import what is not there yet; why some of it could not be, if so."""
        failure: OSError | None = None
        for key in API:
            try:
                self._dispatcher.load(key)
            except OSError as error:
                failure = error
            if self._stop.wait(_PAUSE_S):  # the event loop has the interpreter meanwhile
                return None
        for name in self._others:
            try:
                import_module(name)
            except ImportError as error:  # not installed: then nothing imports it later, either
                _log.debug("%s is not there: %s", name, error)
            except OSError as error:
                failure = error
            if self._stop.wait(_PAUSE_S):
                return None
        return failure

    def _run(self) -> None:
        pause = _AFTER_S
        while not self._stop.wait(pause):
            failure = self.load()
            if failure is None:
                _log.debug("all handlers are imported")
                return
            _log.warning("cannot import handlers yet, trying again: %s", failure)
            pause = _AGAIN_S
