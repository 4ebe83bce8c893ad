"""The SDK's blocking face as the load; see :mod:`perf.sdk_client`."""

import time

from perf import forms
from perf.forms import SHARING
from perf.sdk_client import BUFFER_BYTES, PATIENCE, Load, arrow_batches, arrow_volume
from qbus import Consumer, Delivery, PartitionRecords, Producer, ShareConsumer, ShareRecord


def send(load: Load) -> None:
    """``send`` for each record; what it returns is not looked at."""
    with _producer(load) as producer:
        send_one, topic = producer.send, load.topic
        with load.measured():
            for value in load.values():
                send_one(topic, value)
            producer.flush(PATIENCE)


def send_reported(load: Load) -> None:
    """``send`` for each record, with a callback that is told of its delivery."""
    delivered = 0

    def on_delivery(delivery: Delivery) -> None:
        nonlocal delivered
        delivered += delivery.exception() is None

    with _producer(load) as producer:
        send_one, topic = producer.send, load.topic
        with load.measured():
            for value in load.values():
                send_one(topic, value, on_delivery=on_delivery)
            producer.flush(PATIENCE)
    load.check(delivered, delivered * load.size)


def send_form(load: Load) -> None:
    """``send`` for each record, in the form of the load."""
    told = Told()
    send_all = forms.loop(load.form)
    with _producer(load) as producer, load.measured():
        if load.form.per_transaction:
            for rows in forms.transactions(load.form, load.rows()):
                with producer.transaction():
                    send_all(producer.send, None, rows, told.delivery)
        else:
            send_all(producer.send, None, load.rows(), told.delivery)
        producer.flush(PATIENCE)
    told.check(load)


class Told:
    """Counts what callbacks are told."""

    def __init__(self) -> None:
        self.count = 0

    def delivery(self, delivery: Delivery) -> None:
        """One record was delivered."""
        self.count += delivery.exception() is None

    def check(self, load: Load) -> None:
        """Raise unless every record was told of, where the form asks for that."""
        if "on_delivery" in load.form.arguments:
            load.check(self.count, self.count * load.size)


def send_many(load: Load) -> None:
    """``send_many`` for a list of values."""
    with _producer(load) as producer, load.measured():
        for chunk in load.chunks():
            producer.send_many(load.topic, chunk)
        producer.flush(PATIENCE)


def send_arrow(load: Load) -> None:
    """``send_arrow`` for a column."""
    with _producer(load) as producer:
        batches = arrow_batches(load)
        with load.measured():
            for batch in batches:
                producer.send_arrow(load.topic, batch)
            producer.flush(PATIENCE)


def iterate(load: Load) -> None:
    """``for record in consumer``."""
    seen = volume = 0
    with _consumer(load) as consumer, load.measured():
        for record in consumer:
            seen += 1
            volume += len(record.value or b"")
            if seen == load.count:
                break
    load.check(seen, volume)


def poll(load: Load) -> None:
    """``poll``, and the value of each record."""
    seen = volume = 0
    deadline = time.monotonic() + PATIENCE
    with _consumer(load) as consumer, load.measured():
        while seen < load.count and time.monotonic() < deadline:
            for records in consumer.poll(1.0):
                for record in records:
                    volume += len(record.value or b"")
                seen += len(records)
    load.check(seen, volume)


def iterate_form(load: Load) -> None:
    """``for record in consumer``, and the parts that the form has."""
    iterate = forms.iterate(load.form)
    if load.reading.protocol in SHARING:
        with _share_consumer(load) as sharing:
            load.skip(len(_first_shared(sharing)))
            with load.measured():
                volume = iterate(sharing, load.count)
        load.check_volume(volume)
        return
    with _consumer(load) as consumer, load.measured():
        volume = iterate(consumer, load.count)
    load.check_volume(volume)


def poll_form(load: Load) -> None:
    """``poll``, and the parts of each record that the form has."""
    volume_of = forms.volume_of(load.form)
    seen = volume = 0
    deadline = time.monotonic() + PATIENCE
    if load.reading.protocol in SHARING:
        with _share_consumer(load) as sharing:
            load.skip(len(_first_shared(sharing)))
            with load.measured():
                while seen < load.count and time.monotonic() < deadline:
                    records_shared = sharing.poll(1.0)
                    volume += volume_of(records_shared)
                    seen += len(records_shared)
        load.check_volume(volume)
        return
    with _consumer(load) as consumer, load.measured():
        while seen < load.count and time.monotonic() < deadline:
            for records in consumer.poll(1.0):
                volume += volume_of(records)
                seen += len(records)
    load.check_volume(volume)


def poll_arrow(load: Load) -> None:
    """``poll_arrow``, and the length of each value."""
    seen = volume = 0
    deadline = time.monotonic() + PATIENCE
    with _consumer(load) as consumer, load.measured():
        while seen < load.count and time.monotonic() < deadline:
            for batch in consumer.poll_arrow(1.0):
                volume += arrow_volume(batch)
                seen += batch.num_rows
    load.check(seen, volume)


def send_paced(load: Load) -> None:
    """``send`` at a fixed rate."""
    with _producer(load) as producer:
        load.send_paced(producer.send, lambda: producer.flush(PATIENCE))


def send_and_wait(load: Load) -> None:
    """``send_and_wait`` for each record."""
    with _producer(load) as producer:
        load.wait_for_each(producer.send_and_wait)


def send_and_wait_by_many(load: Load) -> None:
    """The same of many threads."""
    with _producer(load) as producer:
        load.wait_by_many(producer.send_and_wait)


def read_paced(load: Load) -> None:
    """``for record in consumer``, and when each came."""
    with _consumer(load) as consumer:
        consumer.poll(0.5)
        load.ready()
        for record in consumer:
            if not load.arrived(record.value or b""):
                return


def _producer(load: Load) -> Producer:
    producer = Producer(
        load.bootstrap,
        linger_ms=load.linger_ms,
        buffer_bytes=BUFFER_BYTES,
        compression=load.form.compression,
        acks=1 if load.form.acks == "1" else "all",
        transactional_id=load.topic if load.form.per_transaction else None,
        security=load.security,
    )
    if load.form.per_transaction:
        producer.init_transactions()
    for topic in load.topics():
        producer.partitions(topic)
    return producer


def _consumer(load: Load) -> Consumer:
    if load.group:
        consumer = Consumer(
            load.bootstrap,
            group=load.group,
            group_protocol="consumer" if load.reading.protocol == "consumer" else "classic",
            offset_reset="earliest",
            prefetch_bytes=BUFFER_BYTES,
        )
        consumer.subscribe([load.topic])
        load.skip(sum(map(len, _first(consumer))))
        return consumer
    consumer = Consumer(
        load.bootstrap,
        prefetch_bytes=BUFFER_BYTES,
        isolation_level="read_committed" if load.reading.is_committed else "read_uncommitted",
        security=load.security,
    )
    consumer.partitions(load.topic)  # connects, as confluent-kafka's list_topics does
    consumer.assign([(load.topic, index, 0) for index in range(load.form.partitions)])
    return consumer


def _share_consumer(load: Load) -> ShareConsumer:
    is_alike = load.reading.protocol == "share by batches"  # to librdkafka
    return ShareConsumer(
        load.bootstrap, load.group, [load.topic], acquire="batches" if is_alike else "records"
    )


def _first_shared(consumer: ShareConsumer) -> list[ShareRecord]:
    """What the first poll of a new member of a share group brings."""
    deadline = time.monotonic() + PATIENCE
    while not (records := consumer.poll(1.0, 1)) and time.monotonic() < deadline:
        pass
    return records


def _first(consumer: Consumer) -> list[PartitionRecords]:
    """What the first poll of a new member of a group brings."""
    deadline = time.monotonic() + PATIENCE
    while not (records := consumer.poll(1.0, 1)) and time.monotonic() < deadline:
        pass
    return records
