"""The lock of a producer, and its fast path for records."""

import threading
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

LIMIT, BUFFER, OVERHEAD = 100, 250, 10
PARTITIONS = 3


def made(twin: ModuleType, *, batch: int = LIMIT, buffer: int = BUFFER) -> Any:
    return twin.AppendLock(threading.Lock(), batch, buffer, OVERHEAD, twin.BatchSlot)


def opened(twin: ModuleType, *columns: str) -> Any:
    """A batch that takes records, with lists for these parts."""
    batch = twin.BatchLists()
    batch.is_quick = True
    for column in columns:
        setattr(batch, column, [])
    return batch


@pytest.fixture
def lock(twin: ModuleType) -> Any:
    lock = made(twin)
    lock.topics["t"] = twin.OpenBatches(PARTITIONS, True)
    return lock


@pytest.fixture
def batch(twin: ModuleType, lock: Any) -> Any:
    """The batch for records without a key."""
    batch = lock.topics["t"].sticky = opened(twin)
    return batch


@pytest.fixture
def batches(twin: ModuleType, lock: Any) -> list[Any]:
    """The batches of the partitions, with lists for all parts."""
    every = lock.topics["t"].by_partition
    every[:] = [opened(twin, "keys", "headers", "timestamps") for _ in range(PARTITIONS)]
    return list(every)


def test_a_value_is_appended_to_its_batch(lock: Any, batch: Any) -> None:
    slots = [lock.add("t", b"abc"), lock.add("t", b""), lock.add("t", None)]
    assert [(slot._batch, slot._index) for slot in slots] == [(batch, 0), (batch, 1), (batch, 2)]
    assert (batch.values, batch.size) == ([b"abc", b"", None], 3 + 3 * OVERHEAD)
    assert (batch.keys, batch.headers, batch.timestamps) == (None, None, None)
    assert lock.buffered == batch.size


def test_a_batch_is_filled_to_the_last_byte_and_no_further(lock: Any, batch: Any) -> None:
    assert lock.add("t", b"x" * (LIMIT - OVERHEAD + 1)) is None
    assert (batch.values, batch.size, lock.buffered) == ([], 0, 0)
    assert lock.add("t", b"x" * (LIMIT - OVERHEAD))
    assert lock.add("t", b"") is None


def test_keys_and_headers_count(lock: Any, batches: list[Any]) -> None:
    headers = [("name", b"v"), ("n", None)]
    assert lock.add("t", b"value", b"key", headers, 1)
    assert batches[1].size == lock.buffered == 5 + 3 + 5 + 1 + 3 * OVERHEAD
    assert lock.add("t", bytes(LIMIT - batches[1].size - OVERHEAD - 2), b"key", None, 1) is None
    assert lock.add("t", bytes(LIMIT - batches[1].size - OVERHEAD - 3), b"key", None, 1)
    assert lock.add("t", b"", None, [], 1) is None


def test_nothing_is_added_while_the_buffer_is_full(lock: Any, batch: Any) -> None:
    lock.buffered = BUFFER
    assert lock.add("t", b"v") is None
    lock.buffered = BUFFER - 1
    assert lock.add("t", b"v")
    assert lock.buffered == BUFFER + OVERHEAD


def test_a_callback_stands_at_the_index_of_its_value(lock: Any, batch: Any) -> None:
    for callback in (None, "tell", None, None, "say"):
        lock.add("t", b"v", callback=callback)
    assert batch.callbacks == [None, "tell", None, None, "say"]
    assert lock.add("t", bytes(LIMIT), callback="never") is None
    assert len(batch.callbacks) == 5


def test_every_part_stands_at_the_index_of_its_value(
    twin: ModuleType, lock: Any, batches: list[Any]
) -> None:
    headers = [("h", b"x")]
    lock.add("t", b"a", None, None, 2)
    lock.add("t", b"b", b"k", headers, 2, 7)
    lock.add("t", None, b"", (), 2, -1)
    found = batches[2]
    assert found.values == [b"a", b"b", None]
    assert found.keys == [None, b"k", b""]
    assert found.headers[::2] == [None, None]
    assert found.timestamps == [None, 7, -1]
    assert written(twin, found.headers) == written(twin, [None, headers, None])


def written(twin: ModuleType, headers: list[Any]) -> bytes:
    """Records with these headers and nothing else."""
    batch, _ = twin.encode_lists([b""] * len(headers), None, headers, None, 0)
    return bytes(batch)


@given(st.lists(st.tuples(st.text(st.characters(max_codepoint=127)), st.none() | st.binary())))
def test_headers_are_written_as_they_were_appended(
    twin: ModuleType, headers: list[tuple[str, bytes | None]]
) -> None:
    lock = made(twin, batch=1 << 20, buffer=1 << 20)
    lock.topics["t"] = twin.OpenBatches(1, True)
    batch = lock.topics["t"].sticky = opened(twin, "headers")
    assert lock.add("t", b"", None, headers)
    assert written(twin, batch.headers) == written(twin, [headers])


@pytest.mark.parametrize(
    ("column", "part"),
    [
        ("keys", {"key": b"k"}),
        ("headers", {"headers": [("h", None)]}),
        ("timestamps", {"timestamp": 5}),
    ],
)
def test_a_batch_without_a_list_for_a_part_does_not_get_it(
    twin: ModuleType, lock: Any, column: str, part: dict[str, Any]
) -> None:
    batch = lock.topics["t"].by_partition[0] = opened(twin)
    assert lock.add("t", b"v", partition=0, **part) is None
    assert (batch.values, batch.size, lock.buffered) == ([], 0, 0)
    setattr(batch, column, [])
    assert lock.add("t", b"v", partition=0, **part)


@given(st.binary(max_size=12))
def test_a_key_chooses_its_partition(twin: ModuleType, key: bytes) -> None:
    lock = made(twin)
    batches = lock.topics["t"] = twin.OpenBatches(PARTITIONS, True)
    batches.by_partition[:] = [opened(twin, "keys") for _ in range(PARTITIONS)]
    batches.sticky = opened(twin, "keys")
    slot = lock.add("t", b"v", key)
    assert slot._batch is batches.by_partition[twin.partition_for_keys([key], PARTITIONS)[0]]


def test_a_partition_wins_over_a_key(lock: Any, batches: list[Any]) -> None:
    slots = [lock.add("t", b"v", b"key", None, partition) for partition in range(PARTITIONS)]
    assert [slot._batch for slot in slots] == batches


def test_keys_do_not_decide_where_something_else_does(twin: ModuleType, lock: Any) -> None:
    every = lock.topics["t"] = twin.OpenBatches(1, False)
    every.sticky = every.by_partition[0] = opened(twin, "keys")
    assert lock.add("t", b"v") is None
    assert lock.add("t", b"v", b"k") is None
    assert lock.add("t", b"v", b"k", partition=0)


def test_a_record_for_one_partition_keeps_its_batch_there(
    twin: ModuleType, lock: Any, batches: list[Any]
) -> None:
    lock.topics["t"].sticky = batches[0]
    for batch in batches:
        batch.is_movable = True
    lock.add("t", b"v")
    assert batches[0].is_movable
    lock.add("t", b"v", partition=0)
    lock.add("t", b"v", b"key")
    chosen = twin.partition_for_keys([b"key"], PARTITIONS)[0]
    assert [n for n, batch in enumerate(batches) if not batch.is_movable] == sorted({0, chosen})


@pytest.mark.parametrize(
    "partition", [-1, PARTITIONS, 2**31, -(2**63), 2**63, 2**70, True, 1.0, "1"]
)
def test_other_partitions_have_no_batch(lock: Any, batches: list[Any], partition: Any) -> None:
    assert lock.add("t", b"v", partition=partition) is None
    assert [batch.values for batch in batches] == [[]] * PARTITIONS


def test_a_topic_without_partitions_has_no_batch_for_a_key(twin: ModuleType, lock: Any) -> None:
    lock.topics["t"] = twin.OpenBatches(0, True)
    assert lock.add("t", b"v", b"k") is None
    assert lock.add("t", b"v", partition=0) is None


class Text(str):
    __slots__ = ()


class Bytes(bytes):
    __slots__ = ()


class Pairs(list[Any]):
    pass


@pytest.mark.parametrize(
    "part",
    [
        {"value": bytearray(b"a")},
        {"value": memoryview(b"a")},
        {"value": Bytes(b"a")},
        {"value": "a"},
        {"value": 1},
        {"key": bytearray(b"a")},
        {"key": "a"},
        {"headers": {"h": b"v"}},
        {"headers": iter([("h", b"v")])},
        {"headers": Pairs([("h", b"v")])},
        {"headers": [["h", b"v"]]},
        {"headers": [("h",)]},
        {"headers": [("h", b"v", b"w")]},
        {"headers": [None]},
        {"headers": [(b"h", b"v")]},
        {"headers": [(Text("h"), b"v")]},
        {"headers": [("h", "v")]},
        {"headers": [("h", b"v"), ("h", bytearray(b"v"))]},
        {"headers": [("\u00e9", b"v")]},
        {"headers": [("\ud800", b"v")]},
        {"headers": "hv"},
        {"timestamp": -2},
        {"timestamp": 2**63},
        {"timestamp": -(2**70)},
        {"timestamp": 1.0},
        {"timestamp": True},
    ],
    ids=lambda part: " ".join(f"{name} {type(value).__name__}" for name, value in part.items()),
)
def test_only_the_plainest_parts_take_the_fast_path(
    lock: Any, batches: list[Any], part: dict[str, Any]
) -> None:
    assert lock.add(**{"topic": "t", "value": b"v", "partition": 0} | part) is None
    assert (batches[0].values, batches[0].size, lock.buffered) == ([], 0, 0)


@pytest.mark.parametrize("timestamp", [-1, 0, 2**63 - 1])
def test_the_first_and_last_timestamps(lock: Any, batches: list[Any], timestamp: int) -> None:
    assert lock.add("t", b"v", partition=0, timestamp=timestamp)
    assert batches[0].timestamps == [timestamp]


@pytest.mark.parametrize("topic", ["other", b"t", Text("t"), None, []])
def test_other_topics_have_no_batch(lock: Any, batch: Any, topic: Any) -> None:
    assert lock.add(topic, b"a") is None
    assert batch.values == []


def test_a_batch_that_is_not_quick_has_no_fast_path(lock: Any, batch: Any) -> None:
    batch.is_quick = False
    assert lock.add("t", b"a") is None


def test_nothing_is_added_while_another_thread_holds_the_lock(lock: Any, batch: Any) -> None:
    added = []
    adding = threading.Thread(target=lambda: added.append(lock.add("t", b"a") is not None))
    with lock:
        adding.start()
        adding.join(0.05)  # it waits, or add has returned None
        assert batch.values == []
    adding.join()
    assert len(batch.values) == sum(added)
    assert lock.add("t", b"b"), "and then again"


def test_it_is_a_lock(lock: Any) -> None:
    assert lock.acquire()
    assert not lock.acquire(False)
    assert not lock.acquire(timeout=0.001)
    lock.release()
    with lock:
        assert not lock.acquire(blocking=False)
    assert lock.acquire()


def test_a_condition_can_be_made_of_it(lock: Any) -> None:
    room = threading.Condition(lock)
    with room:
        assert not room.wait(0.001)
    with lock:
        room.notify_all()


def test_a_renewed_lock_is_free_and_has_no_batches(lock: Any) -> None:
    lock.acquire()
    lock.renew(threading.Lock())
    assert lock.topics == {}
    assert lock.acquire(blocking=False)


def test_many_threads_lose_nothing_and_share_no_slot(twin: ModuleType) -> None:
    lock = made(twin, batch=1 << 30, buffer=1 << 30)
    lock.topics["t"] = twin.OpenBatches(1, True)
    batch = lock.topics["t"].by_partition[0] = opened(twin, "keys")
    slots: list[list[Any]] = [[] for _ in range(4)]

    def add(mine: list[Any], key: bytes) -> None:
        while len(mine) < 2_000:
            slot = lock.add("t", b"%d" % len(mine), key)
            if slot is not None:
                mine.append(slot)

    threads = [threading.Thread(target=add, args=(mine, b"%d" % n)) for n, mine in enumerate(slots)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        with lock:
            batch.keys.append(b"none")
            batch.values.append(b"y")
    for thread in threads:
        thread.join()
    indexes = [slot._index for mine in slots for slot in mine]
    assert len(set(indexes)) == len(indexes) == 8_000
    for n, mine in enumerate(slots):
        found = [(batch.keys[slot._index], batch.values[slot._index]) for slot in mine]
        assert found == [(b"%d" % n, b"%d" % number) for number in range(2_000)]
    sizes = sum(len(b"%d" % number) for number in range(2_000)) + 2_000 * (1 + OVERHEAD)
    assert batch.size == lock.buffered == 4 * sizes


def test_subclasses_of_a_slot_have_its_batch_and_index(twin: ModuleType) -> None:
    class Named(twin.BatchSlot):  # type: ignore[misc, name-defined]
        __slots__ = ()

    slot = Named("batch", 3)
    assert (slot._batch, slot._index) == ("batch", 3)
