"""aiokafka: the protocol on asyncio, whose loop runs in a thread."""

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced

from .base import PATIENCE, Place, Read, Refused

T = TypeVar("T")


class _Loop:
    """An event loop in a thread, until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine does. Raises Refused for errors of the client."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)
        except KafkaError as error:
            raise Refused(repr(error), is_fenced=isinstance(error, ProducerFenced)) from error

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class AiokafkaProducer:
    """A transactional producer of aiokafka."""

    def __init__(self, loop: _Loop, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._loop = loop
        self._producer = loop.run(self._start(bootstrap, transactional_id, timeout_ms))

    @staticmethod
    async def _start(bootstrap: str, transactional_id: str, timeout_ms: int) -> Any:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        await producer.start()
        return producer

    def begin(self) -> None:
        self._loop.run(self._producer.begin_transaction())

    def send(self, topic: str, values: Sequence[str], partition: int = 0) -> None:
        async def send_all() -> None:
            sent = [
                await self._producer.send(topic, value.encode(), partition=partition)
                for value in values
            ]
            await asyncio.gather(*sent)

        self._loop.run(send_all())

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        places = {TopicPartition(*place): offset for place, offset in offsets.items()}
        self._loop.run(self._producer.send_offsets_to_transaction(places, group))

    def commit(self) -> None:
        self._loop.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._loop.run(self._producer.abort_transaction())

    def close(self) -> None:
        self._loop.run(self._producer.stop())


class AiokafkaTransactions:
    """Makes producers and consumers of aiokafka."""

    name = "aiokafka"
    has_offsets = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._loop = _Loop()

    @staticmethod
    def missing() -> str | None:
        """Return why it cannot run here."""
        return None

    def close(self) -> None:
        self._loop.close()

    def producer(self, transactional_id: str, timeout_ms: int = 60_000) -> AiokafkaProducer:
        return AiokafkaProducer(self._loop, self._bootstrap, transactional_id, timeout_ms)

    def read(
        self, topic: str, count: int, *, partition: int = 0, committed: bool = True
    ) -> list[Read]:
        async def read_all() -> list[Read]:
            place = TopicPartition(topic, partition)
            async with self._consumer(None, committed) as consumer:
                consumer.assign([place])
                await consumer.seek_to_beginning(place)
                found: list[Read] = []
                while len(found) < count:
                    record = await consumer.getone()
                    found.append(Read(record.offset, record.value.decode()))
                return found

        return self._loop.run(read_all())

    def copy(self, source: str, target: str, group: str, count: int) -> None:
        async def copy_all() -> None:
            consumer = self._consumer(group)
            consumer.subscribe([source])
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap, transactional_id=f"copy-{group}"
            )
            async with consumer, producer:
                done = 0
                while done < count:
                    polled = await consumer.getmany(timeout_ms=1_000)
                    if polled:
                        done += await _copy_polled(producer, target, group, polled)

        self._loop.run(copy_all())

    def _consumer(self, group: str | None, committed: bool = True) -> Any:
        return AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if committed else "read_uncommitted",
            fetch_max_wait_ms=100,
        )


async def _copy_polled(
    producer: Any, target: str, group: str, polled: Mapping[Any, Sequence[Any]]
) -> int:
    done = 0
    async with producer.transaction():
        for place, records in polled.items():
            for record in records:
                await producer.send(target, record.value, partition=place.partition)
                done += 1
        behind = {place: records[-1].offset + 1 for place, records in polled.items()}
        await producer.send_offsets_to_transaction(behind, group)
    return done
