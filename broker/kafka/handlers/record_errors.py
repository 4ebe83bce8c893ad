"""Which records of a refused batch are to blame (KIP-467), so that a client can name them.

Only timestamps are to blame for single records: everything else is wrong with a batch as a whole.
What is said is bounded, as is the work for it: a batch that is refused must not cost more than one
that is stored, so a compressed one is not looked into.
"""

from collections.abc import Iterator
from itertools import islice

from qbus.records import Compression, CorruptBatch, Record, iter_records, read_header
from qbus.wire.messages.produce import BatchIndexAndErrorMessage

from ...log import LogConfig

MAX_ERRORS = 10
MAX_RECORDS = 1000
_NO_TIMESTAMP = -1


def bad_timestamps(
    batch: memoryview, config: LogConfig, now_ms: int
) -> list[BatchIndexAndErrorMessage]:
    """The first records whose timestamps are too far from ``now_ms``."""
    if read_header(batch).compression is not Compression.NONE:
        return []
    try:
        return list(islice(_errors(iter_records(batch), config, now_ms), MAX_ERRORS))
    except CorruptBatch:  # its sum was right, so its producer wrote nonsense
        return []


def _errors(
    records: Iterator[Record], config: LogConfig, now_ms: int
) -> Iterator[BatchIndexAndErrorMessage]:
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    for index, record in enumerate(islice(records, MAX_RECORDS)):
        timestamp = record.timestamp
        if timestamp != _NO_TIMESTAMP and not earliest <= timestamp <= latest:
            yield BatchIndexAndErrorMessage(
                batch_index=index,
                batch_index_error_message=f"timestamp {timestamp} is not within {earliest} and"
                f" {latest}",
            )
