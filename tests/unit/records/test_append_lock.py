"""The lock of a producer, and its fast path for values."""

import threading
from types import ModuleType
from typing import Any

import pytest

LIMIT, OVERHEAD = 100, 10


class Batch:
    def __init__(self) -> None:
        self.is_quick = True
        self.size = 0
        self.values: list[bytes] = []
        self.callbacks: list[Any] = []


@pytest.fixture
def lock(twin: ModuleType) -> Any:
    return twin.AppendLock(threading.Lock(), LIMIT, OVERHEAD, lambda batch, index: (batch, index))


@pytest.fixture
def batch(lock: Any) -> Batch:
    batch = lock.batches["t"] = Batch()
    return batch


def test_a_value_is_appended_to_its_batch(lock: Any, batch: Batch) -> None:
    assert lock.add("t", b"abc") == (batch, 0)
    assert lock.add("t", b"") == (batch, 1)
    assert (batch.values, batch.size) == ([b"abc", b""], 3 + 2 * OVERHEAD)


def test_a_batch_is_filled_to_the_last_byte_and_no_further(lock: Any, batch: Batch) -> None:
    assert lock.add("t", b"x" * (LIMIT - OVERHEAD + 1)) is None
    assert (batch.values, batch.size) == ([], 0)
    assert lock.add("t", b"x" * (LIMIT - OVERHEAD))
    assert lock.add("t", b"") is None


def test_a_callback_stands_at_the_index_of_its_value(lock: Any, batch: Batch) -> None:
    for callback in (None, "tell", None, None, "say"):
        lock.add("t", b"v", callback)
    assert batch.callbacks == [None, "tell", None, None, "say"]
    assert lock.add("t", bytes(LIMIT), "never") is None
    assert len(batch.callbacks) == 5


@pytest.mark.parametrize("value", [None, bytearray(b"a"), memoryview(b"a"), "a", 1])
def test_only_bytes_take_the_fast_path(lock: Any, batch: Batch, value: object) -> None:
    assert lock.add("t", value) is None
    assert batch.values == []


@pytest.mark.parametrize("topic", ["other", b"t", None])
def test_other_topics_have_no_batch(lock: Any, batch: Batch, topic: Any) -> None:
    assert lock.add(topic, b"a") is None
    assert batch.values == []


def test_a_batch_that_is_not_quick_has_no_fast_path(lock: Any, batch: Batch) -> None:
    batch.is_quick = False
    assert lock.add("t", b"a") is None


def test_nothing_is_added_while_another_thread_holds_the_lock(lock: Any, batch: Batch) -> None:
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


def test_a_renewed_lock_is_free_and_has_no_batches(lock: Any, batch: Batch) -> None:
    lock.acquire()
    lock.renew(threading.Lock())
    assert lock.batches == {}
    assert lock.acquire(blocking=False)


def test_many_threads_lose_nothing_and_share_no_slot(lock: Any, twin: ModuleType) -> None:
    lock = twin.AppendLock(threading.Lock(), 1 << 30, OVERHEAD, twin.BatchSlot)
    batch = lock.batches["t"] = Batch()
    slots: list[list[Any]] = [[] for _ in range(4)]

    def add(mine: list[Any]) -> None:
        while len(mine) < 2_000:
            slot = lock.add("t", b"x")
            if slot is not None:
                mine.append(slot)

    threads = [threading.Thread(target=add, args=(mine,)) for mine in slots]
    for thread in threads:
        thread.start()
    for _ in range(200):
        with lock:
            batch.size += 0
            batch.values.append(b"y")
    for thread in threads:
        thread.join()
    indexes = [slot._index for mine in slots for slot in mine]
    assert len(set(indexes)) == len(indexes) == 8_000
    assert all(batch.values[index] == b"x" for index in indexes)
    assert batch.size == 8_000 * (1 + OVERHEAD)


def test_subclasses_of_a_slot_have_its_batch_and_index(twin: ModuleType) -> None:
    class Named(twin.BatchSlot):  # type: ignore[misc, name-defined]
        __slots__ = ()

    slot = Named("batch", 3)
    assert (slot._batch, slot._index) == ("batch", 3)
