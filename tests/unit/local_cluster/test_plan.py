"""What a cluster is to be, by what is asked for and by what its directory holds."""

import json
import socket
from pathlib import Path

import pytest

from qbus.local_cluster import (
    BROKER,
    SPARK_MASTER,
    SPARK_WORKER,
    ZOOKEEPER,
    ClusterSettings,
    Layout,
    LocalClusterError,
)
from qbus.local_cluster.plan import plan
from tests.support.ports import free_port, free_ports

_STRANGE_SPARK = {
    "nodes": 1,
    "base_port": 9092,
    "zookeeper_ports": [2181],
    "options": [],
    "spark": {"master_port": 7077, "page_port": 8080, "worker_ports": "any"},
}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def kept(layout: Layout, **changes: object) -> ClusterSettings:
    settings = ClusterSettings(3, free_ports(4)[0], (free_port(),), ("num.partitions=3",))
    settings.write(layout.settings)
    return settings


def test_a_new_directory_holds_three_brokers_and_a_zookeeper(layout: Layout) -> None:
    port = free_ports(3)[0]
    settings = plan(layout, base_port=port)
    assert list(settings.numbers(BROKER)) == [1, 2, 3]
    assert list(settings.numbers(ZOOKEEPER)) == [1]
    assert not settings.numbers(SPARK_MASTER)
    assert settings.bootstrap == f"127.0.0.1:{port},127.0.0.1:{port + 1},127.0.0.1:{port + 2}"


def test_a_cluster_stays_what_it_was(layout: Layout) -> None:
    before = kept(layout)
    after = plan(layout)
    assert (after.nodes, after.base_port, after.options) == (3, before.base_port, before.options)


def test_zookeeper_keeps_its_port(layout: Layout) -> None:
    before = kept(layout)
    assert plan(layout).zookeeper_ports == before.zookeeper_ports


def test_zookeeper_moves_when_another_has_its_port(layout: Layout) -> None:
    before = kept(layout)
    with socket.create_server(("127.0.0.1", before.zookeeper_ports[0])):
        assert plan(layout).zookeeper_ports != before.zookeeper_ports


def test_zookeeper_never_takes_the_port_of_another_installation(layout: Layout) -> None:
    assert 2181 not in plan(layout, base_port=free_ports(3)[0], zookeepers=3).zookeeper_ports


def test_a_cluster_grows_and_never_shrinks(layout: Layout) -> None:
    kept(layout)
    assert plan(layout, nodes=4).nodes == 4
    with pytest.raises(LocalClusterError, match="cannot shrink"):
        plan(layout, nodes=2)


def test_the_number_of_zookeepers_never_changes(layout: Layout) -> None:
    kept(layout)
    with pytest.raises(LocalClusterError, match="--zookeepers 1"):
        plan(layout, zookeepers=3)


def test_spark_has_ports_of_its_own_and_stays(layout: Layout) -> None:
    settings = plan(layout, base_port=free_ports(3)[0], spark=True)
    assert list(settings.numbers(SPARK_MASTER)) == [1]
    assert list(settings.numbers(SPARK_WORKER)) == [1, 2]
    ports = settings.ports_by_name()
    assert list(ports)[-4:] == ["broker-3", "spark-master-1", "spark-worker-1", "spark-worker-2"]
    assert settings.spark is not None
    assert len({*ports.values(), settings.spark.page_port}) == len(ports) + 1
    settings.write(layout.settings)
    assert ClusterSettings.read(layout.settings) == settings
    assert plan(layout).spark is not None
    assert plan(layout, spark=False).spark is None


def test_a_directory_of_something_else_is_left_alone(layout: Layout) -> None:
    (layout.directory / "thesis.tex").write_text("chapter 1")
    with pytest.raises(LocalClusterError, match=r"thesis\.tex"):
        plan(layout)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"nodes": "many"}', "\x00", json.dumps(_STRANGE_SPARK)]
)
def test_settings_that_make_no_sense_are_named(layout: Layout, text: str) -> None:
    layout.settings.write_text(text)
    with pytest.raises(LocalClusterError, match=r"cluster\.json"):
        plan(layout)


def test_a_port_that_is_taken_is_named(layout: Layout) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LocalClusterError, match=f"port {port} is in use.*--base-port"):
            plan(layout, base_port=port, nodes=1)


def test_there_are_no_ports_beyond_the_last(layout: Layout) -> None:
    with pytest.raises(LocalClusterError, match="65536 is not a port"):
        plan(layout, base_port=65_535, nodes=2)


@pytest.mark.parametrize("name", ["metrics.listen", "disque.listen"])
@pytest.mark.parametrize("scheme", ["", "http://"])
def test_each_broker_listens_at_a_port_of_its_own(layout: Layout, name: str, scheme: str) -> None:
    first = free_ports(3)[0]
    options = (f"{name}={scheme}127.0.0.1:{first}", "num.partitions=3")

    settings = plan(layout, base_port=free_ports(3)[0], options=options)

    assert [settings.options_of(number) for number in settings.numbers(BROKER)] == [
        [f"{name}={scheme}127.0.0.1:{port}", "num.partitions=3"] for port in range(first, first + 3)
    ]


def test_any_free_port_is_that_for_each_broker(layout: Layout) -> None:
    options = ("metrics.listen=127.0.0.1:0",)
    settings = plan(layout, base_port=free_ports(3)[0], options=options)
    assert [settings.options_of(number) for number in (1, 3)] == [[*options], [*options]]


def test_ports_of_options_are_checked_before_anything_starts(layout: Layout) -> None:
    base = free_ports(4)[0]
    with pytest.raises(LocalClusterError, match=rf"{base + 2} is taken twice.* -o metrics\.listen"):
        plan(layout, base_port=base, options=(f"metrics.listen=127.0.0.1:{base + 2}",))
    with pytest.raises(LocalClusterError, match=r"65536 is not a port: .* -o metrics\.listen"):
        plan(layout, base_port=base, options=("metrics.listen=127.0.0.1:65535",))
    with socket.create_server(("127.0.0.1", 0)) as server:
        used = server.getsockname()[1]
        with pytest.raises(LocalClusterError, match=r"is in use: .* -o metrics\.listen"):
            plan(layout, base_port=base, options=(f"metrics.listen=127.0.0.1:{used - 1}",))
