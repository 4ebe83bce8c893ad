"""What the broker counts, as Prometheus reads it."""

from collections.abc import Callable
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from qbus.broker.controller import leaderless_partitions
from qbus.broker.internal_logs import InternalLog
from qbus.broker.metrics import OTHERS, BoundedNames, Metrics
from qbus.broker.share import ShareCoordinator
from qbus.metadata.store import Timings
from qbus.wire import ApiKey


def exposition(metrics: Metrics) -> str:
    registry = CollectorRegistry()
    registry.register(metrics)
    return generate_latest(registry).decode()


def test_gauges_and_counters_are_read_when_asked() -> None:
    metrics, value = Metrics(lambda key: ApiKey(key).name), 1
    metrics.gauge("things", "How many", lambda: value)
    metrics.counter("events", "How many so far", lambda: 2 * value)
    value = 21
    text = exposition(metrics)
    assert "qbus_things 21.0" in text
    assert "qbus_events_total 42.0" in text


def test_requests_are_counted_by_api_and_time() -> None:
    metrics = Metrics(lambda key: ApiKey(key).name)
    now = perf_counter()
    assert metrics.requests.observe(ApiKey.FETCH, now) >= now
    metrics.requests.observe(ApiKey.FETCH, now - 3)
    text = exposition(metrics)
    assert 'qbus_request_seconds_bucket{api="FETCH",le="1"} 1.0' in text
    assert 'qbus_request_seconds_bucket{api="FETCH",le="5"} 2.0' in text
    assert 'qbus_request_seconds_bucket{api="FETCH",le="+Inf"} 2.0' in text
    assert 'qbus_request_seconds_count{api="FETCH"} 2.0' in text


def test_requests_to_a_store_are_counted_by_time() -> None:
    metrics, timings = Metrics(lambda key: ApiKey(key).name), Timings()
    metrics.timing("store_seconds", "How long", timings)
    for seconds in (0.002, 0.3, 77.0):
        timings.observe(seconds)
    text = exposition(metrics)
    assert 'qbus_store_seconds_bucket{le="0.001"} 0.0' in text
    assert 'qbus_store_seconds_bucket{le="0.0025"} 1.0' in text
    assert 'qbus_store_seconds_bucket{le="10"} 2.0' in text
    assert 'qbus_store_seconds_bucket{le="+Inf"} 3.0' in text
    assert "qbus_store_seconds_sum 77.302" in text


def test_an_api_that_was_not_used_is_not_shown() -> None:
    assert "PRODUCE" not in exposition(Metrics())


def test_values_by_label() -> None:
    metrics = Metrics()
    metrics.counters_by(["topic"], "things", "How many", lambda: [(("a",), 1), (("b",), 2)])
    metrics.gauges_by(["x", "y"], "now", "How many", lambda: [(("1", "2"), 3)])
    text = exposition(metrics)
    assert 'qbus_things_total{topic="a"} 1.0' in text
    assert 'qbus_things_total{topic="b"} 2.0' in text
    assert 'qbus_now{x="1",y="2"} 3.0' in text


def test_names_beyond_the_bound_share_a_label_until_others_go() -> None:
    names = BoundedNames(2)
    assert [names.label(name) for name in "abcab"] == ["a", "b", OTHERS, "a", "b"]
    names.keep({"b", "c"})
    assert [names.label(name) for name in "cba"] == ["c", "b", OTHERS]


class Changing:
    """A part of the broker beside which another one appears whenever it is read."""

    def __init__(self, beside: dict[object, Any]) -> None:
        self._beside = beside
        beside[self] = self

    def _read(self) -> list[Any]:
        Changing(self._beside)
        return []

    partitions = members = state = is_ready = property(lambda self: tuple(self._read()))


_members: Any = ShareCoordinator.members
_loading: Any = InternalLog.loading


@pytest.mark.parametrize(
    "count",
    [
        lambda parts: leaderless_partitions(SimpleNamespace(topics=parts, brokers={})),  # type: ignore[arg-type]
        lambda parts: ShareCoordinator.states(SimpleNamespace(_groups=parts)),  # type: ignore[arg-type]
        lambda parts: _members.fget(SimpleNamespace(_groups=parts)),
        lambda parts: list(InternalLog.shards(SimpleNamespace(_shards=parts))),  # type: ignore[arg-type]
        lambda parts: _loading.fget(SimpleNamespace(_shards=parts)),
    ],
    ids=["partitions", "share groups", "their members", "shards", "shards that are loaded"],
)
def test_parts_that_change_while_a_thread_counts_them(
    count: Callable[[dict[object, Any]], object],
) -> None:
    parts: dict[object, Any] = {}
    Changing(parts)
    count(parts)
    assert len(parts) == 2
