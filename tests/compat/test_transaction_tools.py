"""Kafka's admin client and tools about transactions."""

import re
from collections.abc import Iterator

import pytest

from perf.peers import java, kafka
from tests.support.server_process import ServerProcess
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from . import targets
from .clients import Client
from .records import Record
from .test_java_tools import Tools, table
from .test_transactions import ends_of, sent
from .transactional import JavaTransactions, Refused

pytestmark = pytest.mark.compat

_FORMATTERS = "org.apache.kafka.tools.consumer"


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[JavaTransactions]:
    """Return Kafka's own client."""
    skip_because_of(kafka.missing())
    client = JavaTransactions(bootstrap)
    yield client
    client.close()


@pytest.fixture
def tools(bootstrap: str) -> Tools:
    """Return Kafka's tools."""
    return Tools(bootstrap)


def rows(tools: Tools, command: str, *arguments: str) -> list[dict[str, str]]:
    """What kafka-transactions prints."""
    return table(tools.run("TransactionsCommand", command, *arguments))


def test_transactions_are_listed_and_described(
    client: JavaTransactions, tools: Tools, topic: str
) -> None:
    producer = client.producer(topic)
    sent(producer, topic, "a")
    (listed,) = [one for one in rows(tools, "list") if one["TransactionalId"] == topic]
    assert listed["TransactionState"] == "Ongoing"
    (described,) = rows(tools, "describe", "--transactional-id", topic)
    assert described["TransactionState"] == "Ongoing"
    assert described["ProducerId"] == listed["ProducerId"]
    assert described["TransactionTimeoutMs"] == "60000"
    assert described["TopicPartitions"] == f"{topic}-0"
    (open_one,) = rows(tools, "describe-producers", "--topic", topic, "--partition", "0")
    assert open_one["ProducerId"] == listed["ProducerId"]
    assert open_one["CurrentTransactionStartOffset"] == "0"
    producer.commit()
    wait_until(lambda: client.transactions()[topic] == "CompleteCommit", "the commit")
    (closed,) = rows(tools, "describe-producers", "--topic", topic, "--partition", "0")
    assert closed["CurrentTransactionStartOffset"] == "None"
    sent(producer, topic, "b")
    producer.abort()
    wait_until(lambda: client.transactions()[topic] == "CompleteAbort", "the abort")
    producer.close()


def test_an_administrator_fences_a_producer(client: JavaTransactions, topic: str) -> None:
    producer = client.producer(topic)
    sent(producer, topic, "a")
    client.fence(topic)
    with pytest.raises(Refused) as refusal:
        producer.commit()
    assert refusal.value.is_fenced
    producer.close()
    wait_until(lambda: client.latest(topic, committed=True) == 2, "the abort")


def test_a_transaction_is_aborted_by_its_start_offset(
    client: JavaTransactions, tools: Tools, topic: str, bootstrap: str
) -> None:
    producer = client.producer(topic)
    sent(producer, topic, "a", "b")
    tools.run(
        "TransactionsCommand", "abort", "--topic", topic, "--partition", "0", "--start-offset", "0"
    )
    wait_until(lambda: ends_of(bootstrap, topic) == (3, 3), "the marker")
    producer.close()


def test_no_transaction_hangs(client: JavaTransactions, tools: Tools, topic: str) -> None:
    producer = client.producer(topic)
    sent(producer, topic, "a")
    arguments = ("--topic", topic, "--partition", "0", "--max-transaction-timeout", "0")
    assert rows(tools, "find-hanging", *arguments) == []
    producer.commit()
    producer.close()


def test_an_offset_that_is_not_decided_is_unstable(client: JavaTransactions, topic: str) -> None:
    producer = client.producer(topic)
    sent(producer, topic, "a")
    producer.send_offsets(topic, {(topic, 0): 1})
    assert client.group_offset(topic, topic, stable=False) == -1
    with pytest.raises(Refused, match="TimeoutException"):  # it asks again and again
        client.group_offset(topic, topic, stable=True)
    producer.commit()
    wait_until(lambda: client.group_offset(topic, topic, stable=False) == 1, "the offset")
    assert client.group_offset(topic, topic, stable=True) == 1
    producer.close()


def test_the_console_consumer_reads_what_is_committed(
    client: JavaTransactions, tools: Tools, topic: str
) -> None:
    producer = client.producer(topic)
    for value, end in (("a", producer.commit), ("b", producer.abort), ("c", producer.commit)):
        sent(producer, topic, value)
        end()
    producer.close()
    arguments = ("--topic", topic, "--from-beginning", "--timeout-ms", "4000")
    printed = tools.run("consumer.ConsoleConsumer", *arguments)
    assert printed.split() == ["a", "b", "c"]
    committed = tools.run(
        "consumer.ConsoleConsumer", *arguments, "--isolation-level", "read_committed"
    )
    assert committed.split() == ["a", "c"]


def test_the_transaction_log_is_in_kafkas_format(
    client: JavaTransactions, tools: Tools, topic: str, cluster: ServerProcess
) -> None:
    producer = client.producer(topic)
    sent(producer, topic, "a")
    producer.commit()
    wait_until(lambda: client.transactions()[topic] == "CompleteCommit", "the commit")
    producer.close()
    printed = tools.run(
        "consumer.ConsoleConsumer",
        *("--topic", "__transaction_state", "--from-beginning", "--timeout-ms", "4000"),
        *("--formatter", f"{_FORMATTERS}.TransactionLogMessageFormatter"),
    )
    states = [line for line in printed.splitlines() if f'"transactionalId":"{topic}"' in line]
    assert states, printed
    assert any(f'"topic":"{topic}"' in line for line in states)
    written = sorted(targets.log_dir(cluster).glob("__transaction_state-*/*.log"))
    dumped = java.run(
        "org.apache.kafka.tools.DumpLogSegments",
        *("--transaction-log-decoder", "--files", ",".join(map(str, written))),
        options=java.SHORT_RUN_OPTIONS,
    )
    text = dumped.stdout.decode()
    assert f'"transactionalId":"{topic}"' in text or f"transactional_id={topic}" in text, text


def test_markers_and_aborted_transactions_are_in_kafkas_format(
    client: JavaTransactions, name: str, reference: Client, cluster: ServerProcess
) -> None:
    topic = name
    reference.create_topic(topic, config={"segment.bytes": str(1 << 20)})
    producer = client.producer(topic)
    for value, end in (("a", producer.commit), ("b", producer.abort)):
        sent(producer, topic, value)
        end()
    wait_until(lambda: client.latest(topic, committed=True) == 4, "the marker")
    producer.close()
    reference.produce(topic, [Record(None, bytes(700_000))] * 2)  # a further segment
    files = targets.log_dir(cluster) / f"{topic}-0"
    dumped = java.run(
        "org.apache.kafka.tools.DumpLogSegments",
        *("--files", str(files / f"{0:020}.log"), "--print-data-log"),
        options=java.SHORT_RUN_OPTIONS,
    ).stdout.decode()
    assert re.findall(r"endTxnMarker: (\w+)", dumped) == ["COMMIT", "ABORT"]
    index = files / f"{0:020}.txnindex"
    aborted = java.run(
        "org.apache.kafka.tools.DumpLogSegments",
        *("--files", str(index)),
        options=java.SHORT_RUN_OPTIONS,
    ).stdout.decode()
    found = re.search(r"firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", aborted)
    assert found, aborted
    assert found.groups()[:2] == ("2", "3")
