"""Clients that know nothing but the ZooKeeper in which brokers are registered."""

from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner

import qbus
from qbus.cli.root import qbus as command
from qbus.clients import Admin
from tests.support.broker_process import BrokerProcess
from tests.support.zookeeper_process import ZooKeeperProcess

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def zookeeper(zookeeper: ZooKeeperProcess) -> str:
    """The address below which brokers register."""
    return f"{zookeeper.bootstrap}/{uuid4()}"


def broker(directory: Path, zookeeper: str) -> BrokerProcess:
    """A broker on a port of its own."""
    return BrokerProcess(directory, "--zookeeper", zookeeper)


async def test_brokers_are_found_and_found_again_elsewhere(tmp_path: Path, zookeeper: str) -> None:
    async with Admin(f"zk://{zookeeper}") as admin:
        with broker(tmp_path, zookeeper) as first:
            await admin.create_topic("t", partitions=2)
            (node,) = (await admin.describe_cluster()).nodes
            assert node.port == first.port
        with broker(tmp_path, zookeeper) as second:
            assert [topic.name for topic in await admin.list_topics()] == ["t"]
            (node,) = (await admin.describe_cluster()).nodes
            assert node.port == second.port != first.port


def test_blocking_clients_and_the_command_find_brokers(tmp_path: Path, zookeeper: str) -> None:
    with broker(tmp_path, zookeeper), qbus.Admin(f"zk://{zookeeper}") as admin:
        admin.create_topic("u")
        listed = CliRunner().invoke(command, ["topic", "list", "--bootstrap", f"zk://{zookeeper}"])
        assert listed.exit_code == 0, listed.stderr
        assert "u" in listed.stdout


def test_nobody_is_registered(zookeeper: str) -> None:
    address = f"zk://{zookeeper}-without-brokers"
    listed = CliRunner().invoke(command, ["topic", "list", "--bootstrap", address])
    assert listed.exit_code == 1
    reason = "no broker is registered there now with a listener for PLAINTEXT"
    assert listed.stderr == f"qbus: {address}: {reason}\n"
