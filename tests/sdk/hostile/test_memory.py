"""A consumer that is not polled holds no more than its prefetch bound, whatever brokers send."""

import asyncio
import json
import sys

from qbus.wire.messages.fetch import FetchPartition, PartitionData
from tests.sdk.hostile.victims import good_batch, serve_fetches
from tests.support.fake_broker import FakeBroker

MIB = 1024 * 1024
PROGRAM = """
import asyncio, json, sys
from qbus.aio import Consumer
from tests.sdk.hostile.reader import forget_peak, memory

async def main(bootstrap):
    async with Consumer(
        bootstrap, offset_reset="earliest", prefetch_bytes=8 * 1024 * 1024, max_poll_records=1
    ) as consumer:
        consumer.assign([("t", partition, 0) for partition in range(8)])
        while not await consumer.poll(0.2):
            pass
        before = memory("VmRSS")
        forget_peak()
        await asyncio.sleep(3)
        print(json.dumps(memory("VmHWM") - before))

asyncio.run(main(sys.argv[1]))
"""


async def test_prefetched_memory_is_bounded() -> None:
    batch = good_batch([bytes(1000)] * 1000)

    def served(asked: FetchPartition) -> PartitionData:
        """A megabyte of the partition, as often as it is asked for."""
        data = asked.fetch_offset.to_bytes(8) + batch[8:]
        return PartitionData(partition_index=asked.partition, high_watermark=10**9, records=data)

    async with FakeBroker({"t": 8}) as broker:
        serve_fetches(broker, served)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM, broker.bootstrap), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
    assert process.returncode == 0
    assert json.loads(output) < 8 * MIB + 16 * MIB
