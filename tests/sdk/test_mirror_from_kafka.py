"""A source that is Apache Kafka: its batches, whatever they are, at the offsets they have there."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import confluent_kafka as ck
import pytest
import pytest_asyncio

from qbus.clients.types import ConfigKind
from qbus.errors import ApiError, ErrorCode
from tests.integration.clients.mirror.scene import (
    Scene,
    assert_nothing_of_a_new_topic_comes,
    eventually,
    reached,
)
from tests.support.broker_process import BrokerProcess

from .conftest import with_kafka
from .servers import Server

pytestmark = [with_kafka, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """IDC b."""
    quick = ("-o", "group.initial.rebalance.delay.ms=0")
    with BrokerProcess(tmp_path_factory.mktemp("b"), *quick) as broker:
        yield broker


@pytest_asyncio.fixture
async def scene(server: Server, target: BrokerProcess, name: str) -> AsyncIterator[Scene]:
    """A topic that is not there yet."""
    async with Scene((server.process, target), name) as made:
        yield made


def write_transactions(bootstrap: str, topic: str) -> None:
    """Three records, two that are aborted, and one; a marker behind each."""
    producer = ck.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for count, is_aborted in (3, False), (2, True), (1, False):
        producer.begin_transaction()
        for number in range(count):
            producer.produce(topic, b"value", b"key-%d" % number)
        producer.flush()
        if is_aborted:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


async def test_transactions_of_a_compacted_topic_come_with_their_markers(scene: Scene) -> None:
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
    await scene.source.create_topic(scene.name, partitions=1, config=config)
    await asyncio.to_thread(write_transactions, scene.config.source_bootstrap, scene.name)
    async with scene.link() as link:
        await eventually(link, reached(9))
    await scene.assert_equal(0)
    found = await scene.target.describe_config(ConfigKind.TOPIC, scene.target_topic)
    config = {entry.name: entry.value or "" for entry in found}
    assert (config["cleanup.policy"], config["retention.ms"]) == ("delete", "-1")


async def test_nothing_of_a_topic_created_anew_comes_to_the_copy(scene: Scene) -> None:
    await assert_nothing_of_a_new_topic_comes(scene, lambda: create_again(scene))


async def create_again(scene: Scene) -> None:
    """Kafka takes a while to delete a topic."""
    async with asyncio.timeout(30):
        while True:
            try:
                await scene.source.create_topic(scene.name, partitions=1)
            except ApiError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
            else:
                return
            await asyncio.sleep(0.05)
