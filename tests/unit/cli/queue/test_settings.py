"""The settings of a queue, as `qbus queue describe` shows and `qbus queue set` changes them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from qbus.cli.failures import Misuse
from qbus.cli.queue.settings import changes_of, read_settings
from qbus.clients import Admin

from .fake_queue import FakeQueue, fake_queue


@asynccontextmanager
async def described() -> AsyncIterator[tuple[FakeQueue, Admin]]:
    async with fake_queue() as fake, Admin(fake.broker.bootstrap) as admin:
        yield fake, admin


def test_what_is_not_named_is_not_changed() -> None:
    assert changes_of("q") == {}
    assert changes_of("q", delivery_limit="none") == {"qbus.queue.delivery.limit": "0"}
    assert changes_of(
        "q", delivery_limit="7", backoff="10s", backoff_max="1h", dead_letters="q.dead"
    ) == {
        "qbus.queue.delivery.limit": "7",
        "qbus.queue.retry.backoff.ms": "10000",
        "qbus.queue.retry.backoff.max.ms": "3600000",
        "qbus.queue.dead.letter.topic": "q.dead",
    }
    assert changes_of("q", dead_letters="") == {"qbus.queue.dead.letter.topic": ""}


def test_a_queue_is_not_its_own_dead_letter_topic() -> None:
    with pytest.raises(Misuse):
        changes_of("q", dead_letters="q")


def test_an_idle_time_is_a_duration_or_never() -> None:
    assert changes_of("q", idle="10m") == {"qbus.queue.idle.ms": "600000"}
    assert changes_of("q", idle="never") == {"qbus.queue.idle.ms": "-1"}


async def test_the_idle_time_is_the_queues_alone() -> None:
    async with described() as (fake, admin):
        assert (await read_settings(admin, "q", "g"))["idle_ms"] == -1
        fake.topic_configs = {"qbus.queue.idle.ms": "300000"}
        assert (await read_settings(admin, "q", "g"))["idle_ms"] == 300_000


async def test_the_queue_comes_before_the_group() -> None:
    async with described() as (fake, admin):
        fake.topic_configs = {
            "qbus.delay.enable": "true",
            "qbus.queue.delivery.limit": "5",
            "qbus.queue.retry.backoff.ms": "-1",
            "qbus.queue.dead.letter.topic": "",
        }
        fake.group_configs = {
            "share.delivery.count.limit": "9",
            "qbus.retry.backoff.ms": "300",
            "errors.deadletterqueue.topic.name": "dead",
        }
        found = await read_settings(admin, "q", "g")
    assert (found["partitions"], found["delays"], found["paused"]) == (1, True, "none")
    assert found["settings"] == {
        "delivery_limit": {"value": 5, "from": "queue"},
        "backoff_ms": {"value": 300, "from": "group"},
        "backoff_max_ms": {"value": 0, "from": "group"},
        "dead_letters": {"value": "dead", "from": "group"},
    }
