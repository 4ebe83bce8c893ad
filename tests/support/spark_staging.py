"""Staged rows and drivers that publish them, on a fake broker, without Spark."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from qbus.clients import TopicPartition
from qbus.clients.net.cluster import Cluster
from qbus.clients.spark.sink.commit import Committer
from qbus.clients.spark.sink.manifest import StagedBatch
from qbus.clients.spark.sink.task import staging_partition
from qbus.errors import ErrorCode
from qbus.records import encode_records
from tests.support.fake_broker import FakeBroker

STAGING = "staging"
ROW_PARTITIONS = 2
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def sink_broker() -> FakeBroker:
    """A broker with a target topic of two partitions and a staging topic."""
    return FakeBroker({"t": 2, STAGING: ROW_PARTITIONS + 1})


def stage(
    broker: FakeBroker,
    rows: Mapping[TopicPartition, Sequence[str]],
    *,
    in_batches_of: int = 1,
    shift: int = 0,
) -> list[StagedBatch]:
    """Store rows as a task does; what it tells the driver."""
    staged = []
    for target, values in rows.items():
        where = staging_partition(target, ROW_PARTITIONS)
        for at in range(0, len(values), in_batches_of):
            part = [value.encode() for value in values[at : at + in_batches_of]]
            batch = encode_records(part, base_timestamp=1000 + shift)
            code, _ = broker.logs[STAGING, where].append(bytes(batch))
            assert code is ErrorCode.NONE
            staged.append(
                StagedBatch(
                    target, where, broker.logs[STAGING, where].end - len(part), len(part), shift
                )
            )
    return staged


@asynccontextmanager
async def driver(broker: FakeBroker) -> AsyncIterator[Committer]:
    """A driver process: nothing that it knows outlives it."""
    cluster = Cluster(broker.bootstrap, "driver", 5.0)
    try:
        yield Committer(cluster, STAGING, 5.0)
    finally:
        await cluster.close()


def published(broker: FakeBroker) -> list[str]:
    """The values in the target topic, sorted."""
    found = [*broker.logs["t", 0].values(), *broker.logs["t", 1].values()]
    return sorted((value or b"").decode() for value in found)
