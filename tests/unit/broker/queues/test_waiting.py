"""Who waits for records is called in turn, and no more of them than there are records for."""

import asyncio
from functools import partial

from qbus.broker.queues import ShareQueue
from qbus.broker.queues.types import WaitedFor
from qbus.errors import ErrorCode
from tests.support.waiting import eventually

from .queues import World, accept, end, in_transaction, records, release, take


class Member:
    """Waits for one record at a time, and takes it when it is called."""

    def __init__(
        self, queue: ShareQueue, name: str, log: list[str], *, is_gone: bool = False
    ) -> None:
        self.queue = queue
        self.name = name
        self.log = log
        self.is_gone = is_gone
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        queue.wait(self)

    def ready(self, queue: WaitedFor) -> bool:
        if self.is_gone:
            return False
        self.task = asyncio.create_task(self.take())
        return True

    async def take(self) -> None:
        try:
            taken = await records(self.queue, 1, self.name)
        except Exception as error:
            self.error = error
            return
        if not taken:
            self.queue.wait(self, again=True)
        self.log += [f"{self.name} {record.offset}" for record in taken]


async def test_they_are_served_in_the_order_in_which_they_came(world: World) -> None:
    log: list[str] = []
    queue = world.queue()
    await world.settled()
    for name in "abcde":
        Member(queue, name, log)
    await world.add(b"1", b"2")
    await eventually(lambda: len(log) == 2)
    await world.add(b"3")
    await eventually(lambda: len(log) == 3)
    assert [entry[0] for entry in log] == ["a", "b", "c"]
    assert queue.waiting == 2


async def test_one_who_is_gone_passes_the_turn_on(world: World) -> None:
    log: list[str] = []
    queue = world.queue()
    await world.settled()
    Member(queue, "a", log, is_gone=True)
    Member(queue, "b", log)
    await world.add(b"1")
    await eventually(lambda: log == ["b 1"])


async def test_one_who_comes_while_there_are_records_is_called(world: World) -> None:
    log: list[str] = []
    await world.add(b"1")
    queue = world.queue()
    Member(queue, "a", log)
    await eventually(lambda: log == ["a 0"])
    assert queue.waiting == 0


async def test_what_is_given_back_goes_to_who_waits(world: World) -> None:
    log: list[str] = []
    await world.add(b"1", b"2")
    queue = world.queue()
    await take(queue)
    Member(queue, "b", log)
    await asyncio.sleep(0.02)
    assert log == []
    await release(queue, 0)
    await eventually(lambda: log == ["b 0"])
    Member(queue, "c", log)
    await world.pass_time(queue, 31)
    await eventually(lambda: log == ["b 0", "c 0"])


async def test_free_locks_are_for_who_waits(world: World) -> None:
    log: list[str] = []
    await world.add(b"1", b"2")
    queue = world.queue(partition_max_locks=1)
    await take(queue)
    Member(queue, "b", log)
    await asyncio.sleep(0.02)
    assert log == []
    await accept(queue, 0)
    await eventually(lambda: log == ["b 1"])


async def test_one_who_found_nothing_keeps_its_turn(world: World) -> None:
    queue = world.queue()
    await world.settled()
    log: list[str] = []
    first = Member(queue, "a", log)
    Member(queue, "b", log)
    queue.forget(first)
    queue.wait(first, again=True)
    await world.add(b"1")
    await eventually(lambda: log == ["a 1"])


async def test_one_who_is_forgotten_is_not_called(world: World) -> None:
    log: list[str] = []
    queue = world.queue()
    await world.settled()
    member = Member(queue, "a", log)
    queue.forget(member)
    queue.forget(member)
    Member(queue, "b", log)
    await world.add(b"1")
    await eventually(lambda: log == ["b 1"])


def heard_of(log: list[str], offset: int, is_done: bool) -> None:
    log.append(f"{offset} {is_done}")


class Lazy:
    """Says that it will come, and does not."""

    def ready(self, queue: WaitedFor) -> bool:
        return True


async def test_one_who_does_not_come_costs_the_others_a_second(world: World) -> None:
    log: list[str] = []
    queue = world.queue()
    await world.settled()
    queue.wait(Lazy())
    Member(queue, "b", log)
    await world.add(b"1")
    assert log == []
    await eventually(lambda: log == ["b 1"])


async def test_thousands_wait_and_each_gets_one(world: World) -> None:
    log: list[str] = []
    queue = world.queue(partition_max_locks=10_000)
    await world.settled()
    members = [Member(queue, str(number), log) for number in range(2000)]
    for _ in range(4):
        await world.add(*[b"x"] * 300)
    await eventually(lambda: len(log) == 1200)
    assert sorted(int(entry.split()[0]) for entry in log) == list(range(1200))
    assert queue.waiting == 800
    calls = sum(member.task is not None for member in members)
    assert calls < 1300, "not many were called in vain"


async def test_all_who_wait_hear_when_the_partition_is_led_elsewhere(world: World) -> None:
    queue = world.queue()
    await world.settled()
    members = [Member(queue, name, []) for name in "ab"]
    settled: list[bool] = []
    queue.when_settled(0, settled.append)
    world.partition.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await eventually(lambda: all(member.error is not None for member in members))
    assert (settled, queue.is_closed) == ([False], True)
    queue.when_settled(0, settled.append)
    assert settled == [False, False]


async def test_who_waits_for_the_end_of_a_record_hears_of_it(world: World) -> None:
    await world.add(b"1", b"2", b"3")
    queue = world.queue(delivery_limit=1)
    settled: list[str] = []
    for offset in range(3):
        queue.when_settled(offset, partial(heard_of, settled, offset))
    await take(queue)
    await accept(queue, 0)
    await asyncio.sleep(0)
    assert settled == ["0 True"]
    await release(queue, 1)
    await asyncio.sleep(0)
    assert settled == ["0 True", "1 True"], "it was given out too often"
    queue.forget_settled(2, partial(heard_of, settled, 2))  # another one
    assert await queue.settle(2, b"result")
    await asyncio.sleep(0)
    assert settled == ["0 True", "1 True", "2 True"]
    assert await queue.result(2) == b"result"
    assert await queue.result(1) is None
    await world.restart()
    assert await world.queue().result(2) == b"result"
    heard: list[bool] = []
    world.queue().when_settled(2, heard.append)
    assert heard == [True]
    queue = world.queue()
    queue.when_settled(99, heard.append)
    queue.forget_settled(99, heard.append)
    queue.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert heard == [True]


async def test_who_waits_for_committed_records_is_called_by_the_commit(world: World) -> None:
    log: list[str] = []
    queue = world.queue(isolation="read_committed")
    await world.settled()
    Member(queue, "a", log)
    await in_transaction(world, b"job", 1)
    await asyncio.sleep(0.01)
    assert log == []
    await end(world, 1, committed=True)
    await eventually(lambda: len(log) == 1)
