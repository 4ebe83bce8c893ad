"""The hub: the process that keeps what the workers share, the metadata store and the metrics' page.

The supervisor sends it the stream of each session, and what it knows of each worker.
"""

import asyncio
import logging
import signal
import socket
from contextlib import AsyncExitStack

from qbus.config import BrokerConfig
from qbus.metadata import SessionState
from qbus.metadata.serving import StoreServer
from qbus.service import event_loop
from qbus.service.prometheus import PageSecurity
from qbus.service.prometheus import serve as serve_metrics

from ..metadata.store import embedded_store
from ..metrics_page import page_tls
from ..startup import make_directory
from .metrics import WorkersMetrics, WorkerState
from .worker import tell_ready

_log = logging.getLogger(__name__)

_MESSAGE = 4096


def run(config: BrokerConfig, lifeline: socket.socket, metrics_secret: str = "") -> int:
    """Serve until SIGTERM or the end of the lifeline; the exit code is 1 if the store has failed.

    ``metrics_secret``: by which workers know that the hub asks for metrics.

    Raises:
        StoreUnusable: the metadata store cannot be opened.
        StoreUnavailable: it cannot be opened for now: the disk is full.
        OSError: the address for metrics cannot be listened on.
    """
    hub = _Hub(config, lifeline, metrics_secret)
    return event_loop.run(hub.run(), config.event_loop_slow_ms / 1000)


class _Hub:
    def __init__(self, config: BrokerConfig, lifeline: socket.socket, secret: str) -> None:
        self._config = config
        self._lifeline = lifeline
        self._metrics = WorkersMetrics(secret)
        self._server: StoreServer | None = None
        self._stop = asyncio.Event()
        self._failed = False

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        async with AsyncExitStack() as cleanup:
            if self._config.zookeeper_address is None:
                store = embedded_store(self._config)
                make_directory(self._config)
                store.on_state(self._end_with_store)
                await store.start()
                cleanup.push_async_callback(store.close)
                session_s = self._config.zookeeper_session_timeout_ms / 1000
                self._server = StoreServer(store, session_s)
                cleanup.push_async_callback(self._server.close)
            address = self._config.metrics_address
            if address is not None:
                # The workers' own have the same names.
                config = self._config
                decide = self._metrics.decide if config.metrics_authenticates else None
                security = PageSecurity(page_tls(config), decide)
                cleanup.callback(
                    serve_metrics(self._metrics, *address, of_process=False, security=security)
                )
            self._lifeline.setblocking(False)
            loop.add_reader(self._lifeline, self._listen)
            tell_ready(self._lifeline)
            await self._stop.wait()
            loop.remove_reader(self._lifeline)
        return int(self._failed)

    def _listen(self) -> None:
        """Take what the supervisor sends; its end is ours."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._lifeline, _MESSAGE, 1)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        if not data:
            _log.error("the supervisor is gone: the metadata store is closed")
            self._stop.set()
            return
        worker = WorkerState.decode(data)
        self._metrics.workers[worker.node_id] = worker
        for descriptor in descriptors:
            stream = socket.socket(fileno=descriptor)
            if self._server is None:
                stream.close()
            else:
                self._server.serve(stream)

    def _end_with_store(self, state: SessionState) -> None:
        if state is SessionState.LOST and not self._stop.is_set():
            self._failed = True
            self._stop.set()
