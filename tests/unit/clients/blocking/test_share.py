"""The share consumer without asyncio: the same."""

import asyncio
import inspect
import threading
import time
from collections.abc import Callable

import pytest

from qbus import AcknowledgementLost, ClientClosed, QbusError, ShareConsumer, aio
from tests.support.fake_broker import FakeBroker
from tests.support.fake_share import FakeShareGroup

ACCEPT, RELEASE = 1, 2


async def with_group(use: Callable[[ShareConsumer, FakeShareGroup], None]) -> FakeShareGroup:
    async with FakeBroker() as broker:
        group = FakeShareGroup(broker)
        group.store([b"%d" % number for number in range(250)])

        def run() -> None:
            with ShareConsumer(
                broker.bootstrap,
                "g",
                ["t"],
                acquire="batches",
                consumer_timeout_ms=300,
                fetch_max_wait_ms=20,
            ) as consumer:
                use(consumer, group)

        await asyncio.to_thread(run)
        return group


def test_both_faces_have_the_same_arguments() -> None:
    names = [n for n, f in inspect.getmembers(aio.ShareConsumer, callable) if n[0] != "_"]
    for name in ("__init__", *names):
        theirs = dict(inspect.signature(getattr(aio.ShareConsumer, name)).parameters)
        ours = inspect.signature(getattr(ShareConsumer, name)).parameters
        assert dict(ours) == theirs, name


async def test_a_loop_to_its_end() -> None:
    def use(consumer: ShareConsumer, _: FakeShareGroup) -> None:
        assert [record.offset for record in consumer] == list(range(250))

    group = await with_group(use)
    assert group.offsets(ACCEPT) == list(range(250))
    assert group.sessions == {}


async def test_a_loop_that_is_left_early_and_polls_behind_it() -> None:
    def use(consumer: ShareConsumer, group: FakeShareGroup) -> None:
        for record in consumer:
            if record.offset == 5:
                break
        assert [record.offset for record in consumer.poll(max_records=2)] == [6, 7]
        consumer.flush()
        assert group.offsets(ACCEPT) == [0, 1, 2, 3, 4, 5]
        for record in consumer:
            assert record.offset == 8
            break

    group = await with_group(use)
    assert group.offsets(ACCEPT) == list(range(9))
    assert {state.member for state in group.states.values()} == {""}


async def test_an_exception_gives_back_the_record_that_the_loop_was_at() -> None:
    def use(consumer: ShareConsumer, _: FakeShareGroup) -> None:
        def fail() -> None:
            with consumer:
                for record in consumer:
                    if record.offset == 2:
                        raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()

    group = await with_group(use)
    assert group.offsets(ACCEPT) == [0, 1]


async def test_another_thread_says_what_came_of_records() -> None:
    def use(consumer: ShareConsumer, group: FakeShareGroup) -> None:
        records = consumer.poll(5, max_records=10)
        worker = threading.Thread(target=lambda: consumer.release(records[5], delay=100))
        worker.start()
        worker.join()
        consumer.settle(records[0], result=b"done")
        assert ("t", 0, 0, ACCEPT, -1, b"done") in group.said
        assert group.offsets(RELEASE) == [5]
        consumer.renew(records[1:3])
        with pytest.raises(QbusError, match="is not held"):
            consumer.accept(records[5])

    group = await with_group(use)
    assert sorted(group.offsets(ACCEPT)) == [0, 1, 2, 3, 4, 6, 7, 8, 9]


async def test_a_callback_may_use_the_consumer() -> None:
    told: list[AcknowledgementLost] = []

    async with FakeBroker() as broker:
        group = FakeShareGroup(broker)
        group.store([b"v"])

        def run() -> None:
            def on_lost(error: AcknowledgementLost) -> None:
                told.append(error)
                assert consumer.held == []

            consumer = ShareConsumer(broker.bootstrap, "g", ["t"], on_lost=on_lost)
            with consumer:
                assert consumer.poll(5)
                group.record_refusals = {0}
                consumer.poll(0)
                consumer.flush()

        await asyncio.to_thread(run)
    assert [error.records for error in told] == [(("t", 0, 0),)]


async def test_a_slow_loop_has_each_record_accepted_while_it_is_at_the_next() -> None:
    def use(consumer: ShareConsumer, group: FakeShareGroup) -> None:
        for record in consumer:
            if record.offset == 3:
                deadline = time.monotonic() + 5
                while group.offsets(ACCEPT) != [0, 1, 2] and time.monotonic() < deadline:
                    time.sleep(0.01)
                assert group.offsets(ACCEPT) == [0, 1, 2]
                break

    await with_group(use)


async def test_a_loop_shows_nothing_after_the_end() -> None:
    def use(consumer: ShareConsumer, _: FakeShareGroup) -> None:
        seen = []

        def read() -> None:
            for record in consumer:
                seen.append(record.offset)
                if record.offset == 2:
                    consumer.close()

        with pytest.raises(ClientClosed):
            read()
        assert seen == [0, 1, 2]

    group = await with_group(use)
    assert group.offsets(ACCEPT) == [0, 1, 2]


async def test_a_loop_goes_on_behind_what_was_said_of_single_records() -> None:
    def use(consumer: ShareConsumer, group: FakeShareGroup) -> None:
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if record.offset == 1:
                consumer.release(record, delay=60_000)
                assert ("t", 0, 0) not in consumer.held
                assert ("t", 0, 2) in consumer.held
            if record.offset == 5:
                break
        assert seen == [0, 1, 2, 3, 4, 5]

    group = await with_group(use)
    assert sorted(group.offsets(ACCEPT)) == [0, 2, 3, 4, 5]
    assert group.offsets(RELEASE)[0] == 1
