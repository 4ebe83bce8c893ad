"""Measuring prints figures, and nothing that librdkafka logs of its connections."""

from pathlib import Path

import pytest

import perf
from perf import quiet
from tests.support.ports import free_port

PERF = Path(perf.__file__).parent


def test_a_client_logs_nothing_of_a_broker_that_is_gone(capfd: pytest.CaptureFixture[str]) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    producer = confluent_kafka.Producer(quiet.at(f"127.0.0.1:{free_port()}"))

    with pytest.raises(confluent_kafka.KafkaException):
        producer.list_topics(timeout=0.5)

    assert capfd.readouterr() == ("", "")


def test_every_client_of_librdkafka_is_configured_so() -> None:
    own = {
        str(path.relative_to(PERF))
        for path in PERF.rglob("*.py")
        if '"bootstrap.servers"' in path.read_text()
    }

    assert own == {"quiet.py"}
