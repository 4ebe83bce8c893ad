"""kafka-python: the protocol in pure Python, with threads."""

import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from tests.compat.members import Member
from tests.compat.records import BINARY, NOTHING, NULL_HEADER, Record, Stored

from .base import ClientError, Driver, GroupDescription
from .names import upper_snake
from .security import Security

with warnings.catch_warnings():
    # It loads its message schemas with functions that Python has deprecated.
    warnings.filterwarnings("ignore", r"(read|open)_text is deprecated", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka import errors as kafka_errors
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.structs import OffsetAndMetadata

_TIMEOUT = 30.0
_ACKS = {"0": 0, "1": 1, "all": "all"}


class KafkaPython(Driver):
    """The driver of kafka-python."""

    name = "kafka-python"
    sendable = BINARY
    readable = (*BINARY, NULL_HEADER, NOTHING)

    def __init__(self, bootstrap: str, security: Security | None = None) -> None:
        super().__init__(bootstrap, security)
        self._admin = KafkaAdminClient(**self._settings())

    def close(self) -> None:
        self._admin.close()

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
        producer = KafkaProducer(
            **self._settings(),
            compression_type=None if compression == "none" else compression,
            acks=_ACKS[acks],
            enable_idempotence=idempotent,
            linger_ms=5,
            max_request_size=10_000_000,
        )
        with closing(producer), _translated():
            futures = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    list(record.headers),
                    partition,
                    record.timestamp,
                )
                for record in records
            ]
            return [future.get(_TIMEOUT).offset for future in futures]

    def consume(self, topic: str, partition: int, offset: int, count: int) -> list[Stored]:
        with closing(self._consumer()) as consumer:
            place = TopicPartition(topic, partition)
            consumer.assign([place])
            if offset < 0:
                consumer.seek_to_beginning(place)
            else:
                consumer.seek(place, offset)
            return _read(consumer, count)

    def consume_group(self, topic: str, group: str, count: int) -> list[Stored]:
        with closing(self._consumer(group)) as consumer:
            consumer.subscribe([topic])
            stored = _read(consumer, count)
            ends = {one.partition: one.offset + 1 for one in stored}
            consumer.commit(
                {TopicPartition(topic, p): OffsetAndMetadata(o, "", -1) for p, o in ends.items()}
            )
            return stored

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int:
        place = TopicPartition(topic, partition)
        with closing(self._consumer()) as consumer:
            found = consumer.offsets_for_times({place: timestamp})[place]
            return -1 if found is None else int(found.offset)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        with closing(self._consumer()) as consumer:
            low = consumer.beginning_offsets([place])[place]
            return low, consumer.end_offsets([place])[place]

    def member(self, topic: str, group: str) -> Member:
        module = "tests.compat.members.kafka_python"
        return Member([sys.executable, "-m", module, self._bootstrap, topic, group])

    def create_topic(
        self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        options = {
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": dict(config or {}),
        }
        with _translated():
            self._admin.create_topics({topic: options})

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def partitions(self, topic: str) -> list[int]:
        (described,) = self._admin.describe_topics([topic])
        _check(described["error_code"])
        return sorted(one["partition_index"] for one in described["partitions"])

    def delete_topic(self, topic: str) -> None:
        with _translated():
            self._admin.delete_topics([topic])

    def grow(self, topic: str, partitions: int) -> None:
        with _translated():
            self._admin.create_partitions({topic: partitions})

    def config(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        described = self._admin.describe_configs([resource], config_filter="all")
        return {key: entry["value"] for key, entry in described["topic"][topic].items()}

    def set_config(self, topic: str, key: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})
        altered = self._admin.alter_configs([resource], raise_on_unknown=False)
        result = altered["topic"][topic]
        if result != "OK":
            _check_text(result)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)
        with _translated():
            return int(self._admin.delete_records({place: before})[place]["low_watermark"])

    def groups(self) -> set[str]:
        return {group["group_id"] for group in self._admin.list_groups()}

    def describe_group(self, group: str) -> GroupDescription:
        described = self._admin.describe_groups([group])[group]
        _check_text(described["error"])
        members = tuple((one["client_id"], _assignment(one)) for one in described["members"])
        return GroupDescription(upper_snake(described["group_state"]), members)

    def committed(self, topic: str, partition: int, group: str) -> int:
        place = TopicPartition(topic, partition)
        return int(self._admin.list_group_offsets({group: [place]})[group][place].offset)

    def commit(self, topic: str, partition: int, group: str, offset: int) -> None:
        place = TopicPartition(topic, partition)
        wanted = {place: OffsetAndMetadata(offset, "", -1)}
        _check(self._admin.alter_group_offsets(group, wanted)[place].errno)

    def delete_group(self, group: str) -> None:
        result = self._admin.delete_groups([group])[group]
        if result != "OK":
            raise ClientError(getattr(kafka_errors, result).errno)

    def brokers(self) -> list[str]:
        cluster = self._admin.describe_cluster()
        return [f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]]

    def _settings(self) -> dict[str, Any]:
        security = self._security.kafka_python() if self._security else {}
        return {"bootstrap_servers": self._bootstrap, **security}

    def _consumer(self, group: str | None = None) -> Any:
        return KafkaConsumer(
            **self._settings(),
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            consumer_timeout_ms=int(_TIMEOUT * 1000),
            fetch_max_wait_ms=100,
        )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except kafka_errors.BrokerResponseError as error:
        raise ClientError(error.errno, str(error)) from error


def _check(code: int) -> None:
    if code:
        raise ClientError(code)


def _check_text(error: str | None) -> None:
    """Raise for an error that kafka-python gives as text: ``[Error 40] InvalidConfig...``."""
    if error is not None:
        code = re.search(r"\d+", error)
        assert code, error
        raise ClientError(int(code[0]), error)


def _assignment(member: Mapping[str, Any]) -> frozenset[tuple[str, int]]:
    assigned = member["member_assignment"]["assigned_partitions"]
    return frozenset((one["topic"], index) for one in assigned for index in one["partitions"])


def _read(consumer: Any, count: int) -> list[Stored]:
    stored = []
    for message in consumer:
        record = Record(message.key, message.value, tuple(message.headers), message.timestamp)
        stored.append(Stored(message.partition, message.offset, record))
        if len(stored) == count:
            return stored
    raise AssertionError(f"{len(stored)} of {count} records")
