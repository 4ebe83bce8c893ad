"""Arrow batches of what was lent: given whole or not at all."""

import asyncio
import threading
from typing import Any

import pytest

from qbus.clients.consumer import arrow as arrow_module
from qbus.clients.consumer.arrow import ArrowDecoder, ColumnPool
from qbus.records import CorruptBatch, RecordColumns, encode_records, read_header, to_arrow

from .two_partitions import EPOCH, MANY, A, B, Loop, batch

pytest.importorskip("pyarrow")

Rows = list[tuple[int, list[int]]]


@pytest.fixture
def loop() -> Loop:
    return Loop()


def decoder(loop: Loop) -> ArrowDecoder:
    loop.buffer.close_cursors()
    return ArrowDecoder(loop.buffer.open_cursors(), ColumnPool())


def rows(batches: list[Any]) -> Rows:
    """Partition and offsets of each."""
    return [(each["partition"][0].as_py(), each["offset"].to_pylist()) for each in batches]


def poll(loop: Loop, limit: int = MANY) -> Rows:
    taken = decoder(loop)
    taken.decode(limit)
    return rows(taken.batches())


def test_each_partition_gives_one_batch_and_its_position_is_behind_it(loop: Loop) -> None:
    loop.fetch(A, batch(0, 2), batch(2, 3))
    loop.fetch(B, batch(0, 1))
    assert poll(loop) == [(0, [0, 1, 2, 3, 4]), (1, [0])]
    assert loop.positions == (5, 1)
    state = loop.assignment.states[A]
    assert loop.assignment.to_commit()[A].leader_epoch == EPOCH
    assert poll(loop) == []
    assert not state.fetched


def test_every_partition_with_records_returns_some(loop: Loop) -> None:
    loop.fetch(A, batch(0, 3))
    loop.fetch(B, batch(0, 3))
    assert len(loop.buffer.open_cursors(enough=1)) == 1
    assert poll(loop) == [(0, [0, 1, 2]), (1, [0, 1, 2])]


def test_a_batch_is_taken_whole_and_the_others_have_their_turn_first(loop: Loop) -> None:
    loop.fetch(A, batch(0, 3), batch(3, 3))
    loop.fetch(B, batch(0, 3))
    assert poll(loop, 2) == [(0, [0, 1, 2])]
    assert loop.positions == (3, 0)
    assert poll(loop, 4) == [(1, [0, 1, 2]), (0, [3, 4, 5])]


def test_what_is_decoded_but_not_given_is_read_again(loop: Loop) -> None:
    """Its reader was cancelled, or interrupted."""
    loop.fetch(A, batch(0, 3))
    decoder(loop).decode(MANY)
    assert loop.positions == (0, 0)
    assert poll(loop) == []
    assert loop.positions == (0, 0)
    loop.fetch(A, batch(0, 3))
    assert poll(loop) == [(0, [0, 1, 2])]


def test_records_of_a_cursor_closed_while_decoding_are_not_delivered(loop: Loop) -> None:
    loop.fetch(A, batch(0, 3))
    loop.fetch(B, batch(0, 3))
    taken = decoder(loop)
    taken.decode(MANY)
    loop.assignment.seek(A, 1)
    loop.assignment.stop([B])
    assert taken.batches() == []
    assert loop.positions == (1, 0)


def test_delivered_batches_stay_valid_after_a_revocation(loop: Loop) -> None:
    loop.fetch(A, batch(0, 3))
    taken = decoder(loop)
    taken.decode(MANY)
    given = taken.batches()
    loop.assignment.stop([A])
    assert loop.assignment.to_commit()[A].offset == 3
    assert rows(given) == [(0, [0, 1, 2])]


def test_a_poll_that_fails_takes_nothing(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    for fetch in range(2):
        loop.fetch(A, batch(0, 3))
        loop.fetch(B, batch(0, 3))
        if not fetch:
            last = loop.assignment.states[B].fetched[0]
            monkeypatch.setattr(last, "decode_columns", fail)
            with pytest.raises(MemoryError):
                poll(loop)
            loop.buffer.close_cursors()
            assert loop.positions == (0, 0)
    assert poll(loop) == [(0, [0, 1, 2]), (1, [0, 1, 2])]


def test_damage_is_told_after_what_was_before_it(loop: Loop) -> None:
    damaged = bytearray(batch(2, 2))
    damaged[-1] ^= 1
    loop.fetch(A, batch(0, 2), bytes(damaged))
    assert poll(loop) == [(0, [0, 1])]
    assert poll(loop) == []
    with pytest.raises(CorruptBatch, match="t-0 at offset 2: "):
        poll(loop)
    assert loop.positions == (2, 0)


def test_columns_of_released_batches_are_reused(loop: Loop) -> None:
    spare = ColumnPool()
    addresses = []
    for begin in (0, 3, 6):
        loop.buffer.close_cursors()
        loop.fetch(A, batch(begin, 3))
        taken = ArrowDecoder(loop.buffer.open_cursors(), spare)
        taken.decode(MANY)
        (given,) = taken.batches()
        addresses.append(given["offset"].buffers()[1].address)
        del taken, given
    assert len(set(addresses)) < 3


async def test_a_poll_cancelled_while_a_thread_decodes_delivers_nothing(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_module, "_MUCH", 0)
    loop.fetch(A, batch(0, 3))
    fetched = loop.assignment.states[A].fetched[0]
    take, begun, may_go_on = fetched.decode_columns, threading.Event(), threading.Event()
    ended = threading.Event()

    def slow(columns: Any, limit: int) -> None:
        begun.set()
        assert may_go_on.wait(10)
        take(columns, limit)
        ended.set()

    monkeypatch.setattr(fetched, "decode_columns", slow)
    decoding = asyncio.create_task(decoder(loop).decode_beside(MANY))
    assert await asyncio.to_thread(begun.wait, 10)
    decoding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await decoding
    loop.buffer.close_cursors()
    may_go_on.set()
    assert await asyncio.to_thread(ended.wait, 10)
    assert loop.positions == (0, 0)
    loop.fetch(A, batch(0, 3))
    assert poll(loop) == [(0, [0, 1, 2])]


pytest.importorskip("pyarrow")


def fill(columns: RecordColumns) -> RecordColumns:
    batch = encode_records([b"value"], base_timestamp=1)
    columns.append(batch, read_header(batch))
    return columns


def test_columns_come_back_when_their_batch_is_gone() -> None:
    spare = ColumnPool()
    first = fill(spare.acquire())
    batch = to_arrow(first, "t", 0)
    spare.release(first)
    second = spare.acquire()
    assert second is not first
    del batch
    assert spare.acquire() is first
    assert first.rows == 0
    assert spare.acquire() is not first, "it is another's now"


def test_as_many_are_kept_as_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    spare = ColumnPool()
    lent = [fill(spare.acquire()) for _ in range(5)]
    monkeypatch.setattr("qbus.clients.consumer.arrow._LARGE", 3 * lent[0].nbytes)
    for columns in lent:
        spare.release(columns)
    assert [spare.acquire() for _ in range(3)] == lent[2:], "the first ones were let go"
    assert spare.acquire() not in lent


def test_several_partitions_have_theirs() -> None:
    spare = ColumnPool()
    rounds: list[list[RecordColumns]] = []
    held: list[object] = []
    for _ in range(3):
        columns = [fill(spare.acquire()) for _ in range(4)]
        batches = [to_arrow(one, "t", index) for index, one in enumerate(columns)]
        for one in columns:
            spare.release(one)
        held = batches
        rounds.append(columns)
    assert len(held) == 4
    assert {id(one) for one in rounds[2]} == {id(one) for one in rounds[0]}


def test_memory_counts_though_little_is_in_it_now(monkeypatch: pytest.MonkeyPatch) -> None:
    spare = ColumnPool()
    columns = fill(spare.acquire())
    large = columns.nbytes
    monkeypatch.setattr("qbus.clients.consumer.arrow._LARGE", large)
    spare.release(columns)
    assert spare.acquire() is columns
    assert columns.rows == 0
    assert columns.nbytes == large
    spare.release(columns)
    spare.release(fill(RecordColumns()))
    assert spare.acquire() is not columns, "both together are too large"
