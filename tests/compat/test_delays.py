"""Every client delays by a header; every consumer reads what was delayed as any other record."""

import time
from collections.abc import Iterator

import pytest

from qbus.errors import ErrorCode

from .clients import Client, ClientError
from .records import Record, Stored
from .selection import clients_with

pytestmark = pytest.mark.compat

EARLIEST = -2


@pytest.fixture(autouse=True)
def only_here(request: pytest.FixtureRequest) -> None:
    """Apache Kafka delays nothing."""
    if request.config.getoption("--target") != "qbus":
        pytest.skip("the target holds nothing back")


@pytest.fixture
def delaying(name: str, reference: Client) -> Iterator[str]:
    """A topic of one partition that holds records back."""
    reference.create_topic(name, config={"qbus.delay.enable": "true"})
    yield name
    reference.delete_topic(name)


def with_headers(client: Client) -> None:
    """Skip for clients that send no headers."""
    if not any(record.headers for record in client.sendable):
        pytest.skip(f"{client.name} sends no headers here")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def delayed(value: bytes, key: bytes | None = b"k", **headers: str) -> Record:
    """A record with headers, whose names have underscores here; with a key, as some need one."""
    names = {name: f"qbus-{name.replace('_', '-')}" for name in headers}
    named = tuple((names[name], text.encode()) for name, text in headers.items())
    return Record(key, value, named)


def ours(one: Stored) -> dict[str, bytes | None]:
    return {name: value for name, value in one.record.headers if name.startswith("qbus-")}


@clients_with("produce")
def test_a_header_delays(client: Client, delaying: str, reference: Client) -> None:
    with_headers(client)
    client.produce(delaying, [delayed(b"first")])  # a client takes its time to start
    due = now_ms() + 6_000
    client.produce(delaying, [delayed(b"later", deliver_at=str(due)), delayed(b"now")])
    client.produce(delaying, [delayed(b"soon", delay="500ms")])
    found = reference.consume(delaying, 0, 0, 4)
    assert now_ms() >= due
    assert [one.record.value for one in found] == [b"first", b"now", b"soon", b"later"]
    assert found[3].record.timestamp == due
    assert ours(found[3])["qbus-delayed-offset"] == b"1"
    assert ours(found[2])["qbus-delayed-offset"] == b"3"


@clients_with("consume")
def test_consumers_read_what_was_delayed_in_the_order_of_its_times(
    client: Client, delaying: str, reference: Client
) -> None:
    start = now_ms() + 1_000
    dues = [start + number * 7_919 % 997 for number in range(200)]
    records = [delayed(b"%d" % due, deliver_at=str(due)) for due in dues]
    reference.produce(delaying, [*records[:100], *[delayed(b"now")] * 5, *records[100:]])
    found = client.consume(delaying, 0, EARLIEST, 205)
    assert now_ms() >= max(dues)
    values = [one.record.value for one in found]
    assert values == [b"now"] * 5 + [b"%d" % due for due in sorted(dues)]
    offsets = [one.offset for one in found]
    assert offsets == sorted(set(offsets))
    assert reference.bounds(delaying, 0)[1] == offsets[-1] + 1  # nothing came twice


@clients_with("produce")
def test_cancelled_by_offset_and_by_key(client: Client, delaying: str, reference: Client) -> None:
    with_headers(client)
    reference.produce(delaying, [delayed(b"one", delay="1s"), delayed(b"two", delay="1s")])
    reference.produce(delaying, [delayed(b"other", b"o", delay="1s")])
    client.produce(delaying, [delayed(b"order", cancel="0")])
    client.produce(delaying, [delayed(b"order", b"o", cancel="key")])
    (found,) = reference.consume(delaying, 0, 0, 1)
    assert found.record.value == b"two"
    assert reference.bounds(delaying, 0)[1] == found.offset + 1


@clients_with("produce")
def test_rescheduled(client: Client, delaying: str, reference: Client) -> None:
    with_headers(client)
    reference.produce(delaying, [delayed(b"first", delay="30d"), delayed(b"second", delay="1s")])
    client.produce(delaying, [delayed(b"order", reschedule="0", delay="100ms")])
    found = reference.consume(delaying, 0, 0, 2)
    assert [one.record.value for one in found] == [b"first", b"second"]


@clients_with("produce")
def test_an_order_that_comes_too_late_fails_no_record_of_its_batch(
    client: Client, delaying: str, reference: Client
) -> None:
    with_headers(client)
    reference.produce(delaying, [delayed(b"early", delay="50ms")])
    reference.consume(delaying, 0, 0, 1)
    orders = [delayed(b"order", cancel="0"), delayed(b"order", b"nobody", cancel="key")]
    client.produce(delaying, [delayed(b"now"), delayed(b"later", delay="1s"), *orders])
    found = reference.consume(delaying, 0, 0, 3)
    assert [one.record.value for one in found] == [b"early", b"now", b"later"]


@pytest.mark.parametrize(
    "headers",
    [
        {"delay": "soon"},
        {"delay": "-5"},
        {"deliver_at": "99999999999999999999"},
        {"delay": "1s", "deliver_at": "1"},
        {"delay": "731d"},
        {"cancel": "none"},
        {"cancel": "0", "delay": "1s"},
        {"reschedule": "0"},
    ],
    ids=str,
)
@clients_with("produce")
def test_what_makes_no_sense_is_refused(
    client: Client, headers: dict[str, str], delaying: str, reference: Client
) -> None:
    with_headers(client)
    with pytest.raises(ClientError) as refused:
        client.produce(delaying, [delayed(b"bad", b"k", **headers)])
    if client.name == "aiokafka":  # which has no name for this error
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    else:
        assert refused.value.code is ErrorCode.INVALID_RECORD
    assert reference.bounds(delaying, 0) == (0, 0)


@clients_with("consume_group", "committed")
def test_lag_comes_to_nothing_behind_what_is_held_back(
    client: Client, delaying: str, name: str, reference: Client
) -> None:
    fill_with_hidden(delaying, reference)
    found = client.consume_group(delaying, name, 30)
    assert [one.record.value for one in found] == [b"%d" % number for number in range(30)]
    end = reference.bounds(delaying, 0)[1]
    assert client.committed(delaying, 0, name) == end


@clients_with("consume", "bounds")
def test_wherever_a_consumer_begins_it_gets_the_next_visible_record(
    client: Client, delaying: str, reference: Client
) -> None:
    visible = fill_with_hidden(delaying, reference)
    start, end = client.bounds(delaying, 0)
    assert (start, end) == (0, visible[-1] + 1)
    for offset in (0, *(place - 1 for place in visible[::7]), visible[-1]):
        (found,) = client.consume(delaying, 0, max(offset, 0), 1)
        assert found.offset == min(place for place in visible if place >= offset)


@clients_with("offset_for_time")
def test_offsets_for_times_are_those_of_visible_records(
    client: Client, delaying: str, reference: Client
) -> None:
    visible = fill_with_hidden(delaying, reference)
    assert client.offset_for_time(delaying, 0, 1) == visible[0]
    later = client.offset_for_time(delaying, 0, now_ms() + 60_000)
    assert later in {-1, visible[-1] + 1}


def fill_with_hidden(topic: str, reference: Client) -> list[int]:
    """Thirty visible records among hidden ones, some behind the last; where the visible lie."""
    for number in range(10):
        dues = [str(now_ms() + 60_000 + at) for at in range(20)]
        reference.produce(topic, [delayed(b"hidden", b"c", deliver_at=due) for due in dues])
        reference.produce(topic, [delayed(b"order", b"c", cancel="key")])
        values = [b"%d" % (number * 3 + at) for at in range(3)]
        reference.produce(topic, [delayed(value) for value in values])
    reference.produce(topic, [delayed(b"far", delay="30d")] * 10)
    found = reference.consume(topic, 0, 0, 30)
    return [one.offset for one in found]
