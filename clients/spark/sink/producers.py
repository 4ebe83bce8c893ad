"""The producers of this process, shared by its tasks.

Brokers remember each producer id for a day: one producer for every task would be too many.
"""

import os
import threading
from typing import Any

from ...producer import Producer
from ...producer.options import Acks
from ..cluster_options import ClusterOptions
from ..connections import Connections
from .options import ProducerSettings

_Key = tuple[int, ClusterOptions, ProducerSettings]

_ACKS: dict[str, Acks] = {"0": 0, "1": 1}

_lock = threading.Lock()
_open: dict[_Key, tuple[Connections, Producer]] = {}


def producer(connected: Connections, settings: ProducerSettings) -> Producer:
    """The producer with these settings, in the event loop of ``connected``."""
    key = (os.getpid(), connected.options, settings)
    with _lock:
        found = _open.get(key)
        if found is None or found[0] is not connected:
            found = _open[key] = connected, _new(connected.options, settings)
        return found[1]


def discard(connected: Connections, settings: ProducerSettings) -> None:
    """Close a producer that failed, with the records it holds; the next task gets a new one."""
    with _lock:
        found = _open.pop((os.getpid(), connected.options, settings), None)
    if found is not None and found[0] is connected:
        connected.run(found[1].close(0))


def transactional(
    connected: Connections, settings: ProducerSettings, transactional_id: str, timeout_ms: int
) -> Producer:
    """A producer for one task, in the event loop of ``connected``; the caller closes it."""
    return _new(
        connected.options,
        settings,
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
    )


def _new(cluster: ClusterOptions, settings: ProducerSettings, **more: Any) -> Producer:
    return Producer(
        cluster.bootstrap,
        acks=_ACKS.get(settings.acks, "all"),
        compression=settings.compression,
        linger_ms=0,
        batch_bytes=settings.batch_bytes,
        buffer_bytes=settings.buffer_bytes,
        delivery_timeout_ms=settings.delivery_timeout_ms,
        request_timeout_ms=int(cluster.request_timeout * 1000),
        client_id=cluster.client_id,
        security=cluster.security.security(),
        **more,
    )
