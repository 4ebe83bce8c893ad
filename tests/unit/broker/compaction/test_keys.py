"""Records of compacted topics need keys."""

import pytest

from qbus.broker.compaction.keys import check_keys, needs_thread
from qbus.broker.log import RecordsRefusedError
from qbus.errors import CorruptBatch, ErrorCode
from qbus.records import HEADER_SIZE, Compression, build_batch, read_header
from qbus.records.header import write_header


def batch(*keys: bytes | None, compression: Compression = Compression.NONE) -> bytearray:
    return build_batch([(key, b"v" * 50, (), 0) for key in keys], compression=compression)


@pytest.mark.parametrize("codec", Compression)
def test_each_record_without_a_key_is_named(codec: Compression) -> None:
    check_keys(batch(b"a", b"", compression=codec))
    with pytest.raises(RecordsRefusedError, match="record 1 of the batch: it has no key") as no:
        check_keys(batch(b"a", None, b"c", None, compression=codec))
    assert no.value.code is ErrorCode.INVALID_RECORD
    assert [number for number, _ in no.value.errors] == [1, 3]


@pytest.mark.parametrize("codec", Compression)
def test_only_what_is_compressed_needs_a_thread(codec: Compression) -> None:
    assert needs_thread(batch(b"a", compression=codec)) is (codec is not Compression.NONE)


def test_what_is_wrong_with_the_batch_itself_is_not_said_here() -> None:
    good = batch(None)
    for bad in (b"", bytes(70), good[:-1], good + b"x"):
        check_keys(bad)


def test_records_that_are_nonsense_are_corrupt() -> None:
    made = batch(b"a")
    made[HEADER_SIZE] = 0x7F
    write_header(made, read_header(made))
    with pytest.raises(CorruptBatch):
        check_keys(made)
