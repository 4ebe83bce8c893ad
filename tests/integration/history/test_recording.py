"""Every client's recorder against a real broker: what it writes down is what happened."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.history.checker import assert_correct, check
from tests.history.clients import CONSUMERS, PRODUCERS
from tests.history.history import History, Outcome
from tests.history.load import Load
from tests.history.process import LoadProcess
from tests.history.reading import read_out
from tests.history.report import Kind
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

TOPIC, PARTITIONS = "history", 2


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("history"), "-o", "durability=memory") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        yield broker


def test_all_clients_write_down_what_happened(broker: BrokerProcess) -> None:
    where = broker.bootstrap, TOPIC, PARTITIONS
    load = Load(*where, PRODUCERS, CONSUMERS)
    process = LoadProcess(*where, ("confluent",), ("kafka-python",), tag="process")
    load.start()
    process.start()
    load.wait_busy()
    process.wait_busy()
    wait_until(lambda: _size(broker) > 500, "500 records")
    history = History.merged([load.finish(), process.finish()])
    history = History.merged([history, read_out(broker.bootstrap, TOPIC, range(PARTITIONS))])

    assert_correct(history)
    assert len({one.producer for one in history.produces}) == len(PRODUCERS) + 1
    assert len({poll.consumer for poll in history.polls}) == len(CONSUMERS) + 2
    assert {one.outcome for one in history.produces} == {Outcome.OK}
    assert len(history.produces) == sum(history.ends.values()) > 500
    assert all(one.ended is not None and one.started <= one.ended for one in history.produces)

    # And they would be found out.
    history.produces[0].value = b"another"
    assert check(history).kinds >= {Kind.LOST, Kind.PHANTOM, Kind.INCONSISTENT}


def _size(broker: BrokerProcess) -> int:
    return sum(read_out(broker.bootstrap, TOPIC, range(PARTITIONS)).ends.values())
