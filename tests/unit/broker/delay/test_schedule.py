"""The timing wheel: nothing early, nothing lost, in order, and small."""

import random
import tracemalloc

import pytest

from qbus.broker.delay import DelayFold
from qbus.broker.delay.schedule import Held, Schedule
from qbus.records.control import Announcement, Entries

NOW = 1_700_000_000_000
HOUR = 3_600_000
YEAR = 365 * 24 * HOUR


def test_what_is_due_comes_in_order_and_stays_until_it_is_removed() -> None:
    schedule = Schedule()
    for due, offset in ((NOW + 5, 1), (NOW + 3, 2), (NOW + 5, 0), (NOW + 6, 3)):
        schedule.add(due, offset, 9)
    expected = [Held(NOW + 3, 2, 9), Held(NOW + 5, 0, 9), Held(NOW + 5, 1, 9)]
    assert schedule.due(NOW + 5, 10) == expected
    assert schedule.due(NOW + 5, 2) == expected[:2]
    assert schedule.due(NOW + 2, 10) == []
    assert schedule.remove(NOW + 3, 2) == 9
    assert schedule.remove(NOW + 3, 2) is None
    assert schedule.due(NOW + 5, 10) == expected[1:]
    assert schedule.next_due() == NOW + 5
    assert schedule.count == 3


def test_an_empty_one() -> None:
    schedule = Schedule()
    assert (schedule.count, schedule.next_due(), schedule.due(NOW, 5)) == (0, None, [])
    assert not schedule.contains(NOW, 0)


@pytest.mark.parametrize("year", [1970, 2038, 2100, 9999])
def test_any_year(year: int) -> None:
    due = (year - 1970) * YEAR
    schedule = Schedule()
    schedule.add(due, 5, 0)
    assert schedule.next_due() == due
    assert schedule.due(due - 1, 1) == []
    assert schedule.due(due, 1) == [Held(due, 5, 0)]
    assert schedule.due(due + YEAR, 1) == [Held(due, 5, 0)]


@pytest.mark.parametrize("seed", range(30))
def test_against_a_list(seed: int) -> None:
    rng = random.Random(seed)
    schedule, model, now = Schedule(), dict[tuple[int, int], int](), NOW
    span = rng.choice([1_000, 3 * HOUR, YEAR])
    for offset in range(400):
        deed = rng.random()
        if deed < 0.6 or not model:
            entry = (now + rng.randint(-500, span), offset)
            model[entry] = rng.randint(0, 5)
            schedule.add(*entry, model[entry])
        elif deed < 0.75:
            some = rng.sample(sorted(model), min(len(model), rng.choice([1, 3, 40])))
            absent = [(due + 1, offset + 10_000) for due, offset in some]
            pairs = [*some, *absent]
            entries = Entries(tuple(d for d, _ in pairs), tuple(o for _, o in pairs))
            removed = schedule.remove_all(entries)
            assert sorted(removed) == sorted(Held(*one, model[one]) for one in some)
            for one in some:
                del model[one]
        elif deed < 0.85:
            now += rng.choice([0, 50, HOUR, span // 10])
            schedule.advance(now, rng.choice([1, 100]))
        elif deed < 0.9:
            other = Schedule()
            for slot in schedule.dump():
                other.load(*slot)
            schedule = other
        key_hash = rng.randint(0, 5)
        assert schedule.count == len(model)
        assert sorted(schedule.with_hashes({key_hash})) == sorted(
            Held(*one, known) for one, known in model.items() if known == key_hash
        )
        due = sorted(one for one in model if one[0] <= now)
        assert [(held.due, held.offset) for held in schedule.due(now, 1000)] == due
        assert schedule.next_due() == min((due for due, _ in model), default=None)
        assert all(schedule.contains(*one) for one in model)


def test_a_slot_whose_parts_do_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        Schedule().load(0, b"\0" * 16, b"\0" * 4)


@pytest.mark.parametrize("span", [60_000, HOUR, 24 * HOUR, 30 * 24 * HOUR])
def test_a_hundred_thousand_take_little_more_than_twelve_bytes_each(span: int) -> None:
    rng = random.Random(1)
    schedule = Schedule()
    schedule.advance(NOW, 1)
    tracemalloc.start()
    try:
        for offset in range(100_000):
            schedule.add(NOW + rng.randrange(span), offset, offset)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / 100_000 < 20


def test_what_one_slot_holds_is_spread_over_smaller_ones_bit_by_bit() -> None:
    schedule = Schedule()
    due = [NOW + 50 * HOUR + number * 7 for number in range(5_000)]
    for offset, one in enumerate(due):
        schedule.add(one, offset, 0)
    spread = 1
    while schedule.advance(due[0], 1_000):
        assert schedule.next_due() == due[0]
        assert schedule.count == len(due)
        spread += 1
    assert spread > 5
    assert max(len(slot) for slot in schedule.slots()) < 20
    assert [held.due for held in schedule.due(due[-1], len(due))] == due


def test_a_dumped_slot_of_an_hour_is_not_taken_for_one_of_a_minute() -> None:
    schedule = Schedule()
    hour = NOW // HOUR * HOUR + 10 * HOUR
    schedule.add(hour, 1, 0)
    schedule.add(hour + 59 * 60_000, 2, 0)
    copy = Schedule()
    copy.add(hour, 3, 0)  # so that the slot is there
    for slot in schedule.dump():
        copy.load(*slot)
    assert [held.offset for held in copy.due(hour, 9)] == [1, 3]
    assert [held.offset for held in copy.due(hour + HOUR, 9)] == [1, 3, 2]


def restored(schedule: Schedule) -> Schedule:
    """The same records, as after a restart."""
    copy = Schedule()
    for slot in schedule.dump():
        copy.load(*slot)
    return copy


@pytest.mark.parametrize("seed", range(10))
def test_what_was_restored_is_spread_and_changed_like_anything_else(seed: int) -> None:
    rng = random.Random(seed)
    schedule = Schedule()
    hour = NOW // HOUR * HOUR + 10 * HOUR
    due = {offset: hour + rng.randrange(HOUR) for offset in range(5_000)}
    for offset, one in due.items():
        schedule.add(one, offset, offset)
    schedule = restored(schedule)
    assert schedule.next_due() == min(due.values())
    later = {5_000 + number: hour - 5 + rng.randrange(HOUR) for number in range(1_500)}
    for offset, one in later.items():
        schedule.add(one, offset, offset)
    due |= later
    assert schedule.next_due() == min(due.values())
    schedule.advance(hour - HOUR, 1_000)  # some of it
    schedule = restored(schedule)
    gone = rng.sample(sorted(due), 100)
    for offset in gone:
        assert schedule.remove(due[offset], offset) == offset
        del due[offset]
    assert schedule.count == len(due)
    expected = [Held(one, offset, offset) for offset, one in due.items()]
    assert schedule.due(hour + HOUR, 10_000) == sorted(expected)


def test_how_many_lie_ahead() -> None:
    schedule = Schedule()
    for minutes in (1, 2, 90, 60 * 24 * 3):
        schedule.add(NOW + minutes * 60_000, minutes, 0)
    counts = schedule.ahead([NOW + 4 * HOUR, NOW + 24 * HOUR, NOW + 5 * 24 * HOUR])
    assert counts == [3, 3, 4]


def test_a_replica_that_only_follows_takes_each_delivery_out_of_a_small_slot() -> None:
    fold = DelayFold()
    start = 1_700_000_000_000
    for number in range(20_000):
        fold.schedule.add(start + number * 100, number, 0)
    for number in range(0, 20_000, 10):
        dues = tuple(start + at * 100 for at in range(number, number + 10))
        fold.delivered(Announcement(0, 10, Entries(dues, tuple(range(number, number + 10)))))
        if number % 500 == 100:
            following = Held(start + (number + 10) * 100, number + 10, 0)
            assert all(len(slot) < 20 for slot in fold.schedule.slots() if following in slot)
    assert (fold.pending, fold.delivered_count) == (0, 20_000)
