"""Kafka's own tools, in Java, find a broker to be what they are used to."""

import json
import re
from pathlib import Path

import pytest

from perf.peers import java, kafka
from tests.support.broker_process import BrokerProcess
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from .clients import Client
from .records import START_MS, numbered

pytestmark = pytest.mark.compat

TOOLS = "org.apache.kafka.tools"


@pytest.fixture(scope="module", autouse=True)
def _needs_java() -> None:
    skip_because_of(kafka.missing())


class Tools:
    """Runs a tool to its end against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def run(self, tool: str, *arguments: str, stdin: bytes = b"") -> str:
        """Run a tool that must succeed and return what it prints."""
        main = tool if tool.startswith("kafka.") else f"{TOOLS}.{tool}"
        result = java.run(
            main,
            *("--bootstrap-server", self._bootstrap, *arguments),
            stdin=stdin,
            timeout=60,
            options=java.SHORT_RUN_OPTIONS,
        )
        assert result.returncode == 0, result.stdout.decode() + result.stderr.decode()
        return result.stdout.decode()

    def topic(self, *arguments: str) -> str:
        """Run kafka-topics."""
        return self.run("TopicCommand", *arguments)

    def group(self, *arguments: str) -> str:
        """Run kafka-consumer-groups."""
        return self.run("consumer.group.ConsumerGroupCommand", *arguments)

    def consume(self, *arguments: str) -> list[str]:
        """Run kafka-console-consumer, which prints all there is of each record."""
        columns = ("partition", "offset", "headers", "key")
        shown = [word for one in columns for word in ("--formatter-property", f"print.{one}=true")]
        null = ["--formatter-property", "null.literal=NULL"]
        return self.run("consumer.ConsoleConsumer", *arguments, *shown, *null).splitlines()


@pytest.fixture
def tools(bootstrap: str) -> Tools:
    """Return the tools, pointed at the broker."""
    return Tools(bootstrap)


def table(text: str) -> list[dict[str, str]]:
    """Read a table with a line of headings."""
    heading, *rows = [line.split() for line in text.splitlines() if line.strip()]
    return [dict(zip(heading, row, strict=True)) for row in rows]


def test_topics(tools: Tools, name: str) -> None:
    tools.topic(
        "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=3600000"
    )
    tools.topic("--alter", "--topic", name, "--partitions", "3")
    described = tools.topic("--describe", "--topic", name)
    assert "PartitionCount: 3\tReplicationFactor: 1" in described
    assert "retention.ms=3600000" in described
    assert len(re.findall(r"Partition: \d+\tLeader: (\d+)\tReplicas: \1\tIsr: \1", described)) == 3
    tools.topic("--delete", "--topic", name)
    assert name not in tools.topic("--list").splitlines()


def test_replicas_move_between_directories(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("one", "two")]
    with BrokerProcess(Path(paths[0]), "--data-dir", paths[1]) as broker:
        tools = Tools(broker.bootstrap)
        tools.topic("--create", "--topic", "moved", "--partitions", "1")
        was_in = next(path for path in paths if (Path(path) / "moved-0").exists())
        target = next(path for path in paths if path != was_in)
        wanted = {"topic": "moved", "partition": 0, "replicas": [1], "log_dirs": [target]}
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        arguments = ("--reassignment-json-file", str(plan))
        throttle = ("--replica-alter-log-dirs-throttle", "50000000")
        started = tools.run(
            "reassign.ReassignPartitionsCommand", *arguments, "--execute", *throttle
        )
        assert f"Successfully started moving log directory to {target}" in started
        wait_until((Path(target) / "moved-0").exists, "the replica is there")
        verified = tools.run("reassign.ReassignPartitionsCommand", *arguments, "--verify")
        assert "Reassignment of replica moved-0-1 completed successfully." in verified
        assert "Clearing broker-level throttles on broker 1" in verified
        assert "Clearing broker-level throttles" in verified
        described = tools.run("LogDirsCommand", "--describe", "--topic-list", "moved")
    found = json.loads(described.splitlines()[-1])
    places = {
        one["logDir"]: [replica["partition"] for replica in one["partitions"]]
        for one in found["brokers"][0]["logDirs"]
    }
    assert places == {target: ["moved-0"], was_in: []}


LINES = "a:1,b:2\tkey\tvalue\na:x\tNULL\tno key\na:NULL\tno value\tNULL\na:1\t鍵\t値\n"


@pytest.mark.parametrize(
    "settings",
    [
        ("--compression-codec", "none"),
        ("--compression-codec", "gzip"),
        ("--compression-codec", "snappy"),
        ("--compression-codec", "lz4"),
        ("--compression-codec", "zstd"),
        ("--request-required-acks", "0"),
        ("--request-required-acks", "1"),
    ],
    ids=" ".join,
)
def test_console_producer(
    tools: Tools, settings: tuple[str, str], topic: str, reference: Client
) -> None:
    reading = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
    words = [word for one in reading for word in ("--reader-property", one)]
    tools.run("ConsoleProducer", "--topic", topic, *settings, *words, stdin=LINES.encode())
    found = [one.record for one in reference.consume(topic, 0, 0, 4)]
    assert [(record.key, record.value) for record in found] == [
        (b"key", b"value"),
        (None, b"no key"),
        (b"no value", None),
        ("鍵".encode(), "値".encode()),
    ]
    assert [record.headers for record in found] == [
        (("a", b"1"), ("b", b"2")),
        (("a", b"x"),),
        (("a", None),),
        (("a", b"1"),),
    ]


def test_console_consumer(tools: Tools, topic: str, reference: Client) -> None:
    for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
        reference.produce(topic, numbered(2), compression=compression)
    found = tools.consume(
        "--topic", topic, "--partition", "0", "--offset", "1", "--max-messages", "9"
    )
    values = ["0000000000", "0000000001"] * 5
    assert (
        found
        == [
            f"Partition:0\tOffset:{offset}\tNO_HEADERS\tNULL\t{value}"
            for offset, value in enumerate(values)
        ][1:]
    )


def test_groups(tools: Tools, topic: str, reference: Client) -> None:
    reference.produce(topic, numbered(10))
    reading = ("--topic", topic, "--group", topic, "--from-beginning", "--max-messages")
    assert "Offset:3\t" in tools.consume(*reading, "4")[-1]
    assert "Offset:4\t" in tools.consume(*reading, "1")[0]
    assert topic in tools.group("--list").splitlines()
    (row,) = table(tools.group("--describe", "--group", topic).split("no active members.")[-1])
    shown = (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"])
    assert shown == ("5", "10", "5")
    tools.group(
        "--reset-offsets", "--group", topic, "--topic", topic, "--shift-by", "-2", "--execute"
    )
    assert reference.committed(topic, 0, topic) == 3
    assert "was successful" in tools.group("--delete", "--group", topic)
    assert topic not in reference.groups()


def test_offsets(tools: Tools, topic: str, reference: Client) -> None:
    reference.produce(topic, numbered(10))
    answers = {
        "-1": 10,  # latest
        "-2": 0,  # earliest
        "-3": 9,  # that of the highest timestamp
        str(START_MS + 2_500): 3,
    }
    for time, offset in answers.items():
        answer = tools.run("GetOffsetShell", "--topic", topic, "--time", time)
        assert answer.split() == [f"{topic}:0:{offset}"]


def test_delete_records(tools: Tools, topic: str, reference: Client, tmp_path: Path) -> None:
    reference.produce(topic, numbered(10))
    wanted = tmp_path / "offsets.json"
    places = [{"topic": topic, "partition": 0, "offset": 4}]
    wanted.write_text(json.dumps({"version": 1, "partitions": places}))
    answer = tools.run("DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert f"{topic}-0\tlow_watermark: 4" in answer
    assert reference.bounds(topic, 0) == (4, 10)


def test_configs(tools: Tools, topic: str, reference: Client) -> None:
    command = "kafka.admin.ConfigCommand"
    tools.run(command, "--alter", "--topic", topic, "--add-config", "max.message.bytes=500")
    wait_until(lambda: reference.config(topic)["max.message.bytes"] == "500", "the change")
    described = tools.run(command, "--describe", "--topic", topic)
    assert "max.message.bytes=500" in described
    assert "DYNAMIC_TOPIC_CONFIG:max.message.bytes=500" in described
    assert "DEFAULT_CONFIG:message.max.bytes=1048588" in described
    tools.run(command, "--alter", "--topic", topic, "--delete-config", "max.message.bytes")
    wait_until(lambda: reference.config(topic)["max.message.bytes"] == "1048588", "the default")


def test_log_dirs(tools: Tools, topic: str, reference: Client) -> None:
    reference.produce(topic, numbered(1, size=1_000))
    answer = tools.run("LogDirsCommand", "--describe", "--topic-list", topic)
    (broker,) = json.loads(answer.splitlines()[-1])["brokers"]
    (found,) = [one for directory in broker["logDirs"] for one in directory["partitions"]]
    assert found["partition"] == f"{topic}-0"
    assert 1_000 < found["size"] < 1_200
    assert (found["offsetLag"], found["isFuture"]) == (0, False)


def test_producers(tools: Tools, topic: str, reference: Client) -> None:
    reference.produce(topic, numbered(3), idempotent=True)
    (row,) = table(
        tools.run("TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0")
    )
    assert (row["ProducerEpoch"], row["LastSequence"]) == ("0", "2")
    assert row["CurrentTransactionStartOffset"] == "None"


def test_api_versions(tools: Tools) -> None:
    answer = tools.run("BrokerApiVersionsCommand")
    for line in ("Produce(0): 0 to 13 [usable: 13]", "Fetch(1): 4 to 18 [usable: 18]"):
        assert line in answer


def test_performance_tools(tools: Tools, topic: str, bootstrap: str) -> None:
    produced = java.run(
        f"{TOOLS}.ProducerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--throughput", "-1"),
        *("--num-records", "20000", "--record-size", "100"),
        options=java.SHORT_RUN_OPTIONS,
    )
    assert produced.stdout.decode().startswith("20000 records sent"), produced.stderr.decode()
    answer = tools.run("ConsumerPerformance", "--topic", topic, "--num-records", "20000")
    heading, row = (line.split(", ") for line in answer.splitlines()[:2])
    assert dict(zip(heading, row, strict=True))["data.consumed.in.nMsg"] == "20000"
