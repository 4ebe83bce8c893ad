"""Decompression bombs in every codec: a clear error, and no more memory than the bound allows.

Each is half a gigabyte in a batch of kilobytes or a few megabytes, on three partitions at once.
The memory is that of a process of its own.
"""

import asyncio
import json
import sys
from typing import Any

import pytest

from qbus.records import Compression
from qbus.records.bounds import MAX_RECORDS_SIZE
from qbus.wire.messages.fetch import FetchPartition, PartitionData
from tests.sdk.hostile.bombs import bomb, swarm
from tests.sdk.hostile.victims import good_batch, serve_fetches
from tests.support.fake_broker import FakeBroker

MIB = 1024 * 1024
CODECS = [codec for codec in Compression if codec is not Compression.NONE]


async def read_from(batch: bytes, method: str) -> Any:
    """Let a process read ``batch`` by ``method``; return its report."""

    def served(asked: FetchPartition) -> PartitionData | None:
        records = batch if asked.partition else good_batch()
        part = PartitionData(partition_index=asked.partition, high_watermark=1, records=records)
        return part if asked.fetch_offset == 0 else None

    async with FakeBroker({"t": 4}) as broker:
        serve_fetches(broker, served)
        command = [sys.executable, "-m", "tests.sdk.hostile.reader", broker.bootstrap, method]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(output)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())
async def test_a_bomb_costs_no_more_than_its_bound(codec: Compression) -> None:
    batch = bomb(codec, 512 * MIB)
    told = await read_from(batch, "poll")
    assert told["error"].startswith("CorruptBatch: t-")
    assert codec.name.lower() in told["error"]
    assert told["grown"] < 5 * MAX_RECORDS_SIZE // 2 + 4 * len(batch)


async def test_countless_records_are_decoded_as_they_are_taken() -> None:
    """A million of them in a few kilobytes: a poll that returns some does not hold them all."""
    told = await read_from(await asyncio.to_thread(swarm, Compression.ZSTD, 1_000_000), "poll")
    assert told["found"] > 0
    assert told["grown"] < 64 * MIB
