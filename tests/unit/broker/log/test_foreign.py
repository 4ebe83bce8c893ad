"""A first start over data that belong to another broker."""

import re
from pathlib import Path

import pytest

from qbus.broker.log.foreign import check_of_cluster, check_unclaimed
from qbus.broker.metadata.store import embedded_store
from qbus.broker.startup import running_broker
from qbus.broker.workers.supervisor import Supervisor
from qbus.clock import SystemClock
from qbus.config import BrokerConfig, ListenerInfo
from qbus.errors import ConfigError

KRAFT = "#\n#Sat Nov 28 2026\nnode.id=1\ndirectory.id=x\nversion=1\ncluster.id=abc\n"
ZOOKEEPER = "version=0\nbroker.id=1\ncluster.id=abc\n"


@pytest.mark.parametrize(
    ("properties", "logs", "owner"),
    [
        (KRAFT, ["__cluster_metadata-0", "t-0"], r"Apache Kafka \(cluster abc\)"),
        (ZOOKEEPER, ["t-0"], r"Apache Kafka \(cluster abc\)"),
        (KRAFT, ["t-0"], "cluster abc"),
        (None, ["__cluster_metadata-0"], r"Apache Kafka \(cluster unknown\)"),
        (None, ["t-0", "a-1"], r"another broker \(a-1\)"),
    ],
)
@pytest.mark.parametrize("place", ["first", "second"])
def test_it_is_refused_before_anything_is_written(
    tmp_path: Path, place: str, properties: str | None, logs: list[str], owner: str
) -> None:
    directories = [tmp_path / "first", tmp_path / "second"]
    for directory in directories:
        directory.mkdir()
    if properties is not None:
        (tmp_path / place / "meta.properties").write_text(properties)
    for log in logs:
        (tmp_path / place / log).mkdir()
    before = sorted(tmp_path.rglob("*"))
    config = BrokerConfig({"log.dirs": list(map(str, directories))})
    with pytest.raises(ConfigError, match=rf"{place} holds data of {owner}.*empty --data-dir"):
        embedded_store(config)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_directory_with_its_metadata_and_an_empty_one_are_accepted(tmp_path: Path) -> None:
    store = tmp_path / "metadata.db"
    check_unclaimed([str(tmp_path), str(tmp_path / "missing")], store)
    (tmp_path / "lost+found").mkdir()
    check_unclaimed([str(tmp_path)], store)
    store.touch()
    (tmp_path / "t-0").mkdir()
    (tmp_path / "meta.properties").write_text(KRAFT)
    check_unclaimed([str(tmp_path)], store)


@pytest.mark.parametrize(
    ("properties", "cluster_id", "said"),
    [
        (KRAFT, None, "holds data of Apache Kafka (cluster abc), and ZooKeeper has no cluster yet"),
        (KRAFT, "x", "holds data of Apache Kafka (cluster abc), and ZooKeeper has cluster x"),
        (ZOOKEEPER, "abc", "holds data of Apache Kafka (cluster abc): nothing was changed"),
    ],
)
def test_data_of_kafka_are_refused_where_the_metadata_are_in_zookeeper(
    tmp_path: Path, properties: str, cluster_id: str | None, said: str
) -> None:
    (tmp_path / "meta.properties").write_text(properties)
    (tmp_path / "__cluster_metadata-0").mkdir()

    with pytest.raises(ConfigError, match=re.escape(said)) as refused:
        check_of_cluster([str(tmp_path)], cluster_id, "ZooKeeper")

    assert "start with an empty --data-dir" in str(refused.value)
    assert "qbus mirror" in str(refused.value)


def test_directories_of_the_cluster_and_new_ones_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(KRAFT)
    (tmp_path / "__cluster_metadata-0").mkdir()  # a topic may have this name
    (tmp_path / "new").mkdir()
    (tmp_path / "restored" / "t-0").mkdir(parents=True)
    names = (".", "new", "restored", "missing")

    check_of_cluster([str(tmp_path / name) for name in names], "abc", "ZooKeeper")


async def test_a_broker_leaves_everything_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "meta.properties").write_text(KRAFT)
    config = BrokerConfig({"log.dirs": [str(tmp_path / "first"), str(tmp_path / "kafka")]})

    with pytest.raises(ConfigError, match="kafka holds data of cluster abc"):
        async with running_broker(config, SystemClock(), []):
            pass

    assert not (tmp_path / "first").exists()
    assert [path.name for path in (tmp_path / "kafka").iterdir()] == ["meta.properties"]


async def test_a_further_directory_of_another_cluster_is_refused_untouched(tmp_path: Path) -> None:
    own, other = str(tmp_path / "own"), tmp_path / "kafka"
    listener = ListenerInfo.plaintext("127.0.0.1", 9092)
    async with running_broker(BrokerConfig({"log.dirs": own}), SystemClock(), [listener]):
        pass
    other.mkdir()
    (other / "meta.properties").write_text(KRAFT)

    with pytest.raises(ConfigError, match=f"the store in {own} has cluster"):
        async with running_broker(
            BrokerConfig({"log.dirs": [own, str(other)]}), SystemClock(), [listener]
        ):
            pass

    assert [path.name for path in other.iterdir()] == ["meta.properties"]


def test_workers_leave_everything_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "kafka" / "t-0").mkdir(parents=True)
    config = BrokerConfig({"log.dirs": [str(tmp_path / "first"), str(tmp_path / "kafka")]})

    with pytest.raises(ConfigError, match="kafka holds data of another broker"):
        Supervisor(config, 2, "human", "info")

    assert not (tmp_path / "first").exists()
