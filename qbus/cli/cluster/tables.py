"""Tables of the nodes of a cluster."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from qbus.cli import failing_directories
from qbus.cli.output import table
from qbus.cli.topic.replicas import damage_sentence
from qbus.cli.units import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from qbus.local_cluster import ClusterSettings

_SHOWN = 20


def cluster_status(status: dict[str, Any]) -> "RenderableType":
    """Tables of brokers, ZooKeeper servers and Spark, and the unhealthy partitions."""
    from rich.console import Group

    parts: list[RenderableType] = [_brokers(status)]
    if status["zookeepers"] is not None:
        parts += ["", _zookeepers(status["zookeepers"])]
    if status["spark"] is not None:
        parts += ["", _spark(status["spark"]), *_applications(status["spark"])]
    return Group(*parts, "", *_partitions(status))


def local_nodes(settings: "ClusterSettings", pids: Mapping[str, int | None]) -> "RenderableType":
    """The processes of a cluster on this machine."""
    ports = settings.ports_by_name()
    rows = [(name, _state(pid is not None), pid, ports[name]) for name, pid in pids.items()]
    return table("node", "state", "#process", "#port", rows=rows)


def _brokers(status: dict[str, Any]) -> "RenderableType":
    rows = [
        (
            broker["id"],
            _state(broker["up"]),
            _address(broker),
            broker["pid"],
            "controller" if broker["id"] == status["controller"] else "",
            broker["leaders"],
            broker["replicas"],
        )
        for broker in status["brokers"]
    ]
    columns = ("#broker", "state", "address", "#process", "role", "#leads", "#replicas")
    return table(*columns, rows=rows)


def _zookeepers(zookeepers: list[dict[str, Any]]) -> "RenderableType":
    rows = [
        (_address(server), server["mode"] or "down", server.get("pid")) for server in zookeepers
    ]
    return table("ZooKeeper", "mode", "#process", rows=rows)


def _spark(spark: dict[str, Any]) -> "RenderableType":
    rows = [
        (node["kind"], _state(node["up"]), _address(node))
        + (node["pid"], node["cores"], node["cores_used"])
        for node in [spark["master"], *spark["workers"]]
    ]
    return table("Spark", "state", "address", "#process", "#cores", "#in use", rows=rows)


def _applications(spark: dict[str, Any]) -> list[str]:
    return [f"{app['name']}: {counted(app['cores'], 'core')}" for app in spark["applications"]]


def _partitions(status: dict[str, Any]) -> list[str]:
    if status["partitions"] is None:
        return ["No broker answers: the state of partitions is unknown."]
    lines = [counted(status["partitions"], "partition")]
    for key, meaning in (("under_replicated", "under-replicated"), ("offline", "without a leader")):
        found = [f"{place['topic']}-{place['partition']}" for place in status[key]]
        more = f" and {len(found) - _SHOWN} more" * (len(found) > _SHOWN)
        names = f": {', '.join(found[:_SHOWN])}{more}" if found else ""
        lines.append(f"{len(found)} {meaning}{names}")
    damaged = status["damaged"]
    lines += [damage_sentence(entry) for entry in damaged[:_SHOWN]]
    if len(damaged) > _SHOWN:
        lines.append(f"and {len(damaged) - _SHOWN} more damaged places")
    return lines + [failing_directories.line(found) for found in status["failing_directories"]]


def _address(node: dict[str, Any]) -> str | None:
    return None if node["host"] is None else f"{node['host']}:{node['port']}"


def _state(is_up: bool) -> str:
    return "up" if is_up else "down"
