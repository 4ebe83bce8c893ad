"""A running link is restarted when it fails, shows why meanwhile, and can be stopped."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from qbus.clients import ConnectionFailed
from qbus.clients.mirror import running as module
from qbus.clients.mirror.config import LinkConfig
from qbus.clients.mirror.running import RunningLink
from qbus.clients.mirror.session import Session
from qbus.clients.mirror.status import LinkStatus
from tests.support.waiting import eventually

CONFIG = LinkConfig("a", "b", "h:1", "h:2", (".*",))


class Work:
    """Runs until it is cancelled or told to fail."""

    def __init__(self) -> None:
        self.failures: asyncio.Queue[Exception] = asyncio.Queue()
        self.begun = 0
        self.drained = 0

    async def run(self) -> None:
        self.begun += 1
        try:
            raise await self.failures.get()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            self.drained += 1
            raise

    def status(self) -> LinkStatus:
        return LinkStatus(name="a->b", source="a", target="b", records=7)


class Opening:
    """Opens sessions, or fails as told."""

    def __init__(self) -> None:
        self.work = Work()
        self.failures: list[Exception] = []
        self.closed = 0

    @asynccontextmanager
    async def __call__(self, config: LinkConfig) -> AsyncIterator[Session]:
        if self.failures:
            raise self.failures.pop(0)
        try:
            yield Session(self.work, None)
        finally:
            self.closed += 1


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.01)


@pytest.fixture
def opening() -> Opening:
    return Opening()


@pytest.fixture
async def link(opening: Opening) -> AsyncIterator[RunningLink]:
    link = RunningLink(CONFIG, opening)
    link.start()
    yield link
    await link.stop()


def test_before_its_session_a_link_only_has_a_name(opening: Opening) -> None:
    assert RunningLink(CONFIG, opening).status() == LinkStatus(name="a->b", source="a", target="b")


async def test_the_status_is_that_of_the_session(link: RunningLink, opening: Opening) -> None:
    await eventually(lambda: opening.work.begun)
    assert link.status().records == 7


async def test_a_failed_link_is_restarted(link: RunningLink, opening: Opening) -> None:
    await eventually(lambda: opening.work.begun)
    opening.failures = [ConnectionFailed("nobody there")] * 3
    opening.work.failures.put_nowait(ConnectionFailed("cut"))
    await eventually(lambda: link.status().error == "nobody there")
    await eventually(lambda: opening.work.begun == 2)
    assert link.status().error is None
    assert opening.closed == 1


async def test_an_unexpected_error_does_not_end_the_link(
    link: RunningLink, opening: Opening
) -> None:
    await eventually(lambda: opening.work.begun)
    opening.failures = [ConnectionFailed("x")] * 5
    opening.work.failures.put_nowait(RuntimeError("a defect"))
    await eventually(lambda: link.status().error is not None)
    await eventually(lambda: opening.work.begun == 2)


async def test_a_stopped_link_drains(link: RunningLink, opening: Opening) -> None:
    await eventually(lambda: opening.work.begun)
    await link.stop()
    assert (opening.work.drained, opening.closed) == (1, 1)
