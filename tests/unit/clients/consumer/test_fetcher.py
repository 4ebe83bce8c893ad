"""Fetching from several brokers at once, within one bound of memory."""

import pytest

from qbus.clients import Consumer
from qbus.records import build_batch
from tests.support.fake_cluster import FakeCluster


def batch(value: bytes) -> bytes:
    return bytes(build_batch([(None, value, (), 5)]))


@pytest.mark.parametrize("prefetch", [3000, 60_000_000])
async def test_a_broker_with_records_does_not_wait_for_those_without(prefetch: int) -> None:
    """What was reserved for the answers of two brokers left nothing for the third, again and again.

    Whichever has the records, they come: each broker has a share of its own.
    """
    for leader in (1, 2, 3):
        async with (
            FakeCluster(3, {"t": 3}) as cluster,
            Consumer(
                cluster.bootstrap,
                prefetch_bytes=prefetch,
                fetch_max_bytes=prefetch,
                fetch_max_wait_ms=5,
            ) as consumer,
        ):
            for partition in range(3):
                cluster.move("t", partition, partition + 1)
            cluster.publish()
            consumer.assign([("t", partition, 0) for partition in range(3)])
            for _ in range(20):  # the others are asked over and over
                assert await consumer.poll(0.01) == []
            cluster.logs["t", leader - 1].append(batch(b"here"))
            cluster.nodes[leader].wake()
            polled = await consumer.poll(10.0)
            assert [(one.partition, len(one)) for one in polled] == [(leader - 1, 1)]
