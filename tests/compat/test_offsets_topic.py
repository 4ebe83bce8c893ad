"""Kafka's tools read the log of committed offsets."""

import json
from collections.abc import Iterator

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from perf.peers import java, kafka
from tests.support.server_process import ServerProcess
from tests.support.tools import skip_because_of

from . import targets
from .test_java_tools import Tools

pytestmark = pytest.mark.compat

TOPIC = "__consumer_offsets"


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server whose group ``readers`` has committed an offset, in the log."""
    skip_because_of(kafka.missing())
    target = request.config.getoption("--target")
    settings = {"offsets.storage": "log"} if target == "qbus" else {}
    with targets.server(target, tmp_path_factory.mktemp("offsets"), settings) as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(30)
        client = ck.Consumer({"bootstrap.servers": started.bootstrap, "group.id": "readers"})
        place = ck.TopicPartition("t", 1, 77, "note", 0)
        (answer,) = client.commit(offsets=[place], asynchronous=False)
        assert answer.error is None
        client.close()
        yield started


def test_with_the_formatter_of_offsets(server: ServerProcess) -> None:
    printed = Tools(server.bootstrap).run(
        "consumer.ConsoleConsumer",
        *("--topic", TOPIC, "--from-beginning", "--timeout-ms", "5000"),
        *("--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"),
    )
    found = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    (record,) = [one for one in found if one["key"]["data"]["group"] == "readers"]
    assert record["key"] == {"type": 1, "data": {"group": "readers", "topic": "t", "partition": 1}}
    value = record["value"]["data"]
    metadata = value["metadata"].rstrip("\0")  # librdkafka sends the end of the C string along
    assert (value["offset"], metadata, value["leaderEpoch"]) == (77, "note", 0)
    assert value["commitTimestamp"] > 1_600_000_000_000


def test_with_the_decoder_of_segments(server: ServerProcess) -> None:
    written = sorted(targets.log_dir(server).glob(f"{TOPIC}-*/*.log"))
    dumped = java.run(
        "org.apache.kafka.tools.DumpLogSegments",
        *("--offsets-decoder", "--files", ",".join(map(str, written))),
        options=java.SHORT_RUN_OPTIONS,
    )
    text = dumped.stdout.decode()
    assert '"group":"readers"' in text, text
    assert '"offset":77' in text, text
