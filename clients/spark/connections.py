"""Connections of this process to clusters, which outlive the task that opened them.

Spark gives one task after another to the same Python worker: only the first has to connect. Broken
connections are opened anew by those who use them.
"""

import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..blocking.loop import LoopThread
from ..cluster import Cluster
from .cluster_options import ClusterOptions

T = TypeVar("T")

_lock = threading.Lock()
_open: dict[tuple[int, ClusterOptions], "Connections"] = {}


class Connections:
    """A cluster, and the thread in whose loop its connections live."""

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options
        self.cluster = Cluster(
            options.bootstrap,
            options.client_id,
            options.request_timeout,
            metadata_max_age=options.metadata_max_age,
        )
        self.thread = LoopThread("qbus-spark")

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What ``coroutine``, run in the thread, returns or raises."""
        return self.thread.run(coroutine)


def connections(options: ClusterOptions) -> Connections:
    """This process's connections to a cluster; a forked process has its own."""
    key = (os.getpid(), options)
    with _lock:
        found = _open.get(key)
        if found is None or found.thread.is_closed:
            found = _open[key] = Connections(options)
        return found
