"""Central control: followed live, kept for a start without it, and back after a lost session."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from qbus.agent.control import config_path, configured_agent, status_path
from qbus.metadata import Create, Delete
from qbus.service.control import CentralControl, LastGood
from qbus.service.control import central as module
from tests.support.waiting import eventually

from .stores import BAD, GOOD, OTHER, Applied, Stores

GROUP, OWN = config_path("web"), config_path("a b")


class Agent:
    """The control of one agent, over a store of the test's own."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.stores = Stores(directory)
        self.applied = Applied()
        self.configured = configured_agent(self.applied)
        self.last_good = LastGood(directory)
        self.control = CentralControl(
            self.stores.open,
            [OWN, GROUP],
            self.configured,
            status_path("a b"),
            self.status,
            last_good=self.last_good,
        )
        self.instance = "this one"

    def status(self) -> dict[str, Any]:
        configuration = self.configured.document()
        return {"instance": self.instance, "updated_ms": 1, "configuration": configuration}

    async def published(self) -> dict[str, Any] | None:
        node = await self.stores.session.get(status_path("a b"))
        return None if node is None else json.loads(node.data)

    async def publishes(self, **about: Any) -> None:
        async with asyncio.timeout(10):
            while True:
                with suppress(Exception):
                    found = await self.published()
                    if found and about.items() <= found["configuration"].items():
                        return
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.control.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.01)
    monkeypatch.setattr("qbus.service.control.publisher._INTERVAL_S", 0.01)


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path / "agent")


async def test_the_groups_configuration_is_applied_kept_and_told_of(agent: Agent) -> None:
    await agent.stores.prepare(GROUP, GOOD)
    async with agent.running():
        await agent.control.start(10)
        assert agent.applied.paths == ["/a.log"]
        assert agent.last_good.load() == GOOD
        await agent.publishes(in_force="/agents/web/config", version=0)


async def test_the_agents_own_goes_before_its_groups_and_away_again(agent: Agent) -> None:
    await agent.stores.prepare(GROUP, GOOD)
    async with agent.running():
        await eventually(lambda: agent.applied.paths == ["/a.log"])
        await agent.stores.put(OWN, OTHER)
        await eventually(lambda: agent.applied.paths == ["/a.log", "/b.log"])
        await agent.stores.session.transaction([Delete(OWN)])
        await eventually(lambda: agent.applied.paths == ["/a.log", "/b.log", "/a.log"])


async def test_every_change_is_followed(agent: Agent) -> None:
    await agent.stores.prepare(GROUP, GOOD)
    async with agent.running():
        await eventually(lambda: bool(agent.applied.paths))
        for number in range(5):
            await agent.stores.put(GROUP, GOOD.replace(b"/a", b"/%d" % number))
            await eventually(lambda number=number: agent.applied.paths[-1] == f"/{number}.log")  # type: ignore[misc]


async def test_a_bad_one_is_refused_with_its_reason_in_the_status(agent: Agent) -> None:
    await agent.stores.prepare(GROUP, GOOD)
    async with agent.running():
        await eventually(lambda: bool(agent.applied.paths))
        await agent.stores.put(GROUP, BAD)
        await agent.publishes(
            in_force="/agents/web/config",
            version=0,
            refused_version=1,
            reason="source[1].pahts: no such field; did you mean paths?",
        )
        assert agent.applied.paths == ["/a.log"]
        assert agent.last_good.load() == GOOD


async def test_without_a_store_the_last_good_one_is_taken_and_the_stores_once_it_is_back(
    agent: Agent,
) -> None:
    await agent.stores.prepare(GROUP, OTHER)
    agent.last_good.save(GOOD)
    agent.stores.is_away = True
    async with agent.running():
        await agent.control.start(0.05)
        assert agent.applied.paths == ["/a.log"]
        agent.stores.is_away = False
        await eventually(lambda: agent.applied.paths == ["/a.log", "/b.log"])


async def test_a_bad_one_at_the_start_gives_way_to_the_last_good_one_but_is_told_of(
    agent: Agent,
) -> None:
    await agent.stores.prepare(GROUP, BAD)
    agent.last_good.save(GOOD)
    async with agent.running():
        await agent.control.start(10)
        assert agent.applied.paths == ["/a.log"]
        await agent.publishes(in_force=str(agent.last_good.path), refused="/agents/web/config")


async def test_nothing_at_all_is_waited_for(agent: Agent) -> None:
    async with agent.running():
        await agent.control.start(10)
        await agent.publishes(in_force=None)
        assert "no configuration" in str(agent.configured.reason)
        await agent.stores.put(OWN, GOOD)
        await agent.publishes(in_force="/agents/a%20b/config", reason=None)


async def test_a_lost_session_is_followed_by_another_with_status_and_changes(agent: Agent) -> None:
    await agent.stores.prepare(GROUP, GOOD)
    async with agent.running():
        await agent.publishes(version=0)
        await agent.stores.session.close()
        await eventually(lambda: agent.stores.count == 2)
        await agent.publishes(version=0)
        await agent.stores.put(GROUP, OTHER)
        await eventually(lambda: agent.applied.paths == ["/a.log", "/b.log"])


async def test_a_status_that_somebody_deletes_comes_back(agent: Agent) -> None:
    async with agent.running():
        await agent.publishes()
        await agent.stores.session.transaction([Delete(status_path("a b"))])
        agent.configured.missing("something new to tell")
        await agent.publishes(reason="something new to tell")


async def test_a_node_of_its_own_old_session_is_replaced(agent: Agent) -> None:
    left = json.dumps({"instance": "this one", "updated_ms": 0}).encode()
    await agent.stores.prepare(status_path("a b"), left)
    async with agent.running():
        await agent.publishes(in_force=None)


async def test_a_namesakes_node_is_left_alone(agent: Agent) -> None:
    theirs = json.dumps({"instance": "another", "configuration": {}}).encode()
    await agent.stores.prepare(status_path("a b"), theirs)
    await agent.stores.prepare(GROUP, GOOD)
    async with agent.running():
        await eventually(lambda: bool(agent.applied.paths))
        found = await agent.published()
        assert found is not None
        assert found["instance"] == "another"
        await agent.stores.session.transaction([Delete(status_path("a b"))])
        await agent.publishes(version=0)


async def test_the_status_is_gone_with_the_agent(agent: Agent) -> None:
    async with agent.running():
        await agent.publishes()
    async with agent.stores.open() as store:
        assert await store.get(status_path("a b")) is None


async def test_an_empty_node_is_no_configuration(agent: Agent) -> None:
    await agent.stores.prepare(OWN, b"")
    async with agent.running():
        await eventually(lambda: bool(agent.stores.count))
        await agent.control.start(10)
        await agent.stores.session.transaction([Create(GROUP, GOOD)])
        await eventually(lambda: agent.applied.paths == ["/a.log"])
