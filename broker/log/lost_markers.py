"""Transactions whose end may be in a damaged batch.

Nobody but that marker says whether such a transaction was committed. It stays open, so consumers of
committed records get no further than to its first record until an operator ends it.
"""

import logging
from collections.abc import Iterable

from .producers import ProducerState
from .segment import LogSegment

_logger = logging.getLogger(__name__)


def warn_of_lost_markers(
    directory: str, segments: Iterable[LogSegment], producers: ProducerState
) -> None:
    """Log the open transactions that began before damage."""
    starts = [one.start.offset for segment in segments for one in segment.damage]
    for producer_id, start in producers.open_transactions.items():
        behind = next((offset for offset in starts if offset > start), None)
        if behind is not None:
            _logger.warning(
                "%s: the transaction of producer %d from offset %d on is open, and its end may be"
                " in the damaged batches of offset %d: unless its producer goes on, end it with"
                " `qbus transaction abort --topic --partition --start-offset %d`",
                directory,
                producer_id,
                start,
                behind,
                start,
            )
