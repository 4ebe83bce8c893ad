"""How a broker shares out its file descriptors, and what it tells of them.

A flood of clients must not stop a log from beginning a segment, and logs must not keep clients out:
each has a share of the process's limit, and a reserve is for all else (the metadata store,
listeners, other brokers, files that are open for a moment).
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from qbus.service import descriptors

from .log import LogManager
from .log.files import open_files
from .metrics import Metrics

_log = logging.getLogger(__name__)

_MOST_FOR_LOGS: Final = 100_000
_LEAST_FOR_LOGS: Final = 8
_MOST_IN_RESERVE: Final = 256


class Shares(NamedTuple):
    """How many ``connections`` and open files of ``logs`` there may be."""

    connections: int
    logs: int


def shares(limit: int) -> Shares:
    """The shares of a limit: half for logs, at most 100,000, of which a quarter is the reserve.

    Logs may go beyond their share by a quarter, see :class:`.log.file_cache.FileCache`.
    """
    half = min(limit // 2, _MOST_FOR_LOGS)
    reserve = min(_MOST_IN_RESERVE, half // 4)
    return Shares(max(limit - half, 1), max((half - reserve) * 4 // 5, _LEAST_FOR_LOGS))


def most_files_of_logs() -> int:
    """How many files of logs this process may keep open."""
    return shares(descriptors.limit()).logs


def most_connections() -> int:
    """How many connections this process may have."""
    return shares(descriptors.limit()).connections


def register_descriptors(
    metrics: Metrics, logs: LogManager, connections: Callable[[], int]
) -> None:
    """Tell of descriptors from now on: in metrics, when they run out, and if they are few."""
    files, shortages = logs.open_files, descriptors.shortages
    shortages.users |= {"connections": connections, "files of logs": open_files}
    metrics.gauge(
        "descriptors_open",
        "Number of open file descriptors of the broker's process.",
        lambda: descriptors.count() or descriptors.limit(),
    )
    metrics.gauge(
        "descriptors_max",
        "Number of file descriptors that the broker's process may have.",
        descriptors.limit,
    )
    metrics.counter(
        "descriptor_shortages",
        "Number of times that something failed for want of a file descriptor.",
        lambda: shortages.count,
    )
    metrics.gauge("log_files_open", "Number of open files of logs.", open_files)
    metrics.gauge(
        "log_files_max",
        "Number of files of logs that may be kept open; the least recently used are closed.",
        lambda: files.limit,
    )
    partitions = len(logs.logs())
    if partitions > files.limit:
        _log.warning(
            "%d partitions, and their logs may keep %d files open: files are closed and opened"
            " again, which costs time; the limit of this process is %d descriptors; %s",
            *(partitions, files.limit, descriptors.limit(), descriptors.HOW_TO_RAISE),
        )
