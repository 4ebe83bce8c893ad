"""What the records of a producer's batch ask for, read within bounds.

A batch that is small on the wire may be enormous in memory. The event loop reads what is surely
little, up to a budget for each request; a thread reads the rest. Beyond the bounds of
:mod:`qbus.records.bounds` a batch is refused, and one with a header of delays also beyond these:

=========================== =======
records of a batch           50,000
their headers               200,000
runs of records of one kind  10,000
=========================== =======

A run (records that are delayed, visible, or orders, side by side) is stored as a batch of its own.
"""

from typing import Final, NamedTuple

from qbus.delay import Order, more_than, read_order
from qbus.errors import OversizedBatch
from qbus.records import BatchHeader, Buffer, Compression, ConsumerRecord
from qbus.records.bounds import MAX_RECORDS_SIZE, most_bytes
from qbus.records.compression import peek
from qbus.records.decode import records_of
from qbus.records.header import ATTRIBUTES_AT, CODEC_BITS
from qbus.records.plain import lacks_headers, may_have_header

from ..log import LogConfig

MAX_RECORDS: Final = 50_000
MAX_HEADERS: Final = 200_000
MAX_RUNS: Final = 10_000

_NAMED: Final = b"qbus-"  # which every header that matters begins with
_LOOKED_AT: Final = 1 << 20  # bytes that the event loop looks through at once: about a millisecond
_GUNZIPPED: Final = 256 << 10  # of gzip, which takes many times longer
_ALWAYS_LOOKED_AT: Final = 64 << 10
_USUAL_RATIO: Final = 16
_DECODED: Final = 64 << 10  # bytes of records that the event loop decodes at once
_DECODING: Final = 16  # times as long as looking through them
_SLICE: Final = 64 << 10  # bytes that a thread decodes before others run
_PER_REQUEST: Final = 8 << 20


class LoopBudget:
    """How many bytes of batches the event loop may look through for one request."""

    __slots__ = ("left",)

    def __init__(self, left: int = _PER_REQUEST) -> None:
        self.left = left

    def spend(self, count: int) -> None:
        """Account for ``count`` bytes. Raises BlockingIOError where so many are not left."""
        if count > self.left:
            raise BlockingIOError
        self.left -= count


class Contents(NamedTuple):
    """The records of a batch, of which some may have headers of delays, and what each asks for.

    ``now_ms``: when they were taken in. ``errors``: the numbers of those that ask for what they
    cannot have, and why.
    """

    header: BatchHeader
    now_ms: int
    records: list[ConsumerRecord]
    orders: list[Order | None]
    errors: list[tuple[int, str]]


def surely_orders_nothing(batch: Buffer) -> bool:
    """Whether a batch surely has no headers of delays; False says nothing.

    What is compressed is not checked closely: damage in it is for its readers, as in any topic.
    """
    return lacks_headers(batch, _NAMED, _bytes_to_look_at(batch))


def may_order(batch: Buffer, header: BatchHeader) -> bool:
    """Whether a batch may have headers of delays, if it is small enough for the event loop.

    Decompresses it: first see :func:`surely_orders_nothing`. Raises CorruptBatch, also where it is
    larger than that.
    """
    payload = records_of(batch, header, _bytes_to_look_at(batch), peek)
    return payload is not None and may_have_header(payload, header.records_count, _NAMED)


def _bytes_to_look_at(batch: Buffer) -> int:
    """How many bytes of records the event loop looks through of a batch, at most."""
    size = len(batch)
    codec = batch[ATTRIBUTES_AT] & CODEC_BITS if size > ATTRIBUTES_AT else 0
    if codec:
        size = max(_ALWAYS_LOOKED_AT, _USUAL_RATIO * size)
    return min(size, _GUNZIPPED if codec == Compression.GZIP else _LOOKED_AT)


def look(
    batch: Buffer, header: BatchHeader, config: LogConfig, now_ms: int, budget: LoopBudget
) -> Contents | None:
    """The contents of a batch that is small; None: none of its records has a header of delays.

    Raises BlockingIOError where a thread has to :func:`read` it, CorruptBatch.
    """
    most = _bytes_to_look_at(batch)
    budget.spend(most)
    if lacks_headers(batch, _NAMED, most):
        return None
    try:
        payload = records_of(batch, header, most, peek)
    except OversizedBatch:
        raise BlockingIOError from None
    if payload is None or not may_have_header(payload, header.records_count, _NAMED):
        return None
    if len(payload) > _DECODED:
        raise BlockingIOError
    budget.spend(_DECODING * len(payload))
    return _decode(payload, header, config, now_ms)


def read(
    batch: Buffer,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    ceiling: int = MAX_RECORDS_SIZE,
) -> Contents | None:
    """The contents of any batch, as :func:`look` returns them; for a thread.

    ``ceiling``: the bytes that its records may take at most. Raises CorruptBatch, which is an
    OversizedBatch beyond the bounds.
    """
    payload = records_of(batch, header, most_bytes(len(batch), ceiling))
    if payload is None or not may_have_header(payload, header.records_count, _NAMED):
        return None
    return _decode(payload, header, config, now_ms)


def _decode(payload: Buffer, header: BatchHeader, config: LogConfig, now_ms: int) -> Contents:
    from qbus.records import codec  # noqa: PLC0415 - which a broker without delays need not load

    count = header.records_count
    if count > MAX_RECORDS:
        raise OversizedBatch(
            f"a batch of {count} records, some with headers of delays: at most {MAX_RECORDS}"
        )
    decoder = codec.twin.Decoder(payload, header._replace(base_offset=0), "", 0, 0)
    contents = Contents(header, now_ms, [], [], [])
    headers = 0
    while records := decoder.take(_SLICE):
        contents.records.extend(records)
        for record in records:
            headers += len(record.headers)
            contents.orders.append(_order(record, config, contents))
        if headers > MAX_HEADERS:
            raise OversizedBatch(
                f"a batch whose records, some of them delayed, have more than {MAX_HEADERS} headers"
            )
    _check_runs(contents)
    return contents


def _check_runs(contents: Contents) -> None:
    """Raise OversizedBatch for too many runs."""
    runs, before = 0, -1
    for order in contents.orders:
        kind = 0
        if order is not None:
            kind = 2 if order.target is not None else int(order.due > contents.now_ms)
        runs += kind != before
        before = kind
    if runs > MAX_RUNS:
        raise OversizedBatch(
            f"a batch of {runs} runs of delayed and other records by turns: at most {MAX_RUNS}"
        )


def _order(record: ConsumerRecord, config: LogConfig, contents: Contents) -> Order | None:
    """What a record asks for; what it may not ask for is added to the errors of ``contents``."""
    if not config.qbus_delay_enable:
        return None
    now_ms = contents.now_ms
    try:
        order = read_order(record.headers, now_ms)
        if order is not None and order.due > now_ms + config.qbus_delay_max_ms:
            ahead, most = more_than(order.due - now_ms, config.qbus_delay_max_ms)
            raise ValueError(
                f"it is to be delivered in {ahead}, and qbus.delay.max.ms"
                f" ({config.qbus_delay_max_ms}) allows {most}"
            )
    except ValueError as error:
        contents.errors.append((len(contents.orders), str(error)))
        return None
    return order
