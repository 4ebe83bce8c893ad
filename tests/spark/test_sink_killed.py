"""A driver that is killed while it publishes goes on where it was, and nothing is there twice."""

from collections import Counter
from pathlib import Path

import pytest

from qbus import Admin, Producer
from qbus.clients.types import LATEST, TopicPartition
from tests.support import spark_session
from tests.support.broker_process import BrokerProcess
from tests.support.tools import skip_because_of
from tests.support.waiting import wait_until

from .driver import Driver
from .test_sink import values

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

_KILLS = 4
_LONG = 600.0


def test_a_driver_that_is_killed_while_it_publishes(
    broker: BrokerProcess, admin: Admin, producer: Producer, topic: str, tmp_path: Path
) -> None:
    skip_because_of(spark_session.missing())
    source, out = topic, f"{topic}-copy"
    admin.create_topic(out, partitions=2)
    ends = {TopicPartition(out, index): LATEST for index in range(2)}

    def arrived() -> int:
        return sum(found.offset for found in admin.list_offsets(ends).values())

    def put(numbers: range) -> None:
        producer.send_many(source, [b"%01000d" % number for number in numbers])
        producer.flush()

    put(range(60_000))
    driver = Driver(
        tmp_path / "driver.log",
        master="local[2,3]",
        bootstrap=broker.bootstrap,
        source=source,
        target=out,
        directory=str(tmp_path),
        copies="topic files",
    )
    try:
        before = 0
        for _ in range(_KILLS):

            def has_gone_on(before: int = before) -> bool:
                driver.keep_running()
                return arrived() > before or arrived() >= 60_000

            wait_until(has_gone_on, "more rows", _LONG)
            driver.kill()
            before = arrived()
        put(range(60_000, 61_000))

        def is_done() -> bool:
            driver.keep_running()
            return arrived() >= 61_000

        wait_until(is_done, "all rows", _LONG)
    finally:
        driver.kill()
    assert values(broker, out) == Counter(b"%01000d" % number for number in range(61_000))
