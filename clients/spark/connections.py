"""Connections of this process to clusters, shared by all of its tasks.

Spark runs one task after another in the same Python worker: only the first one connects. The
cluster client reopens broken connections.
"""

import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from qbus.errors import ApiError, ErrorCode

from ..blocking.loop import LoopThread
from ..errors import NotSafe
from ..net.cluster import Cluster
from .cluster_options import SERVERS, ClusterOptions
from .errors import NotReached

T = TypeVar("T")

_UNREACHED = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})

_lock = threading.Lock()
_open: dict[tuple[int, ClusterOptions], "Connections"] = {}


class Connections:
    """A cluster client, and the thread whose event loop it runs in."""

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options
        self.cluster = Cluster(
            options.bootstrap,
            options.client_id,
            options.request_timeout,
            metadata_max_age=options.metadata_max_age,
            security=options.security.security(),
        )
        self.thread = LoopThread("qbus-spark")

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run ``coroutine`` in the thread; return or raise its result."""
        return self.thread.run(coroutine)

    def ask(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run ``coroutine`` as :meth:`run`; raises :class:`NotReached` if no broker answers."""
        try:
            return self.run(coroutine)
        except ApiError as error:
            if not _is_unreached(error):
                raise
            raise NotReached(
                f"no broker of {self.options.bootstrap} (option {SERVERS}) answers this host:"
                f" {error}. Check that the brokers run, and that the driver and the executors can"
                " reach the addresses that they advertise"
            ) from error


def _is_unreached(error: ApiError) -> bool:
    """Whether no broker answered at all; false if one answered that it was not ready, or is not
    trusted, or does not trust this client.
    """
    if isinstance(error, NotSafe):
        return False
    answer = error.__cause__
    last = answer if isinstance(answer, ApiError) else error
    return error.code in _UNREACHED and last.code in _UNREACHED


def connections(options: ClusterOptions) -> Connections:
    """The connections of this process to a cluster; a forked process has its own."""
    key = (os.getpid(), options)
    with _lock:
        found = _open.get(key)
        if found is None or found.thread.is_closed:
            found = _open[key] = Connections(options)
        return found
