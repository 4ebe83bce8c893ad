"""Between what is fetched and who reads it: the position is behind the last record given."""

import math
from collections.abc import Callable, Iterator
from itertools import islice
from operator import length_hint
from typing import Any

import pytest

from qbus.clients.consumer import fetch_cursor
from qbus.clients.consumer.assignment import Assignment
from qbus.clients.consumer.fetch_cursor import Turn, batches_of, is_over
from qbus.clients.types import NO_ID, OffsetAndMetadata, PartitionRecords
from qbus.errors import ErrorCode
from qbus.records import CorruptBatch
from qbus.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

from .two_partitions import EPOCH, MANY, A, B, Loop, batch


def damage() -> CorruptBatch:
    return CorruptBatch("t-0 at offset 2: damaged", topic="t", partition=0, offset=2)


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_the_position_is_after_the_last_delivered_record(loop: Loop) -> None:
    loop.fetch(A, batch(0, 2))
    loop.fetch(B, batch(0, 1))
    given = [(where, loop.positions) for where in loop.turn()]
    assert given == [((0, 0), (1, 0)), ((0, 1), (2, 0)), ((1, 0), (2, 1))]
    assert list(loop.turn()) == []
    assert loop.positions == (2, 1)
    assert not any(state.held_bytes for state in loop.assignment.states.values())


def test_a_turn_has_no_more_records_than_it_may(loop: Loop) -> None:
    loop.fetch(A, batch(0, 5), batch(5, 3))
    loop.fetch(B, batch(0, 4))
    turns = [[offset for _, offset in loop.turn(3)] for _ in range(5)]
    assert turns == [[0, 1, 2], [0, 1, 2], [3, 4], [3], [5, 6, 7]]
    assert loop.positions == (8, 4)


def test_records_not_delivered_by_an_abandoned_loop_are_read_again(loop: Loop) -> None:
    loop.fetch(A, batch(0, 5))
    loop.fetch(B, batch(0, 5))
    turn = loop.turn()
    assert next(turn) == (0, 0)
    loop.buffer.close_cursors()
    assert loop.positions == (1, 0)
    assert (loop.assignment.states[A].position, loop.assignment.states[A].epoch) == (1, EPOCH)
    assert not loop.assignment.states[A].fetched
    assert loop.assignment.states[B].held_bytes  # nobody has touched it
    loop.buffer.close_cursors()
    assert loop.positions == (1, 0)


def test_an_exhausted_loop_repeats_nothing(loop: Loop) -> None:
    loop.fetch(A, batch(0, 5), batch(5, 5))
    turn = loop.turn(5)
    assert [next(turn)[1] for _ in range(5)] == [0, 1, 2, 3, 4]
    loop.buffer.close_cursors()
    assert loop.assignment.states[A].position == 5
    assert [offset for _, offset in loop.turn()] == [5, 6, 7, 8, 9]


def test_delivered_records_of_a_stopped_partition_can_be_committed(loop: Loop) -> None:
    loop.fetch(A, batch(0, 5))
    assert len(list(loop.turn(3))) == 3
    loop.assignment.stop([A])
    assert loop.assignment.to_commit()[A].offset == 3


def test_a_cut_does_not_take_back_what_was_given(loop: Loop) -> None:
    loop.fetch(A, batch(0, 5))
    turn = loop.turn()
    assert [next(turn), next(turn)] == [(0, 0), (0, 1)]
    state = loop.assignment.states[A]
    state.drop()
    assert list(turn) == []
    assert (state.position, state.epoch) == (2, EPOCH)


def test_the_committed_epoch_is_that_of_the_last_delivered_record(loop: Loop) -> None:
    loop.fetch(A, batch(0, 5))
    loop.assignment.states[A].epoch = EPOCH - 1
    loop.assignment.states[A].committed = -1
    turn = loop.turn()
    assert loop.assignment.to_commit()[A].leader_epoch == EPOCH - 1
    next(turn)
    assert loop.assignment.to_commit()[A] == OffsetAndMetadata(1, leader_epoch=EPOCH)


def test_records_an_interrupted_reader_did_not_get_are_read_again(loop: Loop) -> None:
    loop.fetch(A, batch(0, 5))
    (cursor,) = loop.buffer.open_cursors()
    for record in cursor.deliver(cursor.decode(2)):
        assert record.offset < 2
    cursor.finish()
    cursor.decode(2)
    loop.buffer.close_cursors()
    assert loop.positions == (2, 0)
    assert not loop.assignment.states[A].fetched


def test_another_loop_continues_after_the_first(loop: Loop) -> None:
    loop.fetch(A, batch(0, 2), batch(2, 2))
    outer = loop.turn()
    assert next(outer) == (0, 0)
    assert list(loop.turn()) == []
    assert list(outer) == []
    loop.fetch(A, batch(0, 2), batch(2, 2))
    inner = loop.turn()
    assert [next(inner), next(inner)] == [(0, 1), (0, 2)]
    assert loop.positions == (3, 0)


def test_the_position_is_right_while_the_reader_advances(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.fetch(A, batch(0, 4), batch(4, 2))
    (cursor,) = loop.buffer.open_cursors()
    assert len(list(cursor.deliver(cursor.decode(MANY)))) == 4

    def hint_and_go_on(rest: Iterator[Any]) -> int:
        monkeypatch.undo()
        given = length_hint(rest)
        cursor.finish()
        cursor.deliver(cursor.decode(MANY))
        return given

    monkeypatch.setattr(fetch_cursor, "length_hint", hint_and_go_on)
    assert [cursor.read_to, cursor.read_to] == [4, 4]


def test_a_cut_while_the_reader_goes_on(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    loop.fetch(A, batch(0, 4))
    turn = loop.turn()
    given = [next(turn)]

    def hint_and_go_on(rest: Iterator[Any]) -> int:
        monkeypatch.undo()
        left = length_hint(rest)
        given.extend(islice(turn, 1))
        return left

    monkeypatch.setattr(fetch_cursor, "length_hint", hint_and_go_on)
    state = loop.assignment.states[A]
    state.drop()
    given.extend(turn)
    assert state.position == len(given)


def test_a_cut_while_the_reader_finishes(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    loop.fetch(A, batch(0, 4))
    (cursor,) = loop.buffer.open_cursors()
    assert len(list(cursor.deliver(cursor.decode(MANY)))) == 4

    def hint_and_be_cut(rest: Iterator[Any]) -> int:
        monkeypatch.undo()
        left = length_hint(rest)
        loop.assignment.seek(A, 100)
        return left

    monkeypatch.setattr(fetch_cursor, "length_hint", hint_and_be_cut)
    cursor.finish()
    assert cursor.read_to == 4


def test_closing_a_cursor_that_is_about_to_deliver(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.fetch(A, batch(0, 4))
    (cursor,) = loop.buffer.open_cursors()
    taken = cursor.decode(MANY)
    given: list[Any] = []
    before = cursor._delivered
    close = before.close

    def close_and_be_overtaken() -> int:
        left = close()
        given.extend(cursor.deliver(taken))
        return left

    monkeypatch.setattr(before, "close", close_and_be_overtaken)
    loop.buffer.close_cursors()
    assert loop.positions == (len(given), 0)


def test_the_position_is_right_while_the_reader_finds_its_cursor_closed(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.fetch(A, batch(0, 4))
    (cursor,) = loop.buffer.open_cursors()
    taken = cursor.decode(MANY)
    cursor.close()
    seen: list[int] = []
    close = fetch_cursor._Delivered.close

    def look_and_close(given: Any) -> int:
        left = close(given)
        seen.append(cursor.read_to)
        return left

    monkeypatch.setattr(fetch_cursor._Delivered, "close", look_and_close)
    assert list(cursor.deliver(taken)) == []
    assert [*seen, cursor.read_to] == [0] * (len(seen) + 1)


def test_a_seek_closes_the_cursor_of_that_partition(loop: Loop) -> None:
    loop.fetch(A, batch(0, 5))
    loop.fetch(B, batch(0, 2))
    turn = loop.turn()
    assert next(turn) == (0, 0)
    loop.assignment.seek(A, 100)
    assert list(turn) == [(1, 0), (1, 1)]
    loop.buffer.close_cursors()
    assert loop.positions == (100, 2)


def test_what_is_cut_before_it_is_decoded_is_not_given(loop: Loop) -> None:
    loop.fetch(A, batch(0, 5))
    turn = loop.turn()
    loop.assignment.remove([A])
    assert list(turn) == []
    loop.buffer.close_cursors()
    assert loop.positions == (None, 0)


def test_a_partition_assigned_again_starts_a_new_state(loop: Loop) -> None:
    loop.fetch(A, batch(0, 5))
    assert next(loop.turn()) == (0, 0)
    loop.assignment.replace([A])
    loop.assignment.states[A].position = 50
    loop.buffer.close_cursors()
    assert loop.assignment.states[A].position == 50


def test_dropped_records_that_were_delivered_are_not_read_again(loop: Loop) -> None:
    loop.fetch(A, batch(0, 2), batch(2, 2))
    state = loop.assignment.states[A]
    state.leader_epoch = 9
    assert [offset for _, offset in loop.turn(2)] == [0, 1]
    state.fetched.clear()
    loop.fetch(A, batch(0, 2), batch(2, 2))
    assert list(loop.turn()) == []
    assert (state.position, state.epoch, list(state.fetched)) == (2, EPOCH, [])
    assert state.leader_epoch == EPOCH, "what was read has to be compared with today's leader"


def test_an_offset_out_of_range_waits_for_the_reader(
    loop: Loop,
) -> None:
    loop.fetch(A, batch(0, 2))
    turn = loop.turn()
    assert next(turn) == (0, 0)
    loop.assignment.states[A].fetched.clear()
    refusal = PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[refusal])])
    loop.responses.arrived(1, {A: 0}, {A.topic: NO_ID}, answer)
    assert list(turn) == [(0, 1)]
    assert list(loop.turn()) == []
    assert loop.positions == (2, 0)


def test_a_paused_partition_is_not_lent(loop: Loop) -> None:
    loop.fetch(A, batch(0, 2))
    loop.assignment.states[A].is_paused = True
    assert list(loop.turn()) == []
    assert loop.positions == (0, 0)


def test_damage_is_told_after_what_was_before_it(loop: Loop) -> None:
    damaged = bytearray(batch(2, 1))
    damaged[-1] ^= 1
    loop.fetch(A, batch(0, 2), bytes(damaged))
    loop.fetch(B, batch(0, 1))
    assert list(loop.turn()) == [(0, 0), (0, 1), (1, 0)]
    with pytest.raises(CorruptBatch, match="t-0 at offset 2: "):
        loop.turn()
    assert loop.positions == (2, 1)


def poll(loop: Loop, limit: int = MANY) -> list[tuple[int, list[int]]]:
    """What a poll returns, by partition."""
    loop.buffer.close_cursors()
    polled = batches_of(loop.buffer.open_cursors(), limit)
    return [(each.partition, [record.offset for record in each]) for each in polled]


def test_polls_take_from_the_partitions_in_turn(loop: Loop) -> None:
    loop.fetch(A, batch(0, 3), batch(3, 2))
    loop.fetch(B, batch(0, 5))
    assert poll(loop, 4) == [(0, [0, 1, 2, 3])]
    assert loop.positions == (4, 0)
    assert poll(loop, 4) == [(1, [0, 1, 2, 3])]
    assert poll(loop) == [(0, [4]), (1, [4])]
    assert loop.positions == (5, 5)
    assert poll(loop) == []


def offsets_of(polled: list[PartitionRecords]) -> list[tuple[int, list[int]]]:
    return [(each.partition, [record.offset for record in each]) for each in polled]


def test_the_polls_of_a_turn_go_on_in_its_cursors(loop: Loop) -> None:
    loop.fetch(A, batch(0, 3), batch(3, 2))
    loop.fetch(B, batch(0, 2))
    turn = Turn(loop.buffer.open_cursors())
    assert offsets_of(turn.take(2)) == [(0, [0, 1])]
    assert loop.positions == (2, 0)
    assert offsets_of(turn.more(2)) == [(0, [2, 3])]
    assert offsets_of(turn.more(2)) == [(0, [4]), (1, [0])]
    assert offsets_of(turn.more(2)) == [(1, [1])]
    assert turn.more(2) == []
    assert loop.positions == (5, 2)
    assert poll(loop) == []


def test_a_poll_of_a_turn_takes_as_much_as_stays_in_the_cache(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_cursor, "_POLLED", 1)
    loop.fetch(A, batch(0, 3), batch(3, 2))
    loop.fetch(B, batch(0, 2))
    turn = Turn(loop.buffer.open_cursors())
    assert offsets_of(turn.take(MANY)) == [(0, [0, 1, 2])]
    assert offsets_of(turn.more(MANY)) == [(0, [3, 4])]
    assert offsets_of(turn.more(MANY)) == [(1, [0, 1])]


def test_a_turn_ends_in_time(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_cursor, "TURN", 0.0)
    loop.fetch(A, batch(0, 3))
    turn = Turn(loop.buffer.open_cursors())
    assert offsets_of(turn.take(1)) == [(0, [0])]
    assert turn.more(1) == []
    assert poll(loop) == [(0, [1, 2])]


def test_a_turn_gives_nothing_of_a_partition_that_was_moved_meanwhile(loop: Loop) -> None:
    loop.fetch(A, batch(0, 3))
    loop.fetch(B, batch(0, 2))
    turn = Turn(loop.buffer.open_cursors())
    assert offsets_of(turn.take(1)) == [(0, [0])]
    loop.assignment.seek(A, 100)
    assert offsets_of(turn.more(MANY)) == [(1, [0, 1])]
    assert loop.positions == (100, 2)


def test_a_turn_is_over_when_a_poll_fails_and_loses_nothing(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_limit: int) -> None:
        raise MemoryError

    loop.fetch(A, batch(0, 3))
    turn = Turn(loop.buffer.open_cursors())
    assert offsets_of(turn.take(2)) == [(0, [0, 1])]
    monkeypatch.setattr(loop.assignment.states[A].fetched[0], "decode", fail)
    with pytest.raises(MemoryError):
        turn.more(MANY)
    assert turn.more(MANY) == []
    loop.buffer.close_cursors()
    assert loop.positions == (2, 0)


def test_a_turn_ends_at_damage_which_is_reported_then(loop: Loop) -> None:
    damaged = bytearray(batch(3, 2))
    damaged[-1] ^= 1
    loop.fetch(A, batch(0, 3), bytes(damaged))
    turn = Turn(loop.buffer.open_cursors())
    assert offsets_of(turn.take(2)) == [(0, [0, 1])]
    assert offsets_of(turn.more(2)) == [(0, [2])]
    assert turn.more(2) == []
    with pytest.raises(CorruptBatch, match="t-0 at offset 3: "):
        poll(loop)
    assert loop.positions == (3, 0)


def test_polled_records_stay_valid_after_a_revocation(loop: Loop) -> None:
    loop.fetch(A, batch(0, 3))
    (polled,) = batches_of(loop.buffer.open_cursors(), MANY)
    loop.assignment.seek(A, 100)
    assert [record.offset for record in polled] == [0, 1, 2]
    assert loop.positions == (100, 0)


def test_a_partition_revoked_while_a_poll_decodes_is_left_out(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.fetch(A, batch(0, 3))
    loop.fetch(B, batch(0, 3))
    last = loop.assignment.states[B].fetched[0]
    decode = last.decode

    def goes(limit: int) -> Any:
        loop.assignment.seek(A, 1)
        return decode(limit)

    monkeypatch.setattr(last, "decode", goes)
    assert poll(loop) == [(1, [0, 1, 2])]
    assert loop.positions == (1, 3)


def test_a_poll_that_fails_takes_nothing(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_limit: int) -> None:
        raise MemoryError

    loop.fetch(A, batch(0, 3))
    loop.fetch(B, batch(0, 3))
    monkeypatch.setattr(loop.assignment.states[B].fetched[0], "decode", fail)
    with pytest.raises(MemoryError):
        poll(loop)
    loop.buffer.close_cursors()
    assert loop.positions == (0, 0)
    loop.fetch(A, batch(0, 3))
    loop.fetch(B, batch(0, 3))
    assert poll(loop) == [(0, [0, 1, 2]), (1, [0, 1, 2])]


def test_a_poll_goes_on_to_report_damage(loop: Loop) -> None:
    damaged = bytearray(batch(0, 1))
    damaged[-1] ^= 1
    loop.fetch(A, bytes(damaged))
    cursors = loop.buffer.open_cursors()
    assert batches_of(cursors, MANY) == []
    assert not is_over(cursors, deadline=0.0)
    with pytest.raises(CorruptBatch, match="t-0 at offset 0: "):
        poll(loop)
    assert is_over(loop.buffer.open_cursors(), deadline=0.0)
    assert not is_over([], deadline=math.inf)


def test_an_error_waits_until_what_was_fetched_before_it_is_read(loop: Loop) -> None:
    loop.fetch(A, batch(0, 2))
    loop.responses.fail(damage(), loop.assignment.states[A])
    assert list(loop.turn()) == [(0, 0), (0, 1)]
    with pytest.raises(CorruptBatch):
        loop.turn()
    assert list(loop.turn()) == [], "it was raised once"


@pytest.mark.parametrize(
    "leave",
    [
        lambda assignment: assignment.seek(A, 100),
        lambda assignment: assignment.remove([A]),
        lambda assignment: assignment.replace([A, B]),
    ],
)
def test_an_error_of_a_place_that_was_left_is_not_raised(
    loop: Loop, leave: Callable[[Assignment], None]
) -> None:
    """It would come again, behind records that are read in the meantime."""
    loop.responses.fail(damage(), loop.assignment.states[A])
    leave(loop.assignment)
    assert list(loop.turn()) == []


def test_an_error_of_a_partition_that_is_gone_is_not_raised(loop: Loop) -> None:
    """A leader may be asked about a partition that goes to another member meanwhile."""
    state = loop.assignment.states[A]
    loop.assignment.remove([A])
    loop.responses.fail(damage(), state)
    assert list(loop.turn()) == []


def test_a_seek_elsewhere_does_not_hide_an_error(loop: Loop) -> None:
    loop.responses.fail(damage(), loop.assignment.states[A])
    loop.assignment.seek(B, 100)
    with pytest.raises(CorruptBatch):
        loop.turn()
