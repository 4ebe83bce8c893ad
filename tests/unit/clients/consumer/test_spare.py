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


def test_few_are_kept() -> None:
    spare = SpareColumns()
    lent = [fill(spare.take()) for _ in range(5)]
    for columns in lent:
        spare.lend(columns)
    again = [spare.take() for _ in range(5)]
    assert sum(columns in lent for columns in again) == 3


def test_large_ones_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qbus.clients.consumer.spare._LARGE", 10)
    spare = SpareColumns()
    columns = fill(spare.take())
    spare.lend(columns)
    assert spare.take() is not columns
