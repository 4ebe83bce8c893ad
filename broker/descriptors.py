"""How a broker shares out its file descriptors.

A flood of clients must not stop a log from beginning a segment, and logs must not keep clients out:
each has a share of the process's limit, and a reserve is for all else (the metadata store,
listeners, other brokers, files that are open for a moment).
"""

from typing import Final, NamedTuple

from qbus.service import descriptors

_MOST_FOR_LOGS: Final = 100_000
_LEAST_FOR_LOGS: Final = 8
_MOST_IN_RESERVE: Final = 256


class Shares(NamedTuple):
    """Of ``limit`` descriptors, how many ``connections`` and files of ``logs`` may have."""

    limit: int
    connections: int
    logs: int


def shares(limit: int) -> Shares:
    """The shares of a limit: half for logs, up to what 100,000 files take, less the reserve.

    Logs may go beyond their share by a quarter, see :class:`.log.file_cache.FileCache`.
    """
    half = min(limit // 2, _MOST_FOR_LOGS)
    reserve = min(_MOST_IN_RESERVE, half // 4)
    return Shares(limit, max(limit - half, 1), max((half - reserve) * 4 // 5, _LEAST_FOR_LOGS))


def most_files_of_logs() -> int:
    """How many files of logs this process may keep open."""
    return shares(descriptors.limit()).logs
