"""The clients of a link that reproduces records."""

from ...consumer import Consumer
from ...group.options import Callback
from ...producer import Producer
from ..config import LinkConfig

_CLIENT_ID = "qbus-mirror"
_HEARTBEATS = 3
"""Heartbeats per session timeout."""


class Clients:
    """``consumer`` reads at the source, ``producer`` writes to the target.

    Only committed transactions are read: transaction markers cannot be reproduced.
    """

    def __init__(self, config: LinkConfig, on_assigned: Callback, on_revoked: Callback) -> None:
        transfer = config.transfer
        self.consumer = Consumer(
            config.source_bootstrap,
            group=config.group,
            offset_reset="none",
            isolation_level="read_committed",
            auto_commit=False,
            assignors=("cooperative-sticky",),
            session_timeout_ms=transfer.session_timeout_ms,
            heartbeat_interval_ms=transfer.session_timeout_ms // _HEARTBEATS,
            rebalance_timeout_ms=transfer.drain_timeout_ms + transfer.request_timeout_ms,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            fetch_max_bytes=transfer.fetch_bytes,
            fetch_max_wait_ms=transfer.fetch_wait_ms,
            partition_max_bytes=transfer.partition_fetch_bytes,
            prefetch_bytes=transfer.memory_bytes // 2,
            metadata_max_age_ms=config.topics_at_target.discovery_interval_ms,
            request_timeout_ms=transfer.request_timeout_ms,
            client_id=_CLIENT_ID,
            security=config.source_security.security(),
        )
        self.producer = Producer(
            config.target_bootstrap,
            compression=config.fallback.compression,
            buffer_bytes=transfer.memory_bytes // 2,
            request_timeout_ms=transfer.request_timeout_ms,
            client_id=_CLIENT_ID,
            security=config.target_security.security(),
        )

    async def close(self) -> None:
        """Leave the group and close the connections."""
        try:
            await self.consumer.close(commit=False)
        finally:
            await self.producer.close(0)
