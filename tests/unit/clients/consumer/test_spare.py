"""Memory that was used before is used again, when nobody has it any more."""

import pytest

from qbus.clients.consumer.spare import SpareColumns
from qbus.records import RecordColumns, encode_records, read_header, to_arrow

pytest.importorskip("pyarrow")


def fill(columns: RecordColumns) -> RecordColumns:
    batch = encode_records([b"value"], base_timestamp=1)
    columns.append(batch, read_header(batch))
    return columns


def test_columns_come_back_when_their_batch_is_gone() -> None:
    spare = SpareColumns()
    first = fill(spare.take())
    batch = to_arrow(first, "t", 0)
    spare.lend(first)
    second = spare.take()
    assert second is not first
    del batch
    assert spare.take() is first
    assert first.rows == 0
    assert spare.take() is not first, "it is another's now"


def test_as_many_are_kept_as_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    spare = SpareColumns()
    lent = [fill(spare.take()) for _ in range(5)]
    monkeypatch.setattr("qbus.clients.consumer.spare._LARGE", 3 * lent[0].nbytes)
    for columns in lent:
        spare.lend(columns)
    assert [spare.take() for _ in range(3)] == lent[2:], "the first ones were let go"
    assert spare.take() not in lent


def test_several_partitions_have_theirs() -> None:
    spare = SpareColumns()
    rounds: list[list[RecordColumns]] = []
    held: list[object] = []
    for _ in range(3):
        columns = [fill(spare.take()) for _ in range(4)]
        batches = [to_arrow(one, "t", index) for index, one in enumerate(columns)]
        for one in columns:
            spare.lend(one)
        held = batches
        rounds.append(columns)
    assert len(held) == 4
    assert {id(one) for one in rounds[2]} == {id(one) for one in rounds[0]}


def test_memory_counts_though_little_is_in_it_now(monkeypatch: pytest.MonkeyPatch) -> None:
    spare = SpareColumns()
    columns = fill(spare.take())
    large = columns.nbytes
    monkeypatch.setattr("qbus.clients.consumer.spare._LARGE", large)
    spare.lend(columns)
    assert spare.take() is columns
    assert columns.rows == 0
    assert columns.nbytes == large
    spare.lend(columns)
    spare.lend(fill(RecordColumns()))
    assert spare.take() is not columns, "both together are too large"
