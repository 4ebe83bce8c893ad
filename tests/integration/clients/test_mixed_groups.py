"""Our members in one group with other clients', by each assignor that they share, whoever leads."""

import asyncio
import time
from collections.abc import Callable

import pytest

from qbus.clients import Admin, Consumer, TopicPartition
from qbus.clients.types import GroupDescription
from qbus.errors import ApiError

from . import peers
from .peers import HEARTBEAT_MS, SESSION_MS, Peer

pytestmark = pytest.mark.integration

Join = Callable[[str, str, str], Peer]
SHARED: dict[str, tuple[Join, tuple[str, ...]]] = {
    "confluent": (peers.confluent, ("range", "roundrobin", "cooperative-sticky")),
    "kafka-python": (
        peers.kafka_python,
        ("range", "roundrobin", "sticky", "cooperative-sticky"),
    ),
    "java": (peers.java_consumer, ("range", "roundrobin", "sticky", "cooperative-sticky")),
}


class Ours:
    """A consumer of ours that is polled all the time, and what its callbacks told."""

    def __init__(self, bootstrap: str, topic: str, assignors: tuple[str, ...]) -> None:
        self.revoked: list[TopicPartition] = []
        self._consumer = Consumer(
            bootstrap,
            group=topic,
            offset_reset="earliest",
            assignors=assignors,
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
            on_revoked=self.revoked.extend,
        )
        self._consumer.subscribe([topic])
        self._polling = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            await self._consumer.poll(0.1)

    async def close(self) -> None:
        self._polling.cancel()
        await asyncio.gather(self._polling, return_exceptions=True)
        await self._consumer.close()


async def shared(admin: Admin, group: str, members: int, within: float = 40.0) -> GroupDescription:
    """Wait until so many members have three partitions between them, each in one hand."""
    deadline = time.monotonic() + within
    while True:
        await asyncio.sleep(0.1)
        try:
            found = await admin.describe_group(group)
        except ApiError:
            continue
        finally:
            assert time.monotonic() < deadline, "the group never shared its partitions out"
        owned = sorted(one for member in found.members for one in member.assignment)
        if (
            found.state == "Stable"
            and len(found.members) == members
            and owned == [TopicPartition(group, index) for index in range(3)]
            and all(member.assignment for member in found.members)
        ):
            return found


@pytest.mark.parametrize("we_lead", [True, False], ids=["we lead", "they lead"])
@pytest.mark.parametrize(
    ("client", "assignor"),
    [(client, name) for client, (_, names) in SHARED.items() for name in names],
)
async def test_a_group_of_two_kinds(
    bootstrap: str, topic: str, admin: Admin, client: str, assignor: str, we_lead: bool
) -> None:
    if client == "java" and (reason := peers.missing_java()):
        pytest.skip(reason)
    join = SHARED[client][0]
    ours: Ours | None = None
    if we_lead:
        ours = Ours(bootstrap, topic, (assignor,))
        await shared(admin, topic, 1)
    theirs = join(bootstrap, topic, assignor)
    try:
        if ours is None:
            await shared(admin, topic, 1)
            ours = Ours(bootstrap, topic, (assignor,))
        assert (await shared(admin, topic, 2)).protocol == assignor
        third = Ours(bootstrap, topic, ("roundrobin", "cooperative-sticky", "sticky", "range"))
        assert (await shared(admin, topic, 3)).protocol == assignor
        await third.close()
        await shared(admin, topic, 2)
    finally:
        await asyncio.to_thread(theirs.close)
        if ours is not None:
            await ours.close()
    assert we_lead <= bool(ours.revoked)
