"""A data directory and a ZooKeeper tree that version 0.1.0 wrote are served as they are.

``older/embedded.tar.gz`` was closed cleanly. ``older/cluster.tar.gz`` was killed: it holds the data
directory, and in ``tree.json`` the persistent nodes of the ZooKeeper beside it. Both hold the topic
``orders`` (three partitions of small segments, one batch in each codec, the second partition's
first 100 records deleted), the topic ``compact-me``, and the group ``readers`` at the end of
``orders``.
"""

import json
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from itertools import count
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from qbus import Admin, ConfigKind, Consumer, Producer
from tests.support.broker_process import BrokerProcess
from tests.support.zookeeper_process import ZooKeeperProcess

pytestmark = pytest.mark.integration

OLDER = Path(__file__).parent / "older"
RECORDS = 950
DIGEST = "6ef1cff31c432332fe6777fa700031813ad0c9a1b37ea0d6d552bd3331b06840"
COMMITTED = {("orders", 0): 335, ("orders", 1): 335, ("orders", 2): 330}

_chroots = count()


def unpack(name: str, directory: Path) -> Path:
    with tarfile.open(OLDER / f"{name}.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    return directory / "data"


def restore(zookeeper: ZooKeeperProcess, tree: Path) -> str:
    """Write the nodes of ``tree`` below a chroot of their own, and return its address."""
    chroot = f"/older-{next(_chroots)}"
    client = KazooClient(zookeeper.bootstrap)
    client.start()
    try:
        for path, data in json.loads(tree.read_text()).items():
            client.create(path.replace("/bus", chroot, 1), data.encode(), makepath=True)
    finally:
        client.stop()
        client.close()
    return zookeeper.bootstrap + chroot


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(unpack("embedded", tmp_path)) as broker:
        yield broker


@pytest.fixture
def in_zookeeper(tmp_path: Path, zookeeper: ZooKeeperProcess) -> Iterator[BrokerProcess]:
    data = unpack("cluster", tmp_path)
    address = restore(zookeeper, tmp_path / "tree.json")
    with BrokerProcess(data, "--zookeeper", address, "--node-id", "1") as broker:
        yield broker


@pytest.fixture(params=["embedded", "in_zookeeper"])
def broker(request: pytest.FixtureRequest) -> BrokerProcess:
    """A broker over each of the older data directories."""
    older: BrokerProcess = request.getfixturevalue(request.param)
    return older


def read_all(bootstrap: str) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    with Consumer(bootstrap) as consumer:
        consumer.assign(
            [("orders", 0, 0), ("orders", 1, 100), ("orders", 2, 0), ("compact-me", 0, 0)]
        )
        while len(rows) < RECORDS:
            for partition in consumer.poll(timeout=10.0):
                for record in partition.records:
                    headers = [(key, (value or b"").decode()) for key, value in record.headers]
                    key, value = (record.key or b"").decode(), (record.value or b"").decode()
                    place = (record.topic, record.partition, record.offset, record.timestamp)
                    rows.append((*place, key, value, headers))
    return sorted(rows)


def test_every_record_is_read_as_it_was_written(broker: BrokerProcess) -> None:
    rows = read_all(broker.bootstrap)
    assert len(rows) == RECORDS
    assert sha256(json.dumps(rows).encode()).hexdigest() == DIGEST


def test_topics_settings_and_committed_offsets_are_known(broker: BrokerProcess) -> None:
    with Admin(broker.bootstrap) as admin:
        assert {topic.name for topic in admin.list_topics()} == {"orders", "compact-me"}
        entries = admin.describe_config(ConfigKind.TOPIC, "orders")
        settings = {entry.name: entry.value for entry in entries}
        offsets = admin.group_offsets("readers")
    assert settings["segment.bytes"] == "6000"
    assert {(it.topic, it.partition): it.committed_offset for it in offsets} == COMMITTED


def test_a_group_reads_on_where_it_was(broker: BrokerProcess) -> None:
    with Producer(broker.bootstrap) as producer:
        for partition in range(3):
            producer.send("orders", b"new", partition=partition)
    found: dict[tuple[str, int], tuple[int, bytes | None]] = {}
    with Consumer(broker.bootstrap, group="readers", offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        while len(found) < 3:
            for polled in consumer.poll(timeout=10.0):
                for record in polled.records:
                    found[record.topic, record.partition] = (record.offset, record.value)
    assert found == {place: (offset, b"new") for place, offset in COMMITTED.items()}
