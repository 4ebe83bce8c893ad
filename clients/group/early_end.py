"""Logs that iterating ended before a group had assigned partitions."""

import logging

_log = logging.getLogger(__name__)


class EarlyEnd:
    """The warning of one consumer, logged once.

    group: the group in words, such as ``group readers``. timeout: ``consumer_timeout_ms`` in
        seconds.
    """

    def __init__(self, group: str, timeout: float | None) -> None:
        self._group = group
        self._timeout = timeout
        self._is_logged = False

    def log(self) -> None:
        """Log the warning, unless it is logged already."""
        if self._is_logged or self._timeout is None:
            return
        self._is_logged = True
        _log.warning(
            "consumer_timeout_ms=%.0f ended before %s had assigned partitions to this member. A new"
            " group takes group.initial.rebalance.delay.ms (3000 by default) to form: raise"
            " consumer_timeout_ms above it",
            self._timeout * 1000,
            self._group,
        )
