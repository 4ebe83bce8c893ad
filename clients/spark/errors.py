"""Errors of queries that are not caused by an invalid option."""

import logging
from collections.abc import Sequence

from qbus.errors import QbusError

_log = logging.getLogger(__name__)

_SHOWN = 10


class DataLoss(QbusError):  # noqa: N818 - what happened
    """Records that the query should have read no longer exist; ``losses`` describes them."""

    def __init__(self, losses: Sequence[str]) -> None:
        listed = "; ".join(losses[:_SHOWN])
        more = f"; and {len(losses) - _SHOWN} more" if len(losses) > _SHOWN else ""
        super().__init__(
            f"{listed}{more}. The query stops here and has skipped nothing. To continue without"
            " the lost records, start it again with the option failOnDataLoss=false"
        )
        self.losses = tuple(losses)


class CheckpointError(QbusError):
    """A query's checkpoint holds offsets that this source has not written."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the offsets in the query's checkpoint cannot be read: {reason}. If another"
            " source or a later version wrote it, use that one; or choose a new checkpointLocation"
            " and startingOffsets"
        )


class NotReached(QbusError):  # noqa: N818 - what happened
    """No broker answers."""


def warn(losses: Sequence[str]) -> None:
    """Log losses that are skipped because of ``failOnDataLoss=false``."""
    for loss in losses:
        _log.warning("data loss: %s", loss)
