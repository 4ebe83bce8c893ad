"""confluent-kafka (librdkafka) as the load; see :mod:`perf.sdk_client`."""

import threading
import time
from collections.abc import Callable

from confluent_kafka import (
    Consumer,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)

from perf import forms, quiet
from perf.forms import SHARING
from perf.sdk_client import BATCH_BYTES, BUFFER_BYTES, PATIENCE, Load


def send(load: Load) -> None:
    """``produce`` for each record, without a callback."""
    producer = _producer(load)
    produce, topic = producer.produce, load.topic
    with load.measured():
        for value in load.values():
            try:
                produce(topic, value)
            except BufferError:
                _wait_and_produce(producer, topic, value)
        _flush(producer)


def send_reported(load: Load) -> None:
    """``produce`` for each record, with a callback that is told of its delivery."""
    producer = _producer(load)
    produce, poll, topic = producer.produce, producer.poll, load.topic
    delivered = 0

    def on_delivery(error: object, _message: Message) -> None:
        nonlocal delivered
        delivered += error is None

    with load.measured():
        for value in load.values():
            try:
                produce(topic, value, on_delivery=on_delivery)
            except BufferError:
                _wait_and_produce(producer, topic, value, on_delivery=on_delivery)
            poll(0)
        _flush(producer)
    load.check(delivered, delivered * load.size)


def send_form(load: Load) -> None:
    """``produce`` for each record, in the form of the load; ``poll`` after each with a callback."""
    producer = _producer(load)
    delivered = 0

    def on_delivery(error: object, _message: Message) -> None:
        nonlocal delivered
        delivered += error is None

    def make_room(topic: str, value: bytes, **options: object) -> None:
        _wait_and_produce(producer, topic, value, **options)

    is_told = "on_delivery" in load.form.arguments
    send_all = forms.loop(load.form, after="poll(0)" if is_told else "pass")
    send_all.__globals__["poll"] = producer.poll
    with load.measured():
        if load.form.per_transaction:
            for rows in forms.transactions(load.form, load.rows()):
                producer.begin_transaction()
                send_all(producer.produce, make_room, rows, on_delivery)
                producer.commit_transaction(PATIENCE)
        else:
            send_all(producer.produce, make_room, load.rows(), on_delivery)
        _flush(producer)
    if is_told:
        load.check(delivered, delivered * load.size)


def send_many(load: Load) -> None:
    """``produce_batch`` for a list of records."""
    producer = _producer(load)
    with load.measured():
        for chunk in load.chunks():
            messages = [{"value": value} for value in chunk]
            while messages:
                producer.produce_batch(load.topic, messages)
                messages = [{"value": m["value"]} for m in messages if "_error" in m]
                producer.poll(0.01 if messages else 0)
        _flush(producer)


def poll(load: Load) -> None:
    """``consume(500)``, and the value of each record."""
    consumer = _consumer(load)
    seen = volume = 0
    deadline = time.monotonic() + PATIENCE
    with load.measured():
        while seen < load.count and time.monotonic() < deadline:
            for message in consumer.consume(500, 1.0):
                if message.error():
                    raise KafkaException(message.error())
                seen += 1
                volume += len(message.value())
    load.check(seen, volume)
    consumer.close()


def poll_form(load: Load) -> None:
    """``consume(500)``, and the parts of each record that the form has."""
    volume_of = forms.volume_of(load.form, call="()", check="record.error() and stop(record)")
    volume_of.__globals__["stop"] = _stop
    if load.reading.protocol in SHARING:
        _poll_shared(load, volume_of)
        return
    consumer = _consumer(load)
    seen = volume = 0
    deadline = time.monotonic() + PATIENCE
    with load.measured():
        while seen < load.count and time.monotonic() < deadline:
            messages = consumer.consume(500, 1.0)
            volume += volume_of(messages)
            seen += len(messages)
    load.check_volume(volume)
    consumer.close()


def _poll_shared(load: Load, volume_of: Callable[..., int]) -> None:
    """``poll`` as a member of a share group, which accepts what the poll before returned."""
    consumer = ShareConsumer({**quiet.at(load.bootstrap), "group.id": load.group})
    consumer.subscribe([load.topic])
    deadline = time.monotonic() + PATIENCE
    while not (first := consumer.poll(1.0)) and time.monotonic() < deadline:
        pass
    load.skip(len(first))
    seen = volume = 0
    with load.measured():
        while seen < load.count and time.monotonic() < deadline:
            messages = consumer.poll(1.0)
            volume += volume_of(messages)
            seen += len(messages)
    load.check_volume(volume)
    consumer.close()


def _stop(message: Message) -> None:
    raise KafkaException(message.error())


def send_paced(load: Load) -> None:
    """``produce`` at a fixed rate."""
    producer = _producer(load)
    load.send_paced(producer.produce, lambda: _flush(producer))


def send_and_wait(load: Load) -> None:
    """``produce`` and ``flush`` for each record."""
    producer = _producer(load)

    def send_one(topic: str, value: bytes) -> None:
        producer.produce(topic, value)
        _flush(producer)

    load.wait_for_each(send_one)


def send_and_wait_by_many(load: Load) -> None:
    """``produce`` of many threads that wait for its callback; one more polls for all of them."""
    producer = _producer(load)
    is_over = threading.Event()

    def poll_on() -> None:
        while not is_over.is_set():
            producer.poll(0.1)

    def send_one(topic: str, value: bytes) -> None:
        under_way = threading.Lock()
        under_way.acquire()
        producer.produce(topic, value, on_delivery=lambda *_: under_way.release())
        under_way.acquire()

    poller = threading.Thread(target=poll_on)
    poller.start()
    load.wait_by_many(send_one)
    is_over.set()
    poller.join()


def read_paced(load: Load) -> None:
    """``poll``, and when each record came."""
    consumer = _consumer(load)
    consumer.poll(0.5)
    load.ready()
    while (message := consumer.poll(PATIENCE)) is not None:
        if not load.arrived(message.value() or b""):
            break
    consumer.close()


def _producer(load: Load) -> Producer:
    form = load.form
    transactional = {"transactional.id": load.topic} if form.per_transaction else {}
    producer = Producer(
        {
            **quiet.at(load.bootstrap),
            "acks": form.acks,
            "enable.idempotence": form.acks == "all",
            "linger.ms": load.linger_ms,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 10_000_000,
            "queue.buffering.max.kbytes": BUFFER_BYTES // 1024,
            "compression.type": form.compression,
            **transactional,
            **load.security,
        }
    )
    if transactional:
        producer.init_transactions(PATIENCE)
    for topic in load.topics():
        producer.list_topics(topic, timeout=30)
    return producer


def _consumer(load: Load) -> Consumer:
    consumer = Consumer(
        {
            **quiet.at(load.bootstrap),
            "group.id": load.group or "perf",
            "enable.auto.commit": bool(load.group),
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": BUFFER_BYTES // 1024,
            "queued.min.messages": 1_000_000,
            "isolation.level": (
                "read_committed" if load.reading.is_committed else "read_uncommitted"
            ),
            "group.protocol": "consumer" if load.reading.protocol == "consumer" else "classic",
            **load.security,
        }
    )
    consumer.list_topics(load.topic, timeout=30)
    if load.group:
        consumer.subscribe([load.topic])
        load.skip(len(consumer.consume(1, PATIENCE)))
    else:
        partitions = range(load.form.partitions)
        consumer.assign([TopicPartition(load.topic, index, 0) for index in partitions])
    return consumer


def _wait_and_produce(producer: Producer, topic: str, value: bytes, **options: object) -> None:
    while True:
        producer.poll(0.01)
        try:
            producer.produce(topic, value, **options)
        except BufferError:
            continue
        return


def _flush(producer: Producer) -> None:
    if left := producer.flush(PATIENCE):
        raise KafkaException(f"{left} records were not delivered")
