"""How the Spark of a local cluster is shown."""

from qbus.cli.cluster.status import spark_status
from qbus.local_cluster.settings import SparkSettings

SETTINGS = SparkSettings(7077, 8080, (7001, 7002))
TOLD = {
    "workers": [
        {"port": 7001, "state": "ALIVE", "cores": 2, "coresused": 1},
        {"port": 7002, "state": "DEAD", "cores": 2, "coresused": 0},
    ],
    "activeapps": [{"id": "app-1", "name": "stats", "cores": 1, "user": "someone"}],
}


def pid(kind: str, number: int) -> int | None:
    return {"spark-master": 10, "spark-worker": 20}[kind] + number


def test_the_masters_status_is_joined_with_the_processes() -> None:
    status = spark_status(SETTINGS, TOLD, pid)
    assert (status["master"]["up"], status["master"]["pid"]) == (True, 11)
    assert status["master"]["page"] == "http://127.0.0.1:8080"
    shown = [(w["id"], w["up"], w["pid"], w["cores"], w["cores_used"]) for w in status["workers"]]
    assert shown == [(1, True, 21, 2, 1), (2, False, 22, None, None)]
    assert status["applications"] == [{"id": "app-1", "name": "stats", "cores": 1}]


def test_a_master_that_does_not_serve_leaves_all_down() -> None:
    status = spark_status(SETTINGS, None, lambda kind, number: None)
    assert not status["master"]["up"]
    assert not any(worker["up"] for worker in status["workers"])
    assert status["applications"] == []
