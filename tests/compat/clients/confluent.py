"""confluent-kafka: librdkafka from Python."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.compat.members import Member
from tests.compat.records import BINARY, NOTHING, NULL_HEADER, Record, Stored
from tests.support.waiting import wait_until

from .base import ClientError, Driver, GroupDescription
from .security import Security

_TIMEOUT = 30.0
_PERMANENT = -1


class Confluent(Driver):
    """The driver of confluent-kafka."""

    name = "confluent-kafka"
    sendable = (*BINARY, NULL_HEADER, NOTHING)
    readable = sendable

    def __init__(self, bootstrap: str, security: Security | None = None) -> None:
        super().__init__(bootstrap, security)
        self._admin = AdminClient(self._settings())

    def close(self) -> None:
        del self._admin

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int = 0,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        producer = ck.Producer(
            {
                **self._settings(),
                "compression.type": compression,
                "acks": acks,
                "enable.idempotence": idempotent,
                "linger.ms": 5,
                "message.max.bytes": 10_000_000,
                "message.timeout.ms": int(_TIMEOUT * 1000),
            }
        )
        results: list[tuple[Any, Any]] = []
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition,
                timestamp=record.timestamp or 0,
                headers=list(record.headers),
                on_delivery=lambda error, message: results.append((error, message)),
            )
        producer.flush(_TIMEOUT)
        for error, _ in results:
            _check(error)
        assert len(results) == len(records)
        return [message.offset() for _, message in results]

    def consume(self, topic: str, partition: int, offset: int, count: int) -> list[Stored]:
        with closing(self._consumer()) as consumer:
            consumer.assign([ck.TopicPartition(topic, partition, offset)])
            return _read(consumer, count)

    def consume_group(self, topic: str, group: str, count: int) -> list[Stored]:
        with closing(self._consumer(group)) as consumer:
            consumer.subscribe([topic])
            stored = _read(consumer, count)
            positions = {one.partition: one.offset + 1 for one in stored}
            offsets = [ck.TopicPartition(topic, p, o) for p, o in positions.items()]
            consumer.commit(offsets=offsets, asynchronous=False)
            return stored

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int:
        with closing(self._consumer()) as consumer:
            asked = [ck.TopicPartition(topic, partition, timestamp)]
            (found,) = consumer.offsets_for_times(asked, timeout=_TIMEOUT)
            _check(found.error)
            return int(found.offset)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        with closing(self._consumer()) as consumer:
            low, high = consumer.get_watermark_offsets(
                ck.TopicPartition(topic, partition), timeout=_TIMEOUT
            )
            return low, high

    def member(self, topic: str, group: str) -> Member:
        module = "tests.compat.members.confluent"
        return Member([sys.executable, "-m", module, self._bootstrap, topic, group])

    def create_topic(
        self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        new = NewTopic(topic, partitions, 1, config=dict(config or {}))
        _result(self._admin.create_topics([new]))
        # The answer may come before the partitions have leaders.
        wait_until(lambda: len(self._metadata(topic).partitions) == partitions, "the partitions")

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=_TIMEOUT).topics)

    def partitions(self, topic: str) -> list[int]:
        described = _result(
            self._admin.describe_topics(ck.TopicCollection([topic]), request_timeout=_TIMEOUT)
        )
        return [partition.id for partition in described.partitions]

    def delete_topic(self, topic: str) -> None:
        _result(self._admin.delete_topics([topic]))

    def grow(self, topic: str, partitions: int) -> None:
        _result(self._admin.create_partitions([NewPartitions(topic, partitions)]))

    def config(self, topic: str) -> dict[str, str | None]:
        entries = _result(self._admin.describe_configs([_topic_resource(topic)]))
        return {key: entry.value for key, entry in entries.items()}

    def broker_config(self, broker: str) -> dict[str, str | None]:
        """All of a broker's configuration."""
        entries = _result(self._admin.describe_configs([ConfigResource("BROKER", broker)]))
        return {key: entry.value for key, entry in entries.items()}

    def set_config(self, topic: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        _result(self._admin.incremental_alter_configs([resource]))

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        deleted = _result(self._admin.delete_records([ck.TopicPartition(topic, partition, before)]))
        return int(deleted.low_watermark)

    def groups(self) -> set[str]:
        listed = self._admin.list_consumer_groups(request_timeout=_TIMEOUT).result()
        assert not listed.errors
        return {group.group_id for group in listed.valid}

    def describe_group(self, group: str) -> GroupDescription:
        described = _result(self._admin.describe_consumer_groups([group]))
        members = tuple(
            (
                member.client_id,
                frozenset((p.topic, p.partition) for p in member.assignment.topic_partitions),
            )
            for member in described.members
        )
        return GroupDescription(described.state.name, members)

    def committed(self, topic: str, partition: int, group: str) -> int:
        asked = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(topic, partition)])
        listed = _result(self._admin.list_consumer_group_offsets([asked]))
        (found,) = listed.topic_partitions
        _check(found.error)
        return -1 if found.offset == ck.OFFSET_INVALID else int(found.offset)

    def commit(self, topic: str, partition: int, group: str, offset: int) -> None:
        wanted = [ck.TopicPartition(topic, partition, offset)]
        request = ck.ConsumerGroupTopicPartitions(group, wanted)
        altered = _result(self._admin.alter_consumer_group_offsets([request]))
        _check(altered.topic_partitions[0].error)

    def delete_group(self, group: str) -> None:
        _result(self._admin.delete_consumer_groups([group]))

    def brokers(self) -> list[str]:
        cluster = self._admin.describe_cluster(request_timeout=_TIMEOUT).result()
        return [f"{node.host}:{node.port}" for node in cluster.nodes]

    def _settings(self) -> dict[str, Any]:
        security = self._security.librdkafka() if self._security else {}
        return {"bootstrap.servers": self._bootstrap, **security}

    def _metadata(self, topic: str) -> Any:
        return self._admin.list_topics(topic, timeout=_TIMEOUT).topics[topic]

    def _consumer(self, group: str = "unused") -> Any:
        return ck.Consumer(
            {
                **self._settings(),
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
            }
        )


def _topic_resource(topic: str) -> ConfigResource:
    return ConfigResource(ConfigResource.Type.TOPIC, topic)


def _result(futures: Mapping[Any, Any]) -> Any:
    (future,) = futures.values()
    try:
        return future.result(_TIMEOUT)
    except ck.KafkaException as error:
        raise _translated(error.args[0]) from error


def _check(error: Any) -> None:
    if error is not None:
        raise _translated(error)


def _translated(error: Any) -> ClientError:
    code = error.code()
    return ClientError(code if code > 0 else _PERMANENT, str(error))


def _read(consumer: Any, count: int) -> list[Stored]:
    stored: list[Stored] = []
    for _ in range(count):
        message = consumer.poll(_TIMEOUT)
        assert message is not None, f"{len(stored)} of {count} records"
        _check(message.error())
        record = Record(
            message.key(), message.value(), tuple(message.headers() or ()), message.timestamp()[1]
        )
        stored.append(Stored(message.partition(), message.offset(), record))
    return stored
