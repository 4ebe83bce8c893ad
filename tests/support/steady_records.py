"""Numbered records that keep coming while something else happens."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import confluent_kafka as ck

_PATIENCE_S = 120.0


@contextmanager
def steady_records(bootstrap: str, topic: str, partitions: int, every: float) -> Iterator[None]:
    """Send a record to each partition every so many seconds; fail unless all are stored in the end.

    The values are 0, 1, 2 and so on in each partition: the offsets, if nothing else is sent there.
    """
    ended = threading.Event()
    failed: list[object] = []

    def send() -> None:
        producer = ck.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 2}
        )

        def told(error: object, _message: object) -> None:
            if error is not None:
                failed.append(error)

        for number in count():
            if ended.wait(every):
                break
            for partition in range(partitions):
                producer.produce(topic, b"%d" % number, partition=partition, on_delivery=told)
            producer.poll(0)
        if left := producer.flush(_PATIENCE_S):
            failed.append(f"{left} records were not delivered within {_PATIENCE_S} s")

    def work() -> None:
        try:
            send()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert not failed, failed
