"""kafka-python as the load; see :mod:`perf.sdk_client`."""

import time

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from perf.sdk_client import BATCH_BYTES, PATIENCE, Load


def send(load: Load) -> None:
    """``send`` for each record; its future is not looked at."""
    producer = _producer(load)
    send_one, topic = producer.send, load.topic
    with load.measured():
        for value in load.values():
            send_one(topic, value)
        producer.flush(PATIENCE)
    producer.close()


def iterate(load: Load) -> None:
    """``for record in consumer``."""
    consumer = _consumer(load)
    seen = volume = 0
    with load.measured():
        for record in consumer:
            seen += 1
            volume += len(record.value)
            if seen == load.count:
                break
    load.check(seen, volume)
    consumer.close()


def poll(load: Load) -> None:
    """``poll``, and the value of each record."""
    consumer = _consumer(load)
    seen = volume = 0
    deadline = time.monotonic() + PATIENCE
    with load.measured():
        while seen < load.count and time.monotonic() < deadline:
            for records in consumer.poll(1000).values():
                for record in records:
                    volume += len(record.value)
                seen += len(records)
    load.check(seen, volume)
    consumer.close()


def send_paced(load: Load) -> None:
    """``send`` at a fixed rate."""
    producer = _producer(load)
    load.send_paced(producer.send, lambda: producer.flush(PATIENCE))
    producer.close()


def send_and_wait(load: Load) -> None:
    """``send``, and ``get`` of its future, for each record."""
    producer = _producer(load)
    load.wait_for_each(lambda topic, value: producer.send(topic, value).get(PATIENCE))
    producer.close()


def send_and_wait_by_many(load: Load) -> None:
    """The same of many threads."""
    producer = _producer(load)
    load.wait_by_many(lambda topic, value: producer.send(topic, value).get(PATIENCE))
    producer.close()


def read_paced(load: Load) -> None:
    """``for record in consumer``, and when each came."""
    consumer = _consumer(load)
    consumer.poll(500)
    load.ready()
    for record in consumer:
        if not load.arrived(record.value):
            break
    consumer.close()


def _producer(load: Load) -> KafkaProducer:
    producer = KafkaProducer(
        bootstrap_servers=load.bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=load.linger_ms,
        batch_size=BATCH_BYTES,
    )
    producer.partitions_for(load.topic)
    return producer


def _consumer(load: Load) -> KafkaConsumer:
    consumer = KafkaConsumer(
        bootstrap_servers=load.bootstrap,
        group_id=None,
        consumer_timeout_ms=PATIENCE * 1000,
        max_poll_records=load.count,
    )
    consumer.assign([TopicPartition(load.topic, 0)])
    consumer.seek(TopicPartition(load.topic, 0), 0)
    return consumer
