"""Lines on their way, and the account of them."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from qbus.cli.failures import Failure
from qbus.cli.produce.line_format import Columns, raw, split_keys
from qbus.cli.produce.line_producer import LineProducer
from qbus.clients.types import BatchMetadata
from qbus.errors import ApiError, ErrorCode
from tests.unit.cli.fakes import FakeProducer


@pytest.fixture
def fake() -> FakeProducer:
    return FakeProducer()


def line_producer(
    fake: FakeProducer, separator: bytes | None = None, partition: int | None = None
) -> LineProducer:
    return LineProducer(cast("Any", fake), "t", raw(separator), partition)


def test_the_key_stands_before_the_first_separator() -> None:
    lines = [b"k:v", b"no key", b":empty key", b"k:v:w", b"k:", b""]
    values, keys = split_keys(lines, b":")
    assert values == [b"v", b"no key", b"empty key", b"v:w", b"", b""]
    assert keys == [b"k", None, b"", b"k", b"k", None]


async def test_lines_go_out_as_they_are(fake: FakeProducer) -> None:
    size = await line_producer(fake, partition=2).send([b"a\r", b"", b"\0"])
    assert size == 6
    assert fake.sent == [("t", [b"a\r", b"", b"\0"], None, 2)]


async def test_lines_with_keys(fake: FakeProducer) -> None:
    await line_producer(fake, b"\t").send([b"k\tv", b"w"])
    assert fake.sent == [("t", [b"v", b"w"], [b"k", None], None)]


async def test_the_summary_has_the_records_of_each_partition(fake: FakeProducer) -> None:
    lines = line_producer(fake)
    await lines.send([b"a", b"b"])
    await lines.send([b"c", b"d", b"e"])
    fake.deliveries[0].set_result([BatchMetadata("t", 1, 40, 2, 0)])
    fake.deliveries[1].set_result([BatchMetadata("t", 1, 42, 2, 0), BatchMetadata("t", 0, 7, 1, 0)])
    account = await lines.finish()
    assert account.pop("seconds") >= 0
    assert account == {
        "topic": "t",
        "records": 5,
        "bytes": 10,
        "partitions": [
            {"partition": 0, "records": 1, "first_offset": 7, "last_offset": 7},
            {"partition": 1, "records": 4, "first_offset": 40, "last_offset": 43},
        ],
    }


async def test_unknown_offsets_are_null(fake: FakeProducer) -> None:
    lines = line_producer(fake)
    await lines.send([b"a"])
    fake.deliveries[0].set_result([BatchMetadata("t", 0, -1, 1, -1)])
    account = await lines.finish()
    assert account["partitions"] == [
        {"partition": 0, "records": 1, "first_offset": None, "last_offset": None}
    ]


async def test_a_failed_delivery_ends_it_and_says_how_much_was_acknowledged(
    fake: FakeProducer,
) -> None:
    lines = line_producer(fake)
    await lines.send([b"a"] * 1000)
    fake.deliveries[0].set_result([BatchMetadata("t", 0, 0, 1000, 0)])
    await lines.send([b"b"])
    fake.deliveries[1].set_exception(ApiError(ErrorCode.MESSAGE_TOO_LARGE))
    with pytest.raises(Failure) as failure:
        await lines.send([b"c"])
    assert failure.value.message == (
        "message too large (MESSAGE_TOO_LARGE). Acknowledged before that: 1,000 records"
    )


async def test_a_refused_send_ends_it(fake: FakeProducer) -> None:
    fake.error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic t")
    with pytest.raises(Failure, match="there is no topic t"):
        await line_producer(fake).send([b"a"])


async def test_a_line_that_is_no_record_ends_it_after_what_was_before(fake: FakeProducer) -> None:
    def parse(lines: Sequence[bytes]) -> Columns:
        if b"" in lines:
            raise Failure("line 4 is empty")
        return Columns(lines)

    lines = LineProducer(cast("Any", fake), "t", parse, None)
    await lines.send([b"a", b"b"])
    fake.deliveries[0].set_result([BatchMetadata("t", 0, 7, 2, 0)])
    with pytest.raises(Failure, match=r"line 4 is empty\. Acknowledged before that: 2 records"):
        await lines.send([b"c", b""])
    assert len(fake.sent) == 1, "none of the lines beside it was sent"


async def test_after_a_signal_acknowledgements_are_waited_for_a_short_time(
    fake: FakeProducer,
) -> None:
    lines = line_producer(fake)
    await lines.send([b"a", b"b"])
    await lines.send([b"c"])
    fake.deliveries[0].set_result([BatchMetadata("t", 1, 40, 2, 0)])
    assert await lines.finish_within(0.01) is None
    assert lines.unacknowledged == 1
    assert fake.closed_within == 0, "closing does not wait for the rest"


async def test_after_a_signal_the_summary_counts_what_was_acknowledged(fake: FakeProducer) -> None:
    lines = line_producer(fake)
    await lines.send([b"a"])
    fake.deliveries[0].set_result([BatchMetadata("t", 1, 40, 1, 0)])
    summary = await lines.finish_within(5)
    assert summary is not None
    assert summary["records"] == 1
    assert lines.unacknowledged == 0
    assert fake.closed_within == 0


async def test_a_second_signal_ends_the_wait_at_once(fake: FakeProducer) -> None:
    lines = line_producer(fake)
    await lines.send([b"a"])
    waiting = asyncio.ensure_future(lines.finish_within(60))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert fake.closed_within == 0
