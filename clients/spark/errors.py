"""What goes wrong in a query that no option can be blamed for."""

import logging
from collections.abc import Sequence

from qbus.errors import QbusError

_log = logging.getLogger(__name__)

_SHOWN = 10


class DataLoss(QbusError):  # noqa: N818 - what happened
    """Records that the query should have read are not there any more; ``losses`` says which."""

    def __init__(self, losses: Sequence[str]) -> None:
        listed = "; ".join(losses[:_SHOWN])
        more = f"; and {len(losses) - _SHOWN} more" if len(losses) > _SHOWN else ""
        super().__init__(
            f"{listed}{more}. Nothing was skipped: the query stops here. To go on without what is"
            " lost, start it again with the option failOnDataLoss=false"
        )
        self.losses = tuple(losses)


class CheckpointError(QbusError):
    """A query's checkpoint holds offsets that are none of this source's."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the offsets in the query's checkpoint cannot be read: {reason}. Was it written by"
            " another source, or by a later version? Use that one, or a new checkpointLocation"
            " with startingOffsets"
        )


class NotReached(QbusError):  # noqa: N818 - what happened
    """No broker answers, or none has what is asked for."""


def warn(losses: Sequence[str]) -> None:
    """Tell of what is passed over because the user said so: ``failOnDataLoss=false``."""
    for loss in losses:
        _log.warning("data loss: %s", loss)
