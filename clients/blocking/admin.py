"""The admin client for programs without asyncio."""

from collections.abc import Sequence
from typing import Any, Self

from .. import admin as asyncio_admin
from .client import blocking, same_parameters
from .loop import LoopThread

_Admin = asyncio_admin.Admin


class Admin:
    """Inspects and changes a cluster: Qbus, or Apache Kafka from 3.0 on.

    A context manager; any number of threads may use it. Every method raises
    :class:`~qbus.errors.ApiError` with the broker's code and message; it retries retriable errors
    until ``request_timeout_ms`` is over. A method for several items does what it can, and then
    raises :class:`~qbus.PartialFailure` with the outcome of each.
    """

    @same_parameters(_Admin.__init__)
    def __init__(self, bootstrap: str | Sequence[str], **options: Any) -> None:
        self._client = _Admin(bootstrap, **options)
        self._thread = LoopThread("qbus-admin")

    def __repr__(self) -> str:
        return repr(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; does nothing the second time."""
        if not self._thread.is_closed:
            self._thread.run(self._client.close())
            self._thread.close()

    create_topic = blocking(_Admin.create_topic)
    create_topics = blocking(_Admin.create_topics)
    delete_topic = blocking(_Admin.delete_topic)
    delete_topics = blocking(_Admin.delete_topics)
    list_topics = blocking(_Admin.list_topics)
    describe_topic = blocking(_Admin.describe_topic)
    describe_topics = blocking(_Admin.describe_topics)
    create_partitions = blocking(_Admin.create_partitions)

    alter_reassignments = blocking(_Admin.alter_reassignments)
    cancel_reassignments = blocking(_Admin.cancel_reassignments)
    list_reassignments = blocking(_Admin.list_reassignments)
    elect_leaders = blocking(_Admin.elect_leaders)
    eligible_leaders = blocking(_Admin.eligible_leaders)

    list_offsets = blocking(_Admin.list_offsets)
    delete_records = blocking(_Admin.delete_records)
    describe_producers = blocking(_Admin.describe_producers)
    describe_delayed = blocking(_Admin.describe_delayed)
    describe_queues = blocking(_Admin.describe_queues)
    read_delayed = blocking(_Admin.read_delayed)

    describe_config = blocking(_Admin.describe_config)
    describe_configs = blocking(_Admin.describe_configs)
    alter_config = blocking(_Admin.alter_config)

    describe_cluster = blocking(_Admin.describe_cluster)
    describe_log_dirs = blocking(_Admin.describe_log_dirs)
    alter_replica_log_dirs = blocking(_Admin.alter_replica_log_dirs)

    list_groups = blocking(_Admin.list_groups)
    describe_group = blocking(_Admin.describe_group)
    describe_groups = blocking(_Admin.describe_groups)
    delete_group = blocking(_Admin.delete_group)
    delete_groups = blocking(_Admin.delete_groups)
    remove_members = blocking(_Admin.remove_members)

    list_transactions = blocking(_Admin.list_transactions)
    describe_transaction = blocking(_Admin.describe_transaction)
    describe_transactions = blocking(_Admin.describe_transactions)
    fence_producers = blocking(_Admin.fence_producers)
    find_hanging_transactions = blocking(_Admin.find_hanging_transactions)
    abort_transaction = blocking(_Admin.abort_transaction)

    committed_offsets = blocking(_Admin.committed_offsets)
    group_offsets = blocking(_Admin.group_offsets)
    share_group_offsets = blocking(_Admin.share_group_offsets)
    alter_group_offsets = blocking(_Admin.alter_group_offsets)
    reset_group_offsets = blocking(_Admin.reset_group_offsets)
    delete_group_offsets = blocking(_Admin.delete_group_offsets)

    create_acls = blocking(_Admin.create_acls)
    describe_acls = blocking(_Admin.describe_acls)
    delete_acls = blocking(_Admin.delete_acls)
    describe_user_scram_credentials = blocking(_Admin.describe_user_scram_credentials)
    alter_user_scram_credentials = blocking(_Admin.alter_user_scram_credentials)
    describe_client_quotas = blocking(_Admin.describe_client_quotas)
    alter_client_quotas = blocking(_Admin.alter_client_quotas)
