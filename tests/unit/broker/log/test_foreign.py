"""A first start over data that belong to another broker."""

from pathlib import Path

import pytest

from qbus.broker.log.foreign import check_unclaimed
from qbus.broker.metadata.store import embedded_store
from qbus.config import BrokerConfig
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
