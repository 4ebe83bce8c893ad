"""The life of a daemon: configured, working until a signal or a failure, drained."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import pytest

from qbus.errors import ConfigError
from qbus.metadata import MetadataStore
from qbus.metadata.embedded import EmbeddedStore
from qbus.metadata.zookeeper import ZooKeeperAddress
from qbus.service.control import CentralControl, Configured
from qbus.service.daemon import Daemon, DaemonOptions
from tests.support.waiting import eventually


class Work:
    """Remembers its configurations and its stops."""

    def __init__(self) -> None:
        self.configs: list[str] = []
        self.stops = 0
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def apply(self, config: str) -> None:
        self.configs.append(config)

    async def stop(self) -> None:
        self.stops += 1

    async def run(self) -> None:
        await self.failure


class SilentStore(EmbeddedStore):
    """A store that never answers."""

    is_asked = False

    async def start(self) -> None:
        self.is_asked = True
        await asyncio.Event().wait()


class NoMetrics:
    def collect(self) -> Iterable[Any]:
        return []


def read(text: bytes) -> str:
    if text == b"bad":
        raise ConfigError("it is bad")
    return text.decode()


def daemon(work: Work, options: DaemonOptions, store: EmbeddedStore | None = None) -> Daemon:
    configured = Configured(read, work.apply)

    def central(_: Callable[[], MetadataStore]) -> CentralControl:
        assert store is not None
        return CentralControl(lambda: store, ["/config"], configured, "/status", dict)

    loops: list[Callable[[], Coroutine[Any, Any, None]]] = [work.run]
    return Daemon(
        "tester",
        options,
        work,
        configured,
        metrics=NoMetrics(),
        background=loops,
        central=central,
        patience_s=60,
    )


async def test_it_works_until_a_signal_and_stops_its_work() -> None:
    work = Work()
    task = asyncio.create_task(daemon(work, DaemonOptions(text=b"one")).serve())
    await eventually(lambda: work.configs == ["one"])
    os.kill(os.getpid(), signal.SIGTERM)
    assert await task == 0
    assert work.stops > 0


async def test_a_failure_of_the_work_ends_it_and_is_raised() -> None:
    work = Work()
    task = asyncio.create_task(daemon(work, DaemonOptions(text=b"one")).serve())
    await eventually(lambda: work.configs == ["one"])
    work.failure.set_exception(OSError("disk full"))
    with pytest.raises(OSError, match="disk full"):
        await task
    assert work.stops > 0


async def test_the_first_configuration_has_to_be_good() -> None:
    work = Work()
    with pytest.raises(ConfigError, match="command line: it is bad"):
        await daemon(work, DaemonOptions(text=b"bad")).serve()
    assert work.stops > 0


async def test_a_signal_ends_the_wait_for_zookeeper(tmp_path: Path) -> None:
    work, store = Work(), SilentStore(tmp_path / "store")
    options = DaemonOptions(zookeeper=ZooKeeperAddress.parse("zk:2181"))
    task = asyncio.create_task(daemon(work, options, store).serve())
    await eventually(lambda: store.is_asked)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await asyncio.wait_for(task, 5) == 0
    assert work.configs == []
