"""The short way of values into their batches, and the lock that it goes past."""

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
def lane(twin: ModuleType) -> Any:
    return twin.Lane(threading.Lock(), LIMIT, OVERHEAD, lambda batch, index: (batch, index))


@pytest.fixture
def batch(lane: Any) -> Batch:
    batch = lane.batches["t"] = Batch()
    return batch


def test_a_value_goes_behind_the_others(lane: Any, batch: Batch) -> None:
    assert lane.add("t", b"abc") == (batch, 0)
    assert lane.add("t", b"") == (batch, 1)
    assert (batch.values, batch.size) == ([b"abc", b""], 3 + 2 * OVERHEAD)


def test_a_batch_is_filled_to_the_last_byte_and_no_further(lane: Any, batch: Batch) -> None:
    assert lane.add("t", b"x" * (LIMIT - OVERHEAD + 1)) is None
    assert (batch.values, batch.size) == ([], 0)
    assert lane.add("t", b"x" * (LIMIT - OVERHEAD))
    assert lane.add("t", b"") is None


def test_a_callback_stands_at_the_index_of_its_value(lane: Any, batch: Batch) -> None:
    for callback in (None, "tell", None, None, "say"):
        lane.add("t", b"v", callback)
    assert batch.callbacks == [None, "tell", None, None, "say"]
    assert lane.add("t", bytes(LIMIT), "never") is None
    assert len(batch.callbacks) == 5


@pytest.mark.parametrize("value", [None, bytearray(b"a"), memoryview(b"a"), "a", 1])
def test_only_bytes_take_the_short_way(lane: Any, batch: Batch, value: object) -> None:
    assert lane.add("t", value) is None
    assert batch.values == []


@pytest.mark.parametrize("topic", ["other", b"t", None])
def test_other_topics_have_none(lane: Any, batch: Batch, topic: Any) -> None:
    assert lane.add(topic, b"a") is None
    assert batch.values == []


def test_a_batch_that_takes_more_than_values_takes_none_this_way(lane: Any, batch: Batch) -> None:
    batch.is_quick = False
    assert lane.add("t", b"a") is None


def test_nothing_is_added_while_another_thread_holds_the_lock(lane: Any, batch: Batch) -> None:
    added = []
    adding = threading.Thread(target=lambda: added.append(lane.add("t", b"a") is not None))
    with lane:
        adding.start()
        adding.join(0.05)  # it waits, or has gone the long way
        assert batch.values == []
    adding.join()
    assert len(batch.values) == sum(added)
    assert lane.add("t", b"b"), "and then again"


def test_the_lock_is_one(lane: Any) -> None:
    assert lane.acquire()
    assert not lane.acquire(False)
    assert not lane.acquire(timeout=0.001)
    lane.release()
    with lane:
        assert not lane.acquire(blocking=False)
    assert lane.acquire()


def test_a_condition_can_be_made_of_it(lane: Any) -> None:
    room = threading.Condition(lane)
    with room:
        assert not room.wait(0.001)
    with lane:
        room.notify_all()


def test_a_lane_made_anew_is_nobodys_and_knows_no_batch(lane: Any, batch: Batch) -> None:
    lane.acquire()
    lane.renew(threading.Lock())
    assert lane.batches == {}
    assert lane.acquire(blocking=False)


def test_many_threads_lose_nothing_and_share_no_place(lane: Any, twin: ModuleType) -> None:
    lane = twin.Lane(threading.Lock(), 1 << 30, OVERHEAD, twin.Place)
    batch = lane.batches["t"] = Batch()
    places: list[list[Any]] = [[] for _ in range(4)]

    def add(mine: list[Any]) -> None:
        while len(mine) < 2_000:
            place = lane.add("t", b"x")
            if place is not None:
                mine.append(place)

    threads = [threading.Thread(target=add, args=(mine,)) for mine in places]
    for thread in threads:
        thread.start()
    for _ in range(200):
        with lane:
            batch.size += 0
            batch.values.append(b"y")
    for thread in threads:
        thread.join()
    indexes = [place._index for mine in places for place in mine]
    assert len(set(indexes)) == len(indexes) == 8_000
    assert all(batch.values[index] == b"x" for index in indexes)
    assert batch.size == 8_000 * (1 + OVERHEAD)


def test_a_place_is_what_its_subclasses_are_made_of(twin: ModuleType) -> None:
    class Named(twin.Place):  # type: ignore[misc, name-defined]
        __slots__ = ()

    place = Named("batch", 3)
    assert (place._batch, place._index) == ("batch", 3)
