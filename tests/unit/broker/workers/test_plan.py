"""What each worker is given."""

from pathlib import Path

import pytest

from qbus.broker.workers import plan
from qbus.broker.workers.plan import left_behind, machine_of, worker_configs, worker_count
from qbus.config import Address, BrokerConfig
from qbus.errors import ConfigError


def config(directory: Path, **settings: object) -> BrokerConfig:
    stated = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig({"log.dirs": [str(directory)], "listeners": "127.0.0.1:9092", **stated})


@pytest.mark.parametrize(("text", "count"), [("1", 1), ("4", 4), ("256", 256)])
def test_a_number_of_workers(text: str, count: int) -> None:
    assert worker_count(text) == count


def test_one_worker_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 2, 5})
    assert worker_count("auto") == 3


@pytest.mark.parametrize("text", ["", "0", "-1", "257", "1.5", "many", "٣", " 2", "1e1"])
def test_what_is_no_number_of_workers(text: str) -> None:
    with pytest.raises(ValueError, match="from 1 to 256, or auto"):
        worker_count(text)


def test_the_first_worker_is_the_broker_that_would_run_alone(tmp_path: Path) -> None:
    alone = config(tmp_path, node_id=7, num_partitions=5)
    first = worker_configs(alone, 3)[0]
    assert (first.node_id, first.listen_address) == (7, Address("127.0.0.1", 9092))
    assert first.log_dirs == alone.log_dirs
    assert first.num_partitions == 5


def test_the_others_follow_with_directories_of_their_own(tmp_path: Path) -> None:
    disks = [str(tmp_path / "one"), str(tmp_path / "two")]
    alone = config(tmp_path, node_id=7, log_dirs=disks, advertised_listeners="bus:19092")
    _, second, third = worker_configs(alone, 3)
    assert (second.node_id, third.node_id) == (8, 9)
    assert (second.listen_address.port, third.listen_address.port) == (9093, 9094)
    assert second.advertised_address == Address("bus", 19093)
    assert list(third.log_dirs) == [f"{disk}/workers/3" for disk in disks]


def test_an_ipv6_address(tmp_path: Path) -> None:
    second = worker_configs(config(tmp_path, listeners="[::1]:9092"), 2)[1]
    assert second.listen_address == Address("::1", 9093)


def test_jobs_are_served_by_each_at_a_port_of_its_own(tmp_path: Path) -> None:
    alone = config(
        tmp_path,
        listeners="127.0.0.1:9092,DISQUE://127.0.0.1:7711",
        advertised_listeners="bus:19092,DISQUE://bus:17711",
    )
    first, second = worker_configs(alone, 2)
    assert first.disque_address == Address("127.0.0.1", 7711)
    assert second.disque_address == Address("127.0.0.1", 7712)
    assert second.listen_address == Address("127.0.0.1", 9093)
    assert second.advertised_address == Address("bus", 19093)
    assert second.advertised_disque_address == Address("bus", 17712)


def test_each_listener_follows(tmp_path: Path) -> None:
    alone = config(
        tmp_path,
        listeners="127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9192,DISQUE://127.0.0.1:7711",
        advertised_listeners="SASL_PLAINTEXT://bus:19192",
    )
    _, second, third = worker_configs(alone, 3)
    assert [str(one) for one in second.kafka_listeners] == [
        "PLAINTEXT://127.0.0.1:9093",
        "SASL_PLAINTEXT://127.0.0.1:9193",
    ]
    assert third.advertised_addresses == {"SASL_PLAINTEXT": Address("bus", 19194)}
    assert third.disque_address == Address("127.0.0.1", 7713)


def test_listeners_whose_workers_would_meet_are_refused(tmp_path: Path) -> None:
    alone = config(tmp_path, listeners="127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9093")
    with pytest.raises(ConfigError, match="ports 2 apart"):
        worker_configs(alone, 2)


def test_any_free_port_for_jobs_is_one_that_stays(tmp_path: Path) -> None:
    configs = worker_configs(config(tmp_path, disque_listen="127.0.0.1:0"), 2)
    ports = {one.disque_address.port for one in configs if one.disque_address}
    assert len(ports) == 2
    assert 0 not in ports


def test_any_free_port_is_one_that_stays(tmp_path: Path) -> None:
    ports = [
        one.listen_address.port
        for one in worker_configs(config(tmp_path, listeners="127.0.0.1:0"), 3)
    ]
    assert 0 not in ports
    assert len(set(ports)) == 3


@pytest.mark.parametrize("name", ["listeners", "advertised_listeners"])
def test_ports_that_are_none_are_refused(tmp_path: Path, name: str) -> None:
    alone = config(tmp_path, **{name: "127.0.0.1:65535"})
    with pytest.raises(ConfigError, match="65536"):
        worker_configs(alone, 2)


def test_metrics_are_not_served_by_each(tmp_path: Path) -> None:
    alone = config(tmp_path, metrics_listen="127.0.0.1:9999")
    assert [one.metrics_address for one in worker_configs(alone, 2)] == [None, None]


def test_each_writes_an_audit_log_of_its_own(tmp_path: Path) -> None:
    alone = config(tmp_path, qbus_audit_log_path="/var/log/audit.log")
    paths = [one.qbus_audit_log_path for one in worker_configs(alone, 2)]
    assert paths == ["/var/log/audit.log", "/var/log/audit.log.worker-2"]


def test_a_machine_is_known_again_and_no_other_is_taken_for_it(tmp_path: Path) -> None:
    machines = [machine_of(config(tmp_path / name)) for name in ("one", "one", "two")]
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o700
    assert machines[0] == machines[1] != machines[2]


def test_machines_whose_boots_are_not_told_apart_are_never_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "current_boot", lambda: "")
    assert machine_of(config(tmp_path)) != machine_of(config(tmp_path))


def test_partitions_of_workers_that_are_not_started_are_found(tmp_path: Path) -> None:
    disks = [tmp_path / "one", tmp_path / "two"]
    alone = config(tmp_path, log_dirs=[str(disk) for disk in disks])
    assert list(left_behind(alone, 1)) == []
    for place in ("one/workers/2/orders-0", "two/workers/2/orders-1", "one/workers/4/orders-2"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "one/workers/3").mkdir()
    (tmp_path / "one/workers/2/some-file").touch()
    (tmp_path / "one/workers/notes/orders-0").mkdir(parents=True)
    assert list(left_behind(alone, 1)) == [(2, 2), (4, 1)]
    assert list(left_behind(alone, 3)) == [(4, 1)]
    assert list(left_behind(alone, 4)) == []
