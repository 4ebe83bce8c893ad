"""Connections of this process to clusters, which outlive the task that opened them.

Spark gives one task after another to the same Python worker: only the first has to connect. Broken
connections are opened anew by those who use them.
"""

import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from qbus.errors import ApiError, ErrorCode

from ..blocking.loop import LoopThread
from ..net.cluster import Cluster
from .cluster_options import SERVERS, ClusterOptions
from .errors import NotReached

T = TypeVar("T")

_UNREACHED = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})

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

    def ask(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What ``coroutine`` learns from any broker; :class:`NotReached` where none answers it.

        Raises what else it does.
        """
        try:
            return self.run(coroutine)
        except ApiError as error:
            if not _is_unreached(error):
                raise
            raise NotReached(
                f"no broker of {self.options.bootstrap} (option {SERVERS}) answers this host:"
                f" {error}. See that they run, and that driver and executors can reach the"
                " addresses they advertise"
            ) from error


def _is_unreached(error: ApiError) -> bool:
    """Not where a broker has answered, and was not ready until the time was over."""
    answer = error.__cause__
    last = answer if isinstance(answer, ApiError) else error
    return error.code in _UNREACHED and last.code in _UNREACHED


def connections(options: ClusterOptions) -> Connections:
    """This process's connections to a cluster; a forked process has its own."""
    key = (os.getpid(), options)
    with _lock:
        found = _open.get(key)
        if found is None or found.thread.is_closed:
            found = _open[key] = Connections(options)
        return found
