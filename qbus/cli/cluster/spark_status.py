"""How the Spark of a local cluster is."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from qbus.local_cluster import SPARK_MASTER, SPARK_WORKER
from qbus.local_cluster.settings import HOST
from qbus.local_cluster.spark import workers

if TYPE_CHECKING:
    from qbus.local_cluster.settings import SparkSettings

Document = dict[str, Any]


def spark_status(
    settings: "SparkSettings",
    told: Document | None,
    pid: Callable[[str, int], int | None],
) -> Document:
    """The master, the workers, and what runs on them.

    ``told`` is what the master tells, None while it does not serve; ``pid`` gives the process id of
    a node.
    """
    alive = workers(told)
    return {
        "master": _node(SPARK_MASTER, settings.master_port, is_up=told is not None)
        | {"pid": pid(SPARK_MASTER, 1), "page": settings.page},
        "workers": [
            _node(SPARK_WORKER, port, is_up=port in alive)
            | {"id": number, "pid": pid(SPARK_WORKER, number)}
            | {"cores": alive.get(port, {}).get("cores")}
            | {"cores_used": alive.get(port, {}).get("coresused")}
            for number, port in enumerate(settings.worker_ports, 1)
        ],
        "applications": [
            {"id": one["id"], "name": one["name"], "cores": one["cores"]}
            for one in (told["activeapps"] if told is not None else [])
        ],
    }


def _node(kind: str, port: int, *, is_up: bool) -> Document:
    return {
        "kind": kind.removeprefix("spark-"),
        "host": HOST,
        "port": port,
        "up": is_up,
        "cores": None,
        "cores_used": None,
    }
