"""aiokafka: the protocol on asyncio."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from tests.compat.members import Member
from tests.compat.records import BINARY, NOTHING, NULL_HEADER, Record, Stored

from .base import ClientError, Driver, GroupDescription
from .names import upper_snake

P = ParamSpec("P")
T = TypeVar("T")

_TIMEOUT = 30.0
_ACKS: dict[str, int | str] = {"0": 0, "1": 1, "all": "all"}


def _run_to_its_end(
    operation: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, T]:
    """Run each call in a loop of its own, and translate errors."""

    @wraps(operation)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return asyncio.run(asyncio.wait_for(operation(*args, **kwargs), _TIMEOUT))
        except KafkaError as error:
            code = getattr(error, "errno", None)
            if code is None:
                raise
            raise ClientError(code, str(error)) from error

    return run


class Aiokafka(Driver):
    """The driver of aiokafka; each operation runs in a loop of its own."""

    name = "aiokafka"
    sendable = (*BINARY, NULL_HEADER)
    readable = (*sendable, NOTHING)

    @_run_to_its_end
    async def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int = 0,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int] | None:
        producer = AIOKafkaProducer(
            **self._settings(),
            compression_type=None if compression == "none" else compression,
            acks=_ACKS[acks],
            enable_idempotence=idempotent,
            linger_ms=5,
            max_request_size=10_000_000,
        )
        async with _running(producer):
            futures = [
                await producer.send(
                    topic,
                    record.value,
                    record.key,
                    partition,
                    record.timestamp,
                    list(record.headers),
                )
                for record in records
            ]
            results = await asyncio.gather(*futures)
        return None if acks == "0" else [one.offset for one in results]

    @_run_to_its_end
    async def consume(self, topic: str, partition: int, offset: int, count: int) -> list[Stored]:
        async with self._consumer() as consumer:
            place = TopicPartition(topic, partition)
            consumer.assign([place])
            if offset < 0:
                await consumer.seek_to_beginning(place)
            else:
                consumer.seek(place, offset)
            return await _read(consumer, count)

    @_run_to_its_end
    async def consume_group(self, topic: str, group: str, count: int) -> list[Stored]:
        async with self._consumer(group) as consumer:
            consumer.subscribe([topic])
            stored = await _read(consumer, count)
            ends = {one.partition: one.offset + 1 for one in stored}
            await consumer.commit({TopicPartition(topic, p): o for p, o in ends.items()})
            return stored

    @_run_to_its_end
    async def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int:
        place = TopicPartition(topic, partition)
        async with self._consumer() as consumer:
            found = (await consumer.offsets_for_times({place: timestamp}))[place]
            return -1 if found is None else int(found.offset)

    @_run_to_its_end
    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        async with self._consumer() as consumer:
            low = (await consumer.beginning_offsets([place]))[place]
            return low, (await consumer.end_offsets([place]))[place]

    def member(self, topic: str, group: str) -> Member:
        module = "tests.compat.members.aiokafka"
        return Member([sys.executable, "-m", module, self._bootstrap, topic, group])

    def create_topic(
        self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(config or {}))
        response = self._with_admin(lambda admin: admin.create_topics([new]))
        _check(response.topic_errors[0][1])

    def topics(self) -> set[str]:
        return set(self._with_admin(lambda admin: admin.list_topics()))

    def partitions(self, topic: str) -> list[int]:
        (described,) = self._with_admin(lambda admin: admin.describe_topics([topic]))
        _check(described["error_code"])
        return sorted(one["partition"] for one in described["partitions"])

    def delete_topic(self, topic: str) -> None:
        response = self._with_admin(lambda admin: admin.delete_topics([topic]))
        _check(response.topic_error_codes[0][1])

    def grow(self, topic: str, partitions: int) -> None:
        wanted = {topic: NewPartitions(partitions)}
        self._with_admin(lambda admin: admin.create_partitions(wanted))

    def config(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (response,) = self._with_admin(lambda admin: admin.describe_configs([resource]))
        code, _, _, _, entries = response.resources[0]
        _check(code)
        return {entry[0]: entry[1] for entry in entries}

    def replace_config(self, topic: str, config: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(config))
        (response,) = self._with_admin(lambda admin: admin.alter_configs([resource]))
        _check(response.resources[0][0])

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)
        wanted = {place: RecordsToDelete(before)}
        return int(self._with_admin(lambda admin: admin.delete_records(wanted))[place])

    def groups(self) -> set[str]:
        listed = self._with_admin(lambda admin: admin.list_consumer_groups())
        return {group[0] for group in listed}

    def describe_group(self, group: str) -> GroupDescription:
        (response,) = self._with_admin(lambda admin: admin.describe_consumer_groups([group]))
        described = response.groups[0]
        _check(described[0])
        return GroupDescription(upper_snake(described[2]))

    def committed(self, topic: str, partition: int, group: str) -> int:
        place = TopicPartition(topic, partition)
        found = self._with_admin(
            lambda admin: admin.list_consumer_group_offsets(group, partitions=[place])
        )
        return int(found[place].offset)

    def brokers(self) -> list[str]:
        cluster = self._with_admin(lambda admin: admin.describe_cluster())
        return [f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]]

    def _settings(self) -> dict[str, Any]:
        security = self._security.aiokafka() if self._security else {}
        return {"bootstrap_servers": self._bootstrap, **security}

    @asynccontextmanager
    async def _consumer(self, group: str | None = None) -> AsyncIterator[Any]:
        consumer = AIOKafkaConsumer(
            **self._settings(),
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
        )
        async with _running(consumer):
            yield consumer

    @_run_to_its_end
    async def _with_admin(self, ask: Callable[[Any], Awaitable[T]]) -> T:
        admin = AIOKafkaAdminClient(**self._settings())
        await admin.start()
        try:
            return await ask(admin)
        finally:
            await admin.close()


@asynccontextmanager
async def _running(client: Any) -> AsyncIterator[None]:
    """Start a producer or consumer, and stop it, also if it could not start."""
    try:
        await client.start()
        yield
    finally:
        await client.stop()


def _check(code: int) -> None:
    if code:
        raise ClientError(code)


async def _read(consumer: Any, count: int) -> list[Stored]:
    stored = []
    for _ in range(count):
        message = await consumer.getone()
        record = Record(message.key, message.value, tuple(message.headers), message.timestamp)
        stored.append(Stored(message.partition, message.offset, record))
    return stored
