"""What an operator reads in the broker's log at INFO: who created, altered and deleted topics."""

import re
from pathlib import Path

import pytest

from qbus import Admin, NewTopic, Producer
from qbus.clients.types import ConfigKind
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration


def test_changes_of_topics_are_told_with_their_authors(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with Admin(broker.bootstrap, client_id="ops") as admin:
            admin.create_topics([NewTopic("t", 2)])
            admin.create_partitions("t", 3)
            admin.alter_config(ConfigKind.TOPIC, "t", set={"retention.ms": "1000"})
            admin.delete_topic("t")
        broker.stop()
        text = broker.log_text()
        author = "client 'ops' at 127.0.0.1"
        for line in (
            f"topic t is created, partitions: 2, replicas of each: 1, by {author}",
            f"topic t has 3 partitions now, by {author}",
            f"the configuration of topic t is altered by {author}",
            f"topic t is deleted by {author}",
        ):
            assert line in text
        assert "COORDINATOR_NOT_AVAILABLE" not in text


def test_a_topic_made_by_the_way_is_told_too(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with Producer(broker.bootstrap, client_id="app") as producer:
            producer.send("new", b"x").result(10)
        wait_until(lambda: re.search("topic new is created.*client 'app'", broker.log_text()), "it")


def test_a_start_after_a_crash_says_what_it_checked(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with Producer(broker.bootstrap) as producer:
            for number in range(7):
                producer.send("t", b"%d" % number).result(10)
        assert "was not closed cleanly" not in broker.log_text(), "there was nothing yet"
        broker.kill()
        broker.start()
        told = re.findall("was not closed cleanly; (.*)", broker.log_text())
        assert told == ["logs checked above their recovery points: 1, records there: 7"]
        broker.stop()
        broker.start()
        assert broker.log_text().count("was not closed cleanly") == 1, "a clean stop is no crash"
