"""Agents controlled by ZooKeeper: changed together, safe from mistakes, working without it."""

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from qbus.agent.control import config_path, configured_agent, status_path
from qbus.cli.root import qbus
from qbus.metadata import Create, MetadataStore, Node, Set
from qbus.metadata.zookeeper import ZooKeeperAddress
from qbus.metadata.zookeeper.store import ZooKeeperStore
from qbus.service.control import CentralControl, LastGood
from qbus.service.control.central import store_opener
from tests.integration.metadata.sessions import expire
from tests.support.agent_command import AgentCommand
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import eventually, wait_until
from tests.support.zookeeper_process import ZooKeeperProcess

from .arrivals import Arrivals

pytestmark = pytest.mark.integration


class Cluster:
    """The nodes of agents below a chroot of the test's own, and their logs."""

    def __init__(self, server: ZooKeeperProcess, broker: BrokerProcess, directory: Path) -> None:
        self.address = f"{server.bootstrap}/{uuid4()}"
        self.directory = directory
        self._bootstrap = broker.bootstrap

    def text(self, topic: str, name: str) -> str:
        """A configuration that ships the file of that name in the directory of each agent."""
        return (
            f'bootstrap = "{self._bootstrap}"\ntopic = "{topic}"\n[[source]]\n'
            f'from_beginning = true\npaths = ["{self.directory}/*/{name}"]\nkey = "{{env.AGENT}}"\n'
        )

    def agent(self, name: str) -> AgentCommand:
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        arguments = ("--zookeeper", self.address, "--name", name, "--group", "web")
        return AgentCommand(directory / "data", *arguments, env={"AGENT": name})

    def put(self, name: str, text: str) -> None:
        """Set a configuration as an operator with other tools would: unchecked."""

        async def write(store: MetadataStore) -> None:
            path = config_path(name)
            there = await store.get(path)
            operation = Set(path, text.encode()) if there else Create(path, text.encode())
            await store.transaction([operation])

        self.run(write)

    def status(self, name: str) -> dict[str, Any]:
        """The status of an agent in ZooKeeper; empty when the agent is not connected."""

        async def read(store: MetadataStore) -> Node | None:
            return await store.get(status_path(name))

        node = self.run(read)
        return json.loads(node.data) if node else {}

    def run(self, work: Any) -> Any:
        async def within() -> Any:
            async with ZooKeeperStore(ZooKeeperAddress.parse(self.address)) as store:
                return await work(store)

        return asyncio.run(within())


@pytest.fixture
def cluster(server: ZooKeeperProcess, broker: BrokerProcess, tmp_path: Path) -> Cluster:
    return Cluster(server, broker, tmp_path)


def configuration(agent: AgentCommand) -> dict[str, Any]:
    found: dict[str, Any] = agent.status().get("configuration", {})
    return found


def test_a_change_reaches_all_agents_and_a_bad_one_changes_nothing(
    cluster: Cluster, broker: BrokerProcess, topic: str
) -> None:
    cluster.put("web", cluster.text(topic, "a.log"))
    names = ("one", "two", "three")
    agents = [cluster.agent(name) for name in names]
    for name in names:
        for file in ("a.log", "b.log"):
            (cluster.directory / name / file).write_text(f"{name} {file}\n")
    try:
        for agent in agents:
            agent.start(wait=False)
        for agent in agents:
            agent.wait_ready()
        with Arrivals(broker.bootstrap, topic) as arrived:
            arrived.have(f"{name} a.log".encode() for name in names)

            cluster.put("web", cluster.text(topic, "b.log"))
            arrived.have(f"{name} b.log".encode() for name in names)

            cluster.put("web", cluster.text(topic, "b.log") + "gizp = true\n")
            for name in names:
                refused = wait_until(lambda name=name: refusal(cluster, name), "it is refused")  # type: ignore[misc]
                assert refused == "source[1].gizp: no such field; did you mean gzip?"
                in_force = cluster.status(name)["configuration"]
                assert (in_force["in_force"], in_force["version"]) == ("/agents/web/config", 1)
            with (cluster.directory / "one" / "b.log").open("a") as log:
                log.write("still shipped\n")
            arrived.have([b"still shipped"])

            cluster.put("two", cluster.text(topic, "own.log"))
            (cluster.directory / "two" / "own.log").write_text("of my own\n")
            arrived.have([b"of my own"])
    finally:
        for agent in agents:
            if agent.alive:
                agent.stop()
    assert all(cluster.status(name) == {} for name in names)


def refusal(cluster: Cluster, name: str) -> str | None:
    reason: str | None = cluster.status(name).get("configuration", {}).get("reason")
    return reason


def test_operators_set_show_and_remove_configurations(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "web.toml"
    path.write_text('topic = "t"\n[[source]]\npaths = ["/a.log"]  # ours\n')

    def qbus_agent(*arguments: str) -> Result:
        return CliRunner().invoke(
            qbus, ["agent", *arguments, "--zookeeper", cluster.address], catch_exceptions=False
        )

    assert "web has no configuration" in qbus_agent("config", "get", "web").stderr
    assert qbus_agent("config", "set", "web", str(path)).exit_code == 0
    assert qbus_agent("config", "get", "web").stdout == path.read_text()
    assert qbus_agent("config", "set", "web", str(path), "--if-version", "0").exit_code == 0
    conflict = qbus_agent("config", "set", "web", str(path), "--if-version", "0")
    assert conflict.exit_code == 1
    assert "changed by somebody else" in conflict.stderr
    good = path.read_text()
    path.write_text(good + "gizp = true\n")
    refused = qbus_agent("config", "set", "web", str(path))
    assert refused.exit_code == 1
    assert "source[1].gizp: no such field; did you mean gzip?" in refused.stderr
    assert qbus_agent("config", "get", "web").stdout == good
    assert json.loads(qbus_agent("config", "get", "web", "--json").stdout)["version"] == 1
    assert "No agent is connected" in qbus_agent("status").stderr
    assert "no agent x is connected" in qbus_agent("status", "x").stderr
    assert qbus_agent("config", "delete", "web").exit_code == 0
    assert qbus_agent("config", "delete", "web").exit_code == 1


def test_an_agent_starts_and_ships_without_zookeeper_and_is_back_when_that_is(
    cluster: Cluster, server: ZooKeeperProcess, broker: BrokerProcess, topic: str
) -> None:
    cluster.put("web", cluster.text(topic, "a.log"))
    agent = cluster.agent("alone")
    log = cluster.directory / "alone" / "a.log"
    log.write_text("first\n")
    with Arrivals(broker.bootstrap, topic) as arrived:
        with agent:
            arrived.have([b"first"])
            server.kill()
            with log.open("a") as file:
                file.write("without it\n")
            arrived.have([b"without it"])
        with agent:  # a new start, with nothing but what it kept
            with log.open("a") as file:
                file.write("started without it\n")
            arrived.have([b"started without it"])
            wait_until(
                lambda: (configuration(agent)["in_force"] or "").endswith("config.toml"), "the copy"
            )
            server.start()
            wait_until(lambda: cluster.status("alone").get("name") == "alone", "it is back")
            wait_until(
                lambda: configuration(agent)["in_force"] == "/agents/web/config", "it follows"
            )
        arrived.rest()
    assert arrived.values == [b"first", b"without it", b"started without it"]


async def test_a_session_that_ends_is_followed_by_one_with_status_and_changes(
    server: ZooKeeperProcess, tmp_path: Path
) -> None:
    address = ZooKeeperAddress.parse(f"{server.bootstrap}/{uuid4()}")
    texts: list[str] = []
    stores: list[MetadataStore] = []

    async def apply(config: Any) -> None:
        texts.append(config.topic)

    def open_store() -> MetadataStore:
        stores.append(store_opener(address, 4.0)())
        return stores[-1]

    def text(topic: str) -> bytes:
        return f'bootstrap = "h:9"\ntopic = "{topic}"\n[[source]]\npaths = ["/x"]\n'.encode()

    configured = configured_agent(apply)
    control = CentralControl(
        open_store,
        [config_path("a")],
        configured,
        status_path("a"),
        lambda: {"instance": "i", "updated_ms": 0, "configuration": configured.document()},
        last_good=LastGood(tmp_path),
    )
    async with ZooKeeperStore(address) as other:
        await other.transaction([Create(config_path("a"), text("first"))])
        running = asyncio.create_task(control.run())
        try:
            await eventually(lambda: texts == ["first"], 30)
            lost = stores[-1]
            assert isinstance(lost, ZooKeeperStore)
            await expire(lost)
            await eventually(lambda: len(stores) > 1 and control.is_connected, 30)
            await other.transaction([Set(config_path("a"), text("second"))])
            await eventually(lambda: texts == ["first", "second"], 30)
            published = None
            async with asyncio.timeout(30):
                while published is None:
                    published = await other.get(status_path("a"))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert await other.get(status_path("a")) is None
