"""Idempotence: what is a duplicate, what follows, what is out of order, who is fenced."""

import pytest

from qbus.broker.log.producers import Producer, ProducerState, RetainedBatch
from qbus.errors import ApiError, ErrorCode
from qbus.records import BatchHeader, read_header
from tests.support.logs import batch

_MAX = 2**31 - 1


def header(
    sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, offset: int = 0
) -> BatchHeader:
    made = batch(
        *[b"v"] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return read_header(made)._replace(base_offset=offset)


def state_after(*headers: BatchHeader, limit: int = 100) -> ProducerState:
    state = ProducerState(limit)
    for known in headers:
        state.update(known, now_ms=1000)
    return state


def refusal(state: ProducerState, given: BatchHeader) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        state.check(given)
    return caught.value.code


@pytest.mark.parametrize("sequence", [0, 1, 500, _MAX])
def test_an_unknown_producer_may_begin_anywhere(sequence: int) -> None:
    assert ProducerState(10).check(header(sequence)) is None


def test_the_next_sequence_follows() -> None:
    state = state_after(header(0, 5))
    assert state.check(header(5, 3)) is None


@pytest.mark.parametrize("sequence", [4, 6, 100, _MAX])
def test_a_gap_or_an_overlap_is_out_of_order(sequence: int) -> None:
    state = state_after(header(0, 5))
    assert refusal(state, header(sequence)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_duplicate_has_the_offset_it_got_the_first_time() -> None:
    state = state_after(header(0, 5, offset=40), header(5, 2, offset=60))
    known = state.check(header(0, 5))
    assert known is not None
    assert (known.first_offset, known.last_offset) == (40, 44)


def test_a_duplicate_is_the_same_range_of_sequences() -> None:
    state = state_after(header(0, 5), header(5, 5))
    assert refusal(state, header(0, 4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(state, header(5, 6)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_last_five_batches_are_remembered() -> None:
    state = state_after(*(header(number, offset=number) for number in range(7)))
    assert [state.check(header(number)) is not None for number in range(2, 7)] == [True] * 5
    assert refusal(state, header(1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_zero() -> None:
    state = state_after(header(_MAX))
    assert state.check(header(0)) is None
    state = state_after(header(_MAX - 1, 4))
    assert state.check(header(2)) is None
    assert state.check(header(_MAX - 1, 4)) is not None


def test_a_new_epoch_begins_with_zero() -> None:
    state = state_after(header(3, epoch=1))
    assert state.check(header(0, epoch=2)) is None
    assert refusal(state, header(4, epoch=2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_old_epoch_is_fenced() -> None:
    state = state_after(header(3, epoch=1))
    assert refusal(state, header(4, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(state, header(3, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_new_epoch_forgets_the_batches_of_the_old_one() -> None:
    state = state_after(header(0, 3, epoch=1), header(0, 2, epoch=2))
    (producer,) = state
    assert (producer.epoch, len(producer.batches)) == (2, 1)
    assert (producer.last_sequence, producer.last_timestamp) == (1, 1_700_000_000_000)


def test_producers_do_not_mind_each_other() -> None:
    state = state_after(header(0, producer_id=1), header(9, producer_id=2))
    assert state.check(header(1, producer_id=1)) is None
    assert state.check(header(10, producer_id=2)) is None


def test_producers_not_heard_of_are_forgotten_by_the_brokers_clock() -> None:
    state = ProducerState(100)
    state.update(header(0, producer_id=1), now_ms=1000)
    state.update(header(0, producer_id=2), now_ms=2000)
    state.update(header(1, producer_id=1), now_ms=3000)
    state.expire(now_ms=12_000, expiration_ms=10_000)
    assert [producer.producer_id for producer in state] == [1]
    assert state.check(header(77, producer_id=2)) is None


def test_the_least_recently_heard_of_gives_way_when_there_are_too_many() -> None:
    state = state_after(
        *(header(0, producer_id=number) for number in (1, 2, 3)),
        header(1, producer_id=1),
        header(0, producer_id=4),
        limit=3,
    )
    assert [producer.producer_id for producer in state] == [3, 1, 4]


def test_a_retained_batch_knows_its_first_sequence_across_the_wrap() -> None:
    assert RetainedBatch(1, 100, 3, 0).first_sequence == _MAX - 1
    assert Producer(1, 0, (RetainedBatch(5, 100, 3, 9),), 0).last_sequence == 5


# A batch that is stored in parts, of which the last may have been lost


def part_of(state: ProducerState, given: BatchHeader) -> tuple[int | tuple[int, int], ...] | None:
    stored = state.stored_part(given)
    return None if stored is None else (stored.records_count, *stored.runs)


def test_how_much_of_a_batch_is_stored() -> None:
    state = state_after(header(0, 2, offset=10), header(2, 3, offset=12))
    assert part_of(state, header(5)) is None
    assert part_of(state, header(0, 2)) == (2, (10, 11))
    assert part_of(state, header(0, 5)) == (5, (10, 14))
    assert part_of(state, header(0, 9)) == (5, (10, 14))
    assert part_of(state, header(2, 9)) == (3, (12, 14))


def test_the_rest_of_a_batch_may_lie_further_on() -> None:
    state = state_after(header(0, 2, offset=10), header(2, 3, offset=50))
    assert part_of(state, header(0, 5)) == (5, (10, 11), (50, 52))
    assert part_of(state, header(1, 2)) == (2, (11, 11), (50, 50))


def test_a_stored_batch_has_the_time_of_its_own_last_part() -> None:
    state = state_after(
        header(0)._replace(max_timestamp=1),
        header(1, offset=1)._replace(max_timestamp=2),
        header(2, offset=2)._replace(max_timestamp=3),
    )
    times = {count: state.stored_part(header(0, count)) for count in (1, 2, 3)}
    assert {count: stored and stored.timestamp for count, stored in times.items()} == {
        1: 1,
        2: 2,
        3: 3,
    }


def test_sequences_begin_anew_within_a_batch_that_is_stored_in_parts() -> None:
    state = state_after(header(_MAX, 2, offset=10), header(1, 1, offset=12))
    assert part_of(state, header(_MAX, 4)) == (3, (10, 12))


@pytest.mark.parametrize("given", [header(7), header(1, epoch=1), header(9, 3)])
def test_what_neither_follows_nor_is_stored_is_refused_in_parts_too(given: BatchHeader) -> None:
    with pytest.raises(ApiError, match=r"OUT_OF_ORDER|follows|begins"):
        state_after(header(0, 2)).stored_part(given)


def test_a_batch_of_an_unknown_producer_or_a_new_epoch_is_new() -> None:
    state = state_after(header(0, 2))
    assert part_of(state, header(0, 2, producer_id=8)) is None
    assert part_of(state, header(0, 2, epoch=1)) is None
