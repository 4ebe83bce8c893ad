"""What librdkafka reads of partitions at an isolation level, up to the ends that it is told."""

import time

import confluent_kafka as ck


def read_to_end(
    bootstrap: str, topic: str, partitions: int, isolation: str, patience_s: float = 60.0
) -> list[list[str]]:
    """The values in each partition from 0 on."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([ck.TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[list[str]] = [[] for _ in range(partitions)]
    ended: set[int] = set()
    deadline = time.monotonic() + patience_s
    while len(ended) < partitions:
        assert time.monotonic() < deadline, "the ends are not reached"
        message = consumer.poll(0.5)
        if message is None:
            continue
        index, value, error = message.partition(), message.value(), message.error()
        assert index is not None
        if error is None and value is not None:
            found[index].append(value.decode())
        elif error is not None and error.code() == ck.KafkaError._PARTITION_EOF:
            ended.add(index)
    consumer.close()
    return found
