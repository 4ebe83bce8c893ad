"""Plans a cluster from the options given and the settings stored in its directory."""

from dataclasses import replace

from qbus.local_cluster.layout import Layout, LocalClusterError
from qbus.local_cluster.ports import (
    SPARK_MASTER_PORT,
    SPARK_PAGE_PORT,
    free_ports,
    is_free,
    need_free,
    usual_ports,
)
from qbus.local_cluster.settings import ClusterSettings, SparkSettings
from qbus.local_cluster.spark import WORKERS

_ZOOKEEPERS_AFTER = 100
"""How far their ports are behind the first broker's, by default."""
DEFAULT_NODES, DEFAULT_ZOOKEEPERS, DEFAULT_BASE_PORT = 3, 1, 9092


def plan(
    layout: Layout,
    *,
    nodes: int | None = None,
    zookeepers: int | None = None,
    base_port: int | None = None,
    options: tuple[str, ...] = (),
    spark: bool | None = None,
    secure: bool = False,
) -> ClusterSettings:
    """Return the settings of the cluster in ``layout``; None means as stored, else the default.

    Raises LocalClusterError if a port is taken or the directory holds something else.
    """
    kept = ClusterSettings.read(layout.settings)
    if kept is None:
        _need_empty(layout)
    else:
        nodes, zookeepers = _grown(kept, nodes, zookeepers, layout)
        base_port = base_port or kept.base_port
        options = options or kept.options
        spark = kept.spark is not None if spark is None else spark
        secure = secure or kept.secure
    nodes, base_port = nodes or DEFAULT_NODES, base_port or DEFAULT_BASE_PORT
    broker_ports = range(base_port, base_port + nodes)
    need_free(broker_ports, "--base-port")
    zookeeper_ports = _zookeeper_ports(kept, zookeepers or DEFAULT_ZOOKEEPERS, broker_ports)
    planned = ClusterSettings(nodes, base_port, zookeeper_ports, options, None, secure)
    taken = {*broker_ports, *zookeeper_ports}
    for name, ports in planned.further_ports().items():
        if clash := sorted(taken.intersection(ports)):
            raise LocalClusterError(f"port {clash[0]} is taken twice: choose another -o {name}")
        need_free(ports, f"-o {name}")
        taken.update(ports)
    return replace(planned, spark=_spark(taken) if spark else None)


def _zookeeper_ports(
    kept: ClusterSettings | None, count: int, broker_ports: range
) -> tuple[int, ...]:
    """The ports of before; at first those after the brokers', never ZooKeeper's usual one."""
    if kept is not None and all(map(is_free, kept.zookeeper_ports)):
        return kept.zookeeper_ports
    return usual_ports(broker_ports.start + _ZOOKEEPERS_AFTER, count, broker_ports)


def _spark(taken: set[int]) -> SparkSettings:
    (master,) = usual_ports(SPARK_MASTER_PORT, 1, taken)
    (page,) = usual_ports(SPARK_PAGE_PORT, 1, taken | {master})
    return SparkSettings(master, page, free_ports(WORKERS, taken | {master, page}))


def _need_empty(layout: Layout) -> None:
    others = sorted(path.name for path in layout.directory.iterdir() if path != layout.lock)
    if others:
        raise LocalClusterError(
            f"{layout.directory} holds something else ({others[0]}): choose another directory"
        )


def _grown(
    kept: ClusterSettings, nodes: int | None, zookeepers: int | None, layout: Layout
) -> tuple[int, int]:
    had = len(kept.zookeeper_ports)
    if zookeepers not in {None, had}:
        # Two new ZooKeepers would outvote the one that knows something.
        raise LocalClusterError(
            f"the cluster in {layout.directory} has --zookeepers {had}, which cannot change"
        )
    if nodes is not None and nodes < kept.nodes:
        raise LocalClusterError(
            f"the cluster in {layout.directory} has {kept.nodes} brokers: it cannot shrink"
        )
    return nodes or kept.nodes, had
