"""What fetching works by, out of the broker's configuration."""

from typing import NamedTuple, Self

from qbus.config import BrokerConfig


class FetchSettings(NamedTuple):
    """Times are in seconds, sizes in bytes. ``max_frame``: the largest answer that is taken.

    ``receive_buffer`` of -1: the system decides.
    """

    node_id: int
    broker_epoch: int
    wait_s: float
    min_bytes: int
    partition_max_bytes: int
    response_max_bytes: int
    backoff_s: float
    timeout_s: float
    max_frame: int
    receive_buffer: int

    @classmethod
    def of(cls, config: BrokerConfig, node_id: int, broker_epoch: int) -> Self:
        """Those of a broker; ``broker_epoch`` is that of its registration."""
        return cls(
            node_id=node_id,
            broker_epoch=broker_epoch,
            wait_s=config.replica_fetch_wait_max_ms / 1000,
            min_bytes=config.replica_fetch_min_bytes,
            partition_max_bytes=config.replica_fetch_max_bytes,
            response_max_bytes=config.replica_fetch_response_max_bytes,
            backoff_s=config.replica_fetch_backoff_ms / 1000,
            timeout_s=config.replica_socket_timeout_ms / 1000,
            # The first batch of an answer may be as large as any that can be produced.
            max_frame=config.replica_fetch_response_max_bytes + config.socket_request_max_bytes,
            receive_buffer=config.replica_socket_receive_buffer_bytes,
        )
