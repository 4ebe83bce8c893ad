"""The admin client: one method for each thing that can be asked."""

from .configs import Configs
from .group_offsets import GroupOffsets
from .groups import Groups
from .partitions import Partitions
from .records import Records
from .topics import Topics


class Admin(Topics, Partitions, Records, Configs, Groups, GroupOffsets):
    """Looks at a cluster and changes it: Qbus, or Apache Kafka from 3.0 on.

    An async context manager. Every method raises :class:`~qbus.errors.ApiError` with the broker's
    code and message; errors that may pass are retried until ``request_timeout_ms`` is over. A
    method that does several things at once does those that it can, and then raises
    :class:`~qbus.clients.PartialFailure`, which tells of each.
    """
