"""Records find their partitions and fill their batches."""

import random
from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.clients.producer import Producer
from qbus.clients.producer.accumulator import Accumulator
from qbus.clients.producer.batch import Batch, Stored
from qbus.clients.producer.bulk import add_lists
from qbus.clients.producer.delivery import Delivery
from qbus.clients.producer.lists import RECORD_OVERHEAD, ListBatch
from qbus.clients.producer.options import Partitioner, ProducerOptions
from qbus.clients.producer.partitioner import partition_for_key
from qbus.clients.types import PartitionDescription, TopicDescription
from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode
from qbus.records import Compression, Record, iter_records


def topic(*leaders: int) -> TopicDescription:
    described = (
        PartitionDescription(index, leader, 0, (1,), (1,), ())
        for index, leader in enumerate(leaders or (1, 1, 1, 1))
    )
    return TopicDescription("t", UUID(int=0), False, tuple(described))


def accumulator(batch_bytes: int = 1000, partitioner: Partitioner | None = None) -> Accumulator:
    options = ProducerOptions(
        batch_bytes=batch_bytes, buffer_bytes=1 << 20, partitioner=partitioner
    )
    return Accumulator(options, ManualClock())


def records(batch: Batch) -> Sequence[Record]:
    return list(iter_records(batch.encode(Compression.NONE, None)))


def waiting(made: Accumulator) -> list[Batch]:
    """All batches, those of a partition in their order."""
    made.seal()
    return [batch for queue in made.queues.values() for batch in queue.expired(float("inf"))]


def test_a_key_goes_to_its_partition() -> None:
    made = accumulator()
    for number in range(50):
        made.add(topic(), b"v", b"key-%d" % number)
    assert {
        record.key: batch.partition.partition
        for batch in waiting(made)
        for record in records(batch)
    } == {b"key-%d" % n: partition_for_key(b"key-%d" % n, 4) for n in range(50)}


def test_an_explicit_partition_wins() -> None:
    made = accumulator(partitioner=lambda _topic, _key, _value: 3)
    made.add(topic(), b"v", b"key", partition=2)
    made.add(topic(), b"v", partition=2)
    (batch,) = waiting(made)
    assert (batch.partition.partition, batch.count) == (2, 2)


def test_a_function_may_choose_the_partition_or_none() -> None:
    asked = []

    def choose(topic: TopicDescription, key: object, value: object) -> int | None:
        asked.append((topic.name, key, value))
        return None if value == b"any" else 3

    made = accumulator(partitioner=choose)
    made.add(topic(), b"v", b"k")
    made.add(topic(), b"any")
    assert asked == [("t", b"k", b"v"), ("t", None, b"any")]
    assert waiting(made)[0].partition.partition == 3


def test_a_broker_gets_what_is_for_it() -> None:
    made, described = accumulator(), topic(1, 2, 1, 2)
    for number in range(20):
        made.add(described, b"v", b"%d" % number, broker=2)
    made.add(described, b"v", broker=2)
    assert {batch.partition.partition for batch in waiting(made)} == {1, 3}
    made.add(described, b"v", broker=2, partition=3)
    for partition, code in ((0, ErrorCode.NOT_LEADER_OR_FOLLOWER), (None, None)):
        with pytest.raises(ApiError) as caught:
            made.add(described, b"v", broker=2 if code else 9, partition=partition)
        assert caught.value.code is (code or ErrorCode.LEADER_NOT_AVAILABLE)


def test_a_broker_and_sizes_may_be_any_integers() -> None:
    class Number:
        """An integer that is none of Python's, such as NumPy's."""

        def __index__(self) -> int:
            return 100

    number: int = Number()  # type: ignore[assignment]
    producer = Producer(
        "h:1", batch_bytes=number, buffer_bytes=number, max_in_flight=number, acks=1
    )
    options = producer._options
    assert [options.batch_bytes, options.buffer_bytes, options.max_in_flight] == [100] * 3
    producer._accumulator.add(topic(1, 100), b"v", broker=number)
    (batch,) = waiting(producer._accumulator)
    assert batch.partition.partition == 1


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_partition_that_does_not_exist_is_refused(partition: int) -> None:
    with pytest.raises(ApiError) as caught:
        accumulator().add(topic(), b"v", partition=partition)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(ApiError):
        list(add_lists(accumulator(), topic(), ([b"v"], None, None, None), partition))


def test_keyless_records_fill_one_batch_then_move_on() -> None:
    made = accumulator(batch_bytes=10 * (8 + RECORD_OVERHEAD))
    for _ in range(20):
        made.add(topic(), bytes(8))
    first, second = waiting(made)
    assert (first.count, second.count) == (10, 10)
    assert first.partition != second.partition
    assert first.is_movable
    assert second.is_movable


def test_keyless_records_avoid_brokers_that_are_silent() -> None:
    made, described = accumulator(batch_bytes=10), topic(1, 2, -1, 2)
    made.router.silent = frozenset({2})
    for _ in range(20):
        made.add(described, b"v")
    assert {batch.partition.partition for batch in waiting(made)} == {0}


def test_a_record_for_one_partition_keeps_its_batch_there() -> None:
    made, described = accumulator(), topic(1)
    made.add(described, b"any")
    made.add(described, b"bound", b"key")
    made.add(described, b"any")
    (batch,) = waiting(made)
    assert not batch.is_movable
    assert [record.value for record in records(batch)] == [b"any", b"bound", b"any"]


def test_records_take_the_quick_way_while_a_batch_is_open() -> None:
    made, described = accumulator(batch_bytes=5 * (1 + RECORD_OVERHEAD)), topic(1)
    assert made.add_quickly("t", b"0") is None, "there is no batch yet"
    made.add(described, b"0")
    assert made.add_quickly("t", b"1") is not None
    assert made.add_quickly("t", b"2", b"") is None, "the batch has no keys yet"
    made.add(described, b"2", b"")
    assert made.add_quickly("t", b"3", b"") is not None
    made.seal()
    assert made.add_quickly("t", b"4") is None, "the batch is closed"
    for value in (b"4", b"5", b"6", b"7", b"8"):
        made.add(described, value)
    assert made.add_quickly("t", b"9") is None, "the batch is full"
    first, second = waiting(made)
    values = [record.value for batch in (first, second) for record in records(batch)]
    assert values == [b"%d" % number for number in range(9)]


def test_the_quick_way_waits_for_room_in_the_buffer() -> None:
    made = Accumulator(ProducerOptions(buffer_bytes=2 * (1 + RECORD_OVERHEAD)), ManualClock())
    made.add(topic(1), b"1")
    assert made.add_quickly("t", b"2") is not None
    assert made.is_full
    assert made.add_quickly("t", b"3") is None
    (batch,) = made.seal()
    batch.complete(Stored(0, -1))
    made.release(batch)
    assert not made.is_full


def test_new_partitions_of_a_topic_get_their_keys() -> None:
    made, key = accumulator(), b"key-2"
    before, after = (partition_for_key(key, count) for count in (1, 4))
    assert before != after
    for described in (topic(1), topic()):
        made.add(described, b"v", key)
        assert made.add_quickly("t", b"w", key) is not None
        assert made.add_quickly("t", b"w", partition=len(described.partitions)) is None
    found = {
        batch.partition.partition: [r.value for r in records(batch)] for batch in waiting(made)
    }
    assert found == {before: [b"v", b"w"], after: [b"v", b"w"]}


_any_bytes = st.none() | st.binary(max_size=40) | st.binary(max_size=40).map(bytearray)
_headers = st.none() | st.lists(
    st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=9)), max_size=2
)


@given(
    st.lists(
        st.tuples(
            _any_bytes,
            _any_bytes,
            _headers,
            st.none() | st.integers(0, 3),
            st.none() | st.integers(-1, 2**63 - 1),
            st.booleans(),
        ),
        max_size=40,
    )
)
def test_both_ways_make_the_same_batches(rows: list[tuple[Any, ...]]) -> None:
    """Each record goes the quick way if it can; or, in another accumulator, none does."""
    quick, slow = (accumulator(batch_bytes=150) for _ in range(2))
    told: dict[Accumulator, list[int]] = {quick: [], slow: []}
    for made in (quick, slow):
        random.seed(5)
        for number, (value, key, headers, partition, timestamp, is_told) in enumerate(rows):
            parts = {"partition": partition, "timestamp": timestamp}
            tell = partial(_note, told[made], number) if is_told else None
            if made is slow or not made.add_quickly(
                "t", value, key, headers, callback=tell, **parts
            ):
                made.add(topic(), value, key, headers, on_delivery=tell, **parts)
    first, second = waiting(quick), waiting(slow)
    assert [(b.partition, b.size, b.is_movable) for b in first] == [
        (b.partition, b.size, b.is_movable) for b in second
    ]
    assert [records(batch) for batch in first] == [records(batch) for batch in second]
    assert quick.buffered_bytes == slow.buffered_bytes == sum(batch.size for batch in first)
    for batch in (*first, *second):
        batch.complete(Stored(0, -1))
    assert told[quick] == told[slow]


def _note(told: list[int], number: int, _: Delivery) -> None:
    told.append(number)


def test_bytes_are_counted_until_released() -> None:
    made = accumulator()
    made.add(topic(), b"value", b"key", (("h", b"x"),))
    (batch,) = made.seal()
    assert made.buffered_bytes == batch.size == 3 + 5 + 1 + 1 + 2 * RECORD_OVERHEAD
    for _ in range(2):
        batch.complete(Stored(0, -1))
        made.release(batch)
    assert made.buffered_bytes == 0
    assert made.seal() == []


def test_a_failure_is_told_to_whoever_adds() -> None:
    made = accumulator()
    made.add(topic(), b"v")
    assert len(made.fail(ZeroDivisionError("once"))) == 1
    made.fail(ZeroDivisionError("twice"))
    assert made.add_quickly("t", b"v") is None
    with pytest.raises(ZeroDivisionError, match="once"):
        made.add(topic(), b"v")
    with pytest.raises(ZeroDivisionError):
        list(add_lists(made, topic(), ([b"v"], None, None, None), None))


def announcing(made: Accumulator) -> list[int]:
    announced: list[int] = []
    made.on_work = lambda: announced.append(made.announced)
    return announced


def test_work_is_announced_once_for_a_batch() -> None:
    made = accumulator(batch_bytes=100)
    announced = announcing(made)
    for _ in range(4):
        made.add(topic(1), bytes(13))
    assert announced == [1]
    made.add(topic(1), bytes(13))
    assert announced == [1, 2]


def test_a_batch_that_is_sent_in_the_next_turn_anyway_is_not_announced() -> None:
    options = ProducerOptions(batch_bytes=100, linger=0.005)
    clock = ManualClock()
    made = Accumulator(options, clock)
    announced = announcing(made)
    made.turn_at = clock.monotonic() + options.linger
    made.add(topic(), bytes(60), partition=0)
    assert announced == []
    made.add(topic(), bytes(60), partition=0)
    assert announced == [1], "a full batch does not wait"
    made.turn_at = clock.monotonic() + options.linger + 0.001
    made.add(topic(), bytes(60), partition=1)
    assert announced == [1, 2], "the next turn is too late"


def test_a_full_batch_is_announced_when_its_records_move_on() -> None:
    made = Accumulator(ProducerOptions(batch_bytes=100), ManualClock())
    made.turn_at = 0.0
    announced = announcing(made)
    made.add(topic(), bytes(50))
    made.add(topic(), bytes(20))
    assert announced == []
    made.add(topic(), bytes(60))
    assert announced == [1]


def test_on_delivery_hears_of_every_record() -> None:
    told: list[int] = []
    options = ProducerOptions(on_delivery=lambda delivery: told.append(delivery.offset))
    made = Accumulator(options, ManualClock())
    for _ in range(3):
        made.add(topic(1), b"v", on_delivery=lambda delivery: told.append(-delivery.offset))
    (batch,) = made.seal()
    batch.complete(Stored(10, -1))
    assert told == [-10, -11, -12, 10, 11, 12]


@given(
    st.lists(st.integers(0, 700), max_size=40),
    st.sampled_from([None, 1]),
    st.booleans(),
    st.booleans(),
)
def test_many_come_out_whole_and_in_batches_that_fit(
    sizes: list[int], partition: int | None, with_keys: bool, with_more: bool
) -> None:
    made = accumulator(batch_bytes=1000)
    values = [b"%d:" % number + bytes(size) for number, size in enumerate(sizes)]
    keys = [b"k%d" % (number % 3) if number % 4 else None for number in range(len(values))]
    headers = [[("n", b"%d" % number)] if number % 2 else None for number in range(len(values))]
    times = [number if number % 3 else None for number in range(len(values))]
    columns = (
        values,
        keys if with_keys else None,
        headers if with_more else None,
        times if with_more else None,
    )
    parts = list(add_lists(made, topic(), columns, partition))
    batches = waiting(made)
    assert sum(stop - start for _, start, stop in parts) == len(values)
    assert all(batch.size <= 1000 or batch.count == 1 for batch in batches)
    assert made.buffered_bytes == sum(batch.size for batch in batches)
    found = {record.value: (batch, record) for batch in batches for record in records(batch)}
    assert sorted(found, key=str) == sorted(values, key=str)
    for number, value in enumerate(values):
        batch, record = found[value]
        assert isinstance(batch, ListBatch)
        assert record.key == (keys[number] if with_keys else None)
        assert record.headers == tuple((headers[number] if with_more else None) or ())
        time = times[number] if with_more else None
        assert record.timestamp == (batch.timestamp if time is None else time)
        if partition is not None:
            assert batch.partition.partition == partition
        elif record.key is not None:
            assert batch.partition.partition == partition_for_key(record.key, 4)
    if partition is not None:
        assert list(found) == values


def test_many_pause_after_each_batch() -> None:
    made = accumulator(batch_bytes=100)
    steps = add_lists(made, topic(), ([bytes(88)] * 5, None, None, None), 0)
    next(steps)
    assert made.buffered_bytes == 100


def test_callbacks_get_their_own_records_on_both_ways() -> None:
    made = accumulator()
    told: list[tuple[Delivery, int]] = []

    def tell(delivery: Delivery) -> None:
        told.append((delivery, delivery.offset))

    plain = made.add(topic(1), b"0")
    sent = [
        made.add_quickly("t", b"1", callback=tell),
        made.add(topic(1), b"2", on_delivery=tell),
        made.add_quickly("t", b"3"),
        made.add_quickly("t", b"4", callback=tell),
        made.add(topic(1), b"5", b"key", on_delivery=tell),
    ]
    (batch,) = made.seal()
    batch.complete(Stored(10, -1))
    assert told == [(sent[index], 11 + index) for index in (0, 1, 3, 4)]
    assert plain not in {delivery for delivery, _ in told}
    batch.complete(Stored(20, -1))
    assert len(told) == 4


def test_callbacks_outlive_a_split() -> None:
    made = accumulator()
    told: list[Delivery] = []
    sent = [
        made.add(topic(1), b"%d" % n, on_delivery=None if n == 1 else told.append) for n in range(4)
    ]
    (batch,) = made.seal()
    halves = batch.split()
    made.replace(batch, halves)
    for half in reversed(halves):
        half.complete(Stored(half.sequence, -1))
    assert set(told) == {sent[0], sent[2], sent[3]}
    assert len(told) == 3


def test_a_failing_callback_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = accumulator()
    told: list[Delivery] = []
    made.add(topic(1), b"v", on_delivery=lambda _: 1 // 0)
    made.add(topic(1), b"v", on_delivery=told.append)
    (batch,) = made.seal()
    batch.complete(ZeroDivisionError())
    assert len(told) == 1
    assert "a delivery callback failed" in caplog.text


def test_deliveries_of_one_record_are_equal() -> None:
    made = accumulator()
    first, second = made.add(topic(1), b"1"), made.add(topic(1), b"2")
    (batch,) = made.seal()
    assert first == Delivery(batch, 0) != second
    assert first != "anything else"
    assert len({first, Delivery(batch, 0), second}) == 2


def test_a_partitioner_is_asked_for_every_record() -> None:
    made = accumulator(partitioner=lambda _topic, _key, value: 2 if value == b"two" else None)
    made.add(topic(), b"any")
    assert made.add_quickly("t", b"two") is None
    made.add(topic(), b"two")
    found = {
        record.value: batch.partition.partition
        for batch in waiting(made)
        for record in records(batch)
    }
    assert found[b"two"] == 2


def test_a_record_s_callback_comes_before_whoever_waits_for_it() -> None:
    made = accumulator()
    told: list[str] = []
    delivery = made.add(topic(1), b"v", on_delivery=lambda _: told.append("callback"))
    delivery.add_done_callback(lambda _: told.append("waiter"))
    (batch,) = made.seal()
    batch.complete(Stored(0, -1))
    assert told == ["callback", "waiter"]
