"""What becomes visible at once: as much as a batch of the topic may hold."""

import pytest

from qbus.records import Compression, iter_batches

from .conftest import NewLine
from .delays import Line, WallClock, copy_log


def visible_sizes(line: Line) -> list[int]:
    """The sizes of the visible batches."""
    batches = (line.log.read(0, 1 << 30, wait=True) or pytest.fail("nothing")).read()
    return [len(batch) for header, batch in iter_batches(batches) if not header.is_hidden]


@pytest.mark.parametrize("most", [1_048_588, 20_000])
async def test_a_batch_is_no_larger_than_its_topic_allows(
    new_line: NewLine, clock: WallClock, most: int
) -> None:
    line = new_line(max_message_bytes=most)
    sizes = [most * 9 // 10, 10, most // 2, most // 3, most // 3, *[100] * 500]
    for size in sizes:
        line.produce((None, bytes(size), {"qbus-delay": "1s", "h": "x" * 50}))
    clock.advance(1_000)
    assert await line.deliver() == len(sizes)
    assert [len(record.value or b"") for record in line.visible()] == sizes
    assert max(visible_sizes(line)) <= most


async def test_large_headers_count(new_line: NewLine, clock: WallClock) -> None:
    line = new_line(max_message_bytes=20_000)
    for _ in range(20):
        line.produce((None, b"", {"qbus-delay": "1s", "h": "x" * 5_000}))
    clock.advance(1_000)
    assert await line.deliver() == 20
    assert max(visible_sizes(line)) <= 20_000


async def test_a_record_that_grows_beyond_the_limit_is_delivered_alone(
    new_line: NewLine, clock: WallClock
) -> None:
    line = new_line(max_message_bytes=10_000)
    delay = {"qbus-delay": "1s"}
    largest = 10_000 - 61 - 25  # as large as a producer may send it
    line.produce((None, bytes(largest), delay))
    line.produce((None, b"grown" * 10_000, delay), compression=Compression.GZIP)
    line.produce((None, b"small", delay))
    clock.advance(1_000)
    assert await line.deliver() == 3
    values = [record.value for record in line.visible()]
    assert values == [bytes(largest), b"grown" * 10_000, b"small"]
    assert [size > 10_000 for size in visible_sizes(line)] == [True, True, False]
    follower = new_line(max_message_bytes=10_000)
    copy_log(line, follower)
    assert [record.value for record in follower.visible()] == values
    line.reopen(clean=False)
    assert [record.value for record in line.visible()] == values
