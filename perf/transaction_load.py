"""Transactions one after the other, in a process of its own: ``python -m perf.transaction_load``.

Each producer is one connection that runs transactions as clients of Kafka 4 do: a Produce request
of version 12, which adds the partition, and an EndTxn request of version 5, which raises the epoch.
All requests are made before the clock starts and are patched then: the client costs little, which
on two cores counts.
"""

import asyncio
import json
import struct
import subprocess
import sys
import time
from typing import Any, Final

from qbus.errors import ErrorCode
from qbus.records import build_values_batch
from qbus.records.header import crc32c
from qbus.wire import ApiKey, Struct, decode_response, encode_request
from qbus.wire.messages.end_txn import EndTxnRequest
from qbus.wire.messages.find_coordinator import FindCoordinatorRequest
from qbus.wire.messages.init_producer_id import InitProducerIdRequest
from qbus.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

_FIND, _INIT, _PRODUCE, _END = 1, 5, 12, 5
_TRANSACTIONS: Final = 1  # the type of a coordinator's key
_PATIENCE_S: Final = 30.0
_RETRY_S: Final = 0.005
_TIMEOUT_MS: Final = 60_000
# Where the fields lie in a batch (KIP-98).
_CRC, _ATTRIBUTES, _PRODUCER = 17, 21, 43
_TRANSACTIONAL: Final = 0x10
# A response's correlation id, tagged fields, time to wait, error, producer id and epoch.
_ENDED = struct.Struct(">iBihqh")
_OPEN: Final = struct.Struct(">qhi")
_AGAIN: Final = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def run(bootstrap: str, **options: Any) -> dict[str, float]:
    """What so many ``producers`` commit in so many ``seconds``, in a fresh process.

    Each transaction has ``records`` of ``size`` bytes to one of the ``partitions`` of ``topic``;
    ``transactions``: the number for all producers together, instead of a time.
    """
    command = [sys.executable, "-m", "perf.transaction_load", bootstrap, json.dumps(options)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=600)
    result: dict[str, float] = json.loads(done.stdout)
    return result


class _Producer:
    """One connection and one transactional id."""

    def __init__(self, name: str, topic: str, partition: int, records: int, size: int) -> None:
        self._name = name
        batch = build_values_batch([b"x" * size] * records, int(time.time() * 1000))
        struct.pack_into(">h", batch, _ATTRIBUTES, _TRANSACTIONAL)
        data = PartitionProduceData(index=partition, records=batch)
        self._produce = _framed(
            ApiKey.PRODUCE,
            _PRODUCE,
            ProduceRequest(
                transactional_id=name,
                acks=-1,
                timeout_ms=_TIMEOUT_MS,
                topic_data=[TopicProduceData(name=topic, partition_data=[data])],
            ),
        )
        self._batch = self._produce.index(batch)
        self._size = len(batch)
        # Correlation id, tags, one topic, its name, one partition, its index; then its error.
        self._error_at = 4 + 1 + 1 + 1 + len(topic) + 1 + 4
        self._id, self._epoch = -1, -1
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self.done = 0
        self.retries = 0

    async def begin(self, host: str, port: int) -> None:
        """Connect, take the transactional id, and commit once."""
        self._reader, self._writer = await asyncio.open_connection(host, port)
        find = _framed(
            ApiKey.FIND_COORDINATOR,
            _FIND,
            FindCoordinatorRequest(key=self._name, key_type=_TRANSACTIONS),
        )
        init = _framed(
            ApiKey.INIT_PRODUCER_ID,
            _INIT,
            InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=_TIMEOUT_MS),
        )
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            _, found = decode_response(ApiKey.FIND_COORDINATOR, _FIND, await self._ask(find))
            if not found.error_code:
                answer = await self._ask(init)
                _, given = decode_response(ApiKey.INIT_PRODUCER_ID, _INIT, answer)
                if not given.error_code:
                    self._id, self._epoch = given.producer_id, given.producer_epoch
                    await self.commit()
                    return
            await asyncio.sleep(0.2)
        raise TimeoutError(f"{self._name} is not coordinated: {found}")

    async def commit(self) -> None:
        """Run one transaction."""
        at = self._batch
        _OPEN.pack_into(self._produce, at + _PRODUCER, self._id, self._epoch, 0)
        checked = memoryview(self._produce)[at + _ATTRIBUTES : at + self._size]
        struct.pack_into(">I", self._produce, at + _CRC, crc32c(checked))
        while code := self._code(await self._ask(self._produce)):
            await self._wait("a batch", code)
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=self._id,
            producer_epoch=self._epoch,
            committed=True,
        )
        end = _framed(ApiKey.END_TXN, _END, request)
        while True:
            answer = await self._ask(end)
            _, _, _, code, self._id, self._epoch = _ENDED.unpack_from(answer)
            if not code:
                return
            await self._wait("a commit", code)

    async def commit_until(self, end: float, most: int) -> None:
        """One transaction after the other."""
        while time.monotonic() < end and self.done < most:
            await self.commit()
            self.done += 1

    def _code(self, answer: bytes) -> int:
        (code,) = struct.unpack_from(">h", answer, self._error_at)
        return int(code)

    async def _wait(self, what: str, code: int) -> None:
        if code not in _AGAIN:
            raise AssertionError(f"{what} was refused: {ErrorCode(code).name}")
        self.retries += 1
        await asyncio.sleep(_RETRY_S)

    async def _ask(self, frame: bytes | bytearray) -> bytes:
        self._writer.write(frame)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)


def _framed(key: ApiKey, version: int, request: Struct) -> bytearray:
    parts = encode_request(key, version, 0, "perf", request)
    return bytearray(b"".join(bytes(part) for part in parts))


async def _run(
    bootstrap: str,
    topic: str,
    producers: int,
    records: int,
    partitions: int,
    size: int = 100,
    seconds: float = _PATIENCE_S * 10,
    transactions: int = sys.maxsize,
) -> dict[str, float]:
    host, _, port = bootstrap.rpartition(":")
    load = [
        _Producer(f"{topic}-{records}-{number}", topic, number % partitions, records, size)
        for number in range(producers)
    ]
    await asyncio.gather(*(one.begin(host, int(port)) for one in load))
    started = time.monotonic()
    most = transactions // producers
    await asyncio.gather(*(one.commit_until(started + seconds, most) for one in load))
    elapsed = time.monotonic() - started
    done = sum(one.done for one in load)
    return {
        "transactions_s": done / elapsed,
        "records": (done + producers) * records,
        "retries": sum(one.retries for one in load),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_run(sys.argv[1], **json.loads(sys.argv[2])))))
