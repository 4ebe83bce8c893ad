"""What Prometheus reads of a mirror."""

from prometheus_client import CollectorRegistry

from qbus.clients.mirror.config import MirrorConfig, parse
from qbus.clients.mirror.metrics import MirrorMetrics
from qbus.clients.mirror.status import (
    GroupsStatus,
    LinkStatus,
    PartitionState,
    PartitionStatus,
    Trouble,
)
from qbus.service.control import Configured

STATUS = LinkStatus(
    name="a->b",
    source="a",
    target="b",
    partitions=(
        PartitionStatus(
            topic="orders",
            target_topic="a.orders",
            partition=2,
            state=PartitionState.COPYING,
            source_start=0,
            source_end=50,
            target_end=20,
            lag_bytes=300,
            lag_seconds=1.5,
            trouble=Trouble.OVERTAKEN,
        ),
        PartitionStatus(
            topic="stock", target_topic="a.stock", partition=0, state=PartitionState.WAITING
        ),
    ),
    records=20,
    bytes=200,
    duplicates=1,
    groups=GroupsStatus(offsets=4, carried_ms=1_500),
    error="away",
)


async def apply(_: MirrorConfig) -> None:
    """Take anything."""


def registered(*links: LinkStatus) -> CollectorRegistry:
    configured = Configured(parse, apply)
    configured.missing("there is none")
    registry = CollectorRegistry()
    registry.register(MirrorMetrics(lambda: links, configured))
    return registry


def test_a_link_is_measured_by_partition_and_in_all() -> None:
    registry = registered(STATUS)
    where = {"link": "a->b", "topic": "orders", "partition": "2"}
    of_partition = {"lag_records": 30, "lag_bytes": 300, "lag_seconds": 1.5}
    for name, value in of_partition.items():
        assert registry.get_sample_value(f"qbus_mirror_{name}", where) == value
    of_link = {
        "records_total": 20,
        "bytes_total": 200,
        "duplicates_total": 1,
        "link_failing": 1,
        "reproducing": 0,
        "group_offsets_total": 4,
        "groups_carried_timestamp_seconds": 1.5,
    }
    for name, value in of_link.items():
        assert registry.get_sample_value(f"qbus_mirror_{name}", {"link": "a->b"}) == value
    of_state = {"copying": 1, "waiting": 1, "stopped": 0, "current": 0}
    for state, value in of_state.items():
        labels = {"link": "a->b", "state": state}
        assert registry.get_sample_value("qbus_mirror_partitions", labels) == value
    labels = {"link": "a->b", "trouble": "overtaken"}
    assert registry.get_sample_value("qbus_mirror_trouble", labels) == 1
    assert registry.get_sample_value("qbus_mirror_configuration_refused") == 1


def test_an_unknown_lag_has_no_series() -> None:
    where = {"link": "a->b", "topic": "stock", "partition": "0"}
    assert registered(STATUS).get_sample_value("qbus_mirror_lag_records", where) is None


def test_a_mirror_without_links_has_metrics() -> None:
    assert registered().get_sample_value("qbus_mirror_configuration_refused") == 1
