"""Reads everything that a topic holds at the end of a run."""

import time
from collections.abc import Iterable

import confluent_kafka as ck

from .clients import open_consumer
from .history import History, Poll


def read_out(
    bootstrap: str, topic: str, partitions: Iterable[int], within: float = 60.0
) -> History:
    """Read the ends of all partitions, and all records below them, with a further consumer.

    Every record acknowledged before is below these ends, or lost. Fails after ``within`` seconds,
    or on an error that a consumer cannot recover from.
    """
    deadline = time.monotonic() + within
    history = History(ends=_ends(bootstrap, topic, partitions, deadline))
    positions = dict.fromkeys(history.ends, 0)
    consumer = open_consumer("confluent", bootstrap, topic, history.ends)
    try:
        while behind := {p: at for p, at in positions.items() if at < history.ends[p]}:
            assert time.monotonic() < deadline, f"read up to {behind} of {history.ends}"
            for partition, records in consumer.poll().items():
                history.polls.append(Poll("last", partition, records, time.monotonic()))
                positions[partition] = records[-1][0] + 1
    finally:
        consumer.close()
    # A poll may return records beyond an end that has moved since.
    history.ends = {p: max(end, positions[p]) for p, end in history.ends.items()}
    return history


def _ends(bootstrap: str, topic: str, partitions: Iterable[int], deadline: float) -> dict[int, int]:
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": "history"})
    ends: dict[int, int] = {}
    try:
        for partition in partitions:
            place = ck.TopicPartition(topic, partition)
            while partition not in ends:
                try:
                    ends[partition] = consumer.get_watermark_offsets(place, timeout=5)[1]
                except ck.KafkaException:
                    assert time.monotonic() < deadline, f"partition {partition} has no end"
    finally:
        consumer.close()
    return ends
