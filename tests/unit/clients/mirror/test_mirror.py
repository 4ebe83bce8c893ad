"""The links of a configuration are started, left alone, restarted and stopped."""

import pytest

from qbus.clients.mirror.config import LinkConfig, MirrorConfig, parse
from qbus.clients.mirror.mirror import Mirror
from qbus.clients.mirror.running import RunningLink
from qbus.clients.mirror.status import LinkStatus


class Link(RunningLink):
    """Remembers what was asked of it."""

    def __init__(self, config: LinkConfig, events: list[str]) -> None:
        super().__init__(config)
        self._events = events

    def start(self) -> None:
        self._events.append(f"start {self.config.name}")

    async def stop(self) -> None:
        self._events.append(f"stop {self.config.name}")

    def status(self) -> LinkStatus:
        return LinkStatus(name=self.config.name, source="", target="")


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def mirror(events: list[str]) -> Mirror:
    return Mirror(lambda config: Link(config, events))


def config(*sources: str, topics: str = ".*") -> MirrorConfig:
    text = f'topics = ["{topics}"]\n[target]\nidc = "t"\nbootstrap = "h:1"\n'
    for source in sources:
        text += f'[[source]]\nidc = "{source}"\nbootstrap = "h:2"\n'
    return parse(text.encode())


async def test_each_source_has_a_link(mirror: Mirror, events: list[str]) -> None:
    await mirror.apply(config("a", "c"))
    assert events == ["start a->t", "start c->t"]
    assert [link.name for link in mirror.refresh()] == ["a->t", "c->t"]


async def test_links_without_changes_go_on(mirror: Mirror, events: list[str]) -> None:
    await mirror.apply(config("a", "c"))
    events.clear()
    await mirror.apply(config("c", "d"))
    assert events == ["stop a->t", "start d->t"]


async def test_changed_links_are_restarted(mirror: Mirror, events: list[str]) -> None:
    await mirror.apply(config("a"))
    events.clear()
    await mirror.apply(config("a", topics="orders"))
    assert events == ["stop a->t", "start a->t"]


async def test_stop_stops_all_links(mirror: Mirror, events: list[str]) -> None:
    await mirror.apply(config("a", "c"))
    events.clear()
    await mirror.stop()
    assert events == ["stop a->t", "stop c->t"]
    assert mirror.refresh() == ()
