"""GETJOB: who waits for jobs gets them in turn, and in time, whatever other nodes do."""

import asyncio
from typing import Any

import pytest

from qbus.broker.disque import service
from qbus.broker.disque.errors import CommandError
from qbus.broker.disque.job_queue import Job, TakenJob
from qbus.broker.disque.nodes import Node
from qbus.broker.disque.peers import NodeUnavailableError
from qbus.broker.queues import ShareQueue
from qbus.config import Address
from qbus.errors import ApiError, ErrorCode
from qbus.jobs import GROUP
from tests.support.data_plane import NODE
from tests.support.waiting import eventually

from .jobs import Jobs, decoded


class Far:
    """Another node, which leads partitions of a queue; while it is silent, what it is asked waits.

    ``left_ms``: for how long the locks of the jobs that it gave still run.
    """

    is_closed = False

    def __init__(self, number: int, jobs: list[Any]) -> None:
        self.node = Node(NODE + number, str(number) * 40, Address(f"node-{number}", 7711))
        self.jobs = jobs
        self.asked: list[str] = []
        self.released: list[tuple[object, ...]] = []
        self.shown: dict[bytes, Any] = {
            b"state": b"active",
            b"nacks": 0,
            b"additional-deliveries": 0,
            b"next-requeue-within": 60_000,
        }
        self.added: bytes | CommandError = b"D-00000000-AAAAAAAAAAAAAAAAAAAAAAAA-05a1"
        self.deleted: list[object] = []
        self._speaks = asyncio.Event()

    def speak(self) -> None:
        """Answer what was asked, and what will be."""
        self._speaks.set()

    async def answer(self, command: str, words: tuple[object, ...]) -> Any:
        self.asked.append(command)
        await self._speaks.wait()
        if command == "GETJOB":
            jobs, self.jobs = self.jobs, []
            return jobs or None
        if command == "SHOW":
            return [one for pair in self.shown.items() for one in pair]
        if command == "ADDJOB" and isinstance(self.added, CommandError):
            raise self.added
        if command == "ADDJOB":
            return self.added
        if command == "DELJOB":
            self.deleted += words
            return 1
        if command == "QBUS.RELEASE":
            self.released.append(words)
            return 1
        return b"PONG"

    async def greet(self) -> None:
        self.asked.append("PING")
        await self._speaks.wait()

    async def call(self, words: list[object], timeout_s: float) -> Any:
        """Be a connection of somebody who waits for jobs: none come."""
        return await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        pass


class Others:
    """The connections to other nodes, in place of :class:`qbus.broker.disque.peers.Peers`."""

    def __init__(self, *nodes: Far) -> None:
        self.nodes = nodes

    def connect(self, address: Address) -> Far:
        (found,) = [one for one in self.nodes if one.node.address == address]
        return found

    async def call(self, address: Address, command: Any, *words: object) -> Any:
        name = command.decode() if isinstance(command, bytes) else command
        return await self.connect(address).answer(name, words)

    async def call_patiently(
        self, address: Address, *words: object, timeout_s: float | None = None
    ) -> Any:
        return await self.call(address, *words)

    async def greet(self, address: Address, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self.connect(address).greet()
        except TimeoutError:
            raise NodeUnavailableError(f"{address} did not answer PING") from None

    def close(self) -> None:
        pass


class SlowFar(Far):
    """One that takes its time to show all jobs but its first."""

    async def answer(self, command: str, words: tuple[object, ...]) -> Any:
        if command != "SHOW":
            return await super().answer(command, words)
        if words == (far_job("soon")[1].decode(),):
            self.shown[b"next-requeue-within"] = 600
        else:
            await asyncio.sleep(0.2)
            self.shown[b"next-requeue-within"] = 60_000
        return await super().answer(command, words)


def far_job(body: str, *, is_once: bool = False) -> list[Any]:
    """A job in the reply of another node."""
    text = f"D-00000000-{body.ljust(24, 'A')}-05a{0 if is_once else 1}"
    return [b"q", text.encode(), body.encode(), b"nacks", 0, b"additional-deliveries", 0]


class TestOtherNodes:
    @pytest.fixture
    async def far(self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Far:
        """A node with a job, which is silent, and soon known to be."""
        return self.meet(jobs, monkeypatch, Far(1, [far_job("late")]))[0]

    def meet(self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, *nodes: Far) -> tuple[Far, ...]:
        monkeypatch.setattr(service, "_PATIENCE_S", 0.03)
        monkeypatch.setattr(jobs.service, "peers", Others(*nodes))
        monkeypatch.setattr(jobs.service, "others_with", lambda _: [one.node for one in nodes])
        jobs.service.need_queue(b"q")
        return nodes

    async def test_one_that_is_silent_keeps_nobody_waiting(
        self,
        jobs: Jobs,
        far: Far,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        assert await jobs.ask("GETJOB NOHANG FROM q") is None
        await eventually(lambda: "does not answer in time" in caplog.text)
        monkeypatch.setattr(service, "_PATIENCE_S", 3600.0)
        for _ in range(5):
            assert await jobs.ask("GETJOB NOHANG FROM q") is None
        assert far.asked == ["GETJOB", "PING", "PING"], "to say when it answers again"

    async def test_it_is_asked_again_once_it_answers(
        self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (far,) = self.meet(jobs, monkeypatch, Far(1, []))
        assert await jobs.ask("GETJOB NOHANG FROM q") is None
        await asyncio.sleep(0.05)
        assert await jobs.ask("GETJOB NOHANG FROM q") is None
        far.speak()
        await asyncio.sleep(0.01)
        far.jobs = [far_job("new")]
        assert (await jobs.ask("GETJOB NOHANG FROM q"))[0][2] == "new"

    async def test_a_node_that_leaves_takes_no_jobs_from_others(
        self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (far,) = self.meet(jobs, monkeypatch, Far(1, [far_job("far")]))
        far.speak()
        await jobs.ask("CLUSTER LEAVING yes")
        assert str(await jobs.ask("GETJOB FROM q")).startswith("LEAVING ")
        assert await jobs.ask("GETJOB NOHANG FROM q") is None
        assert far.asked == []
        await jobs.ask("CLUSTER LEAVING no")
        assert (await jobs.ask("GETJOB NOHANG FROM q"))[0][2] == "far"

    @pytest.mark.parametrize(
        "failure",
        [NodeUnavailableError("there is no way to it"), ValueError("a defect")],
        ids=["unavailable", "defect"],
    )
    async def test_one_that_fails_stays_silent_until_it_answers(
        self, jobs: Jobs, far: Far, monkeypatch: pytest.MonkeyPatch, failure: Exception
    ) -> None:
        async def fail(*_: object) -> None:
            raise failure

        assert await jobs.ask("GETJOB NOHANG FROM q") is None
        await asyncio.sleep(0.05)
        with monkeypatch.context() as patch:
            patch.setattr(far, "answer", fail)
            patch.setattr(far, "greet", fail)
            for _ in range(2):
                assert await jobs.ask("GETJOB NOHANG FROM q") is None
                await asyncio.sleep(0)
        monkeypatch.setattr(service, "_PATIENCE_S", 3600.0)
        assert await jobs.ask("GETJOB NOHANG FROM q") is None
        await eventually(lambda: far.asked == ["GETJOB", "PING", "PING"])

    async def test_the_next_one_is_asked_meanwhile(
        self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, other = self.meet(jobs, monkeypatch, Far(1, []), Far(2, [far_job("there")]))
        other.speak()
        assert (await jobs.ask("GETJOB NOHANG FROM q"))[0][2] == "there"

    async def test_a_client_has_its_answer_in_its_time(
        self, jobs: Jobs, far: Far, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(service, "_PATIENCE_S", 3600.0)
        assert await jobs.ask("GETJOB TIMEOUT 20 FROM q") is None
        assert await jobs.ask("GETJOB TIMEOUT 1 FROM q") is None
        assert far.asked == ["GETJOB"] * 2, "it had no time to be silent in"

    async def test_one_that_waits_gets_what_comes_here(self, jobs: Jobs, far: Far) -> None:
        waiting = jobs.begin("GETJOB FROM q", jobs.new_client())
        await jobs.add(body="here")
        assert decoded(await asyncio.wait_for(waiting, 5))[0][2] == "here"

    async def test_one_that_waits_gets_what_comes_late(self, jobs: Jobs, far: Far) -> None:
        waiting = jobs.begin("GETJOB TIMEOUT 20000 FROM q", jobs.new_client())
        await eventually(lambda: jobs.service.need_queue(b"q").blocked == 1)
        far.speak()
        assert decoded(await asyncio.wait_for(waiting, 5))[0][2] == "late"

    async def test_what_comes_late_for_nobody_is_given_back(
        self, jobs: Jobs, far: Far, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(service, "_KEEP_S", 0.0)
        far.jobs.append(far_job("once", is_once=True))
        assert await jobs.ask("GETJOB NOHANG COUNT 5 FROM q") is None
        far.speak()
        await eventually(lambda: far.released == [(far_job("late")[1].decode(), 0, 0)])
        assert (await jobs.ask("GETJOB NOHANG COUNT 5 FROM q"))[0][2] == "once"

    @pytest.mark.parametrize(
        "shown",
        [
            {b"next-requeue-within": 300},  # less than it is kept for
            {b"next-requeue-within": None},
            {b"nacks": 1},
            {b"state": b"queued"},
            {},  # a form of answer that nobody knows
        ],
    )
    async def test_one_whose_lock_may_end_too_soon_is_not_given_out(
        self, jobs: Jobs, far: Far, monkeypatch: pytest.MonkeyPatch, shown: dict[bytes, Any]
    ) -> None:
        monkeypatch.setattr(service, "_CERTAIN_S", -1.0)  # the reply comes late
        far.shown = {**far.shown, **shown} if shown else {}
        far.jobs.append(far_job("once", is_once=True))
        far.speak()
        taken = await jobs.ask("GETJOB NOHANG COUNT 5 FROM q")
        assert [body for _, _, body in taken] == ["once"], "which nobody else gets"

    async def test_one_whose_lock_ends_while_others_are_shown_is_not_given_out(
        self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        soon, later = far_job("soon"), far_job("later")
        (far,) = self.meet(jobs, monkeypatch, SlowFar(1, [soon, later]))
        monkeypatch.setattr(service, "_PATIENCE_S", 3600.0)
        monkeypatch.setattr(service, "_CERTAIN_S", -1.0)  # the reply comes late
        far.speak()
        taken = await jobs.ask("GETJOB NOHANG COUNT 5 FROM q")
        assert [body for _, _, body in taken] == ["later"]

    async def test_a_defect_leaves_nobody_waiting(
        self, jobs: Jobs, far: Far, caplog: pytest.LogCaptureFixture
    ) -> None:
        far.jobs = [b"nonsense"]
        far.speak()
        reply = await jobs.ask("GETJOB NOHANG FROM q")
        assert str(reply) == "ERR the broker has failed; its log says why"
        assert "a task of the queues of jobs failed" in caplog.text

    async def test_too_many_queues_are_refused_then_too(
        self, jobs: Jobs, far: Far, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(service, "MOST_QUEUES", 1)
        reply = await jobs.ask("GETJOB FROM q other")
        assert str(reply) == "ERR there are too many queues without a job"
        assert not jobs.client.is_blocked

    async def test_a_job_that_it_adds_too_late_is_taken_back(self, jobs: Jobs, far: Far) -> None:
        await jobs.add()
        assert await jobs.ask("CLUSTER LEAVING yes") == "OK"
        reply = await jobs.ask("ADDJOB q late 20")
        assert str(reply).startswith("NOREPL Timeout reached")
        far.speak()
        await eventually(lambda: far.deleted == [far.added])

    async def test_a_job_that_it_refuses_is_refused(self, jobs: Jobs, far: Far) -> None:
        await jobs.add()
        assert await jobs.ask("CLUSTER LEAVING yes") == "OK"
        far.speak()
        far.added = CommandError("PAUSED Queue paused in input, try later")
        assert str(await jobs.ask("ADDJOB q body 0")) == str(far.added)

    async def test_what_one_of_before_gives_back_uncounted_is_told(
        self, jobs: Jobs, caplog: pytest.LogCaptureFixture
    ) -> None:
        job = await jobs.add(options="RETRY 5")
        assert await jobs.bodies() == ["body"]
        for minute in range(1, 3):
            for _ in range(3):
                assert await jobs.ask(f"QBUS.LOCAL QBUS.RELEASE {job}") == 0
            lines = [line for line in caplog.messages if "without what they count" in line]
            assert len(lines) == minute
            assert jobs.client.address in lines[-1]
            assert job in lines[-1]
            assert await jobs.bodies() == []
            jobs.clock.advance(61)
        await jobs.pass_time(0)
        assert await jobs.bodies() == ["body"], "once its retry time has passed"
        for words in ("0", "0 0 0", f"0 0 {job}"):
            reply = await jobs.ask(f"QBUS.LOCAL QBUS.RELEASE {job} {words}")
            assert str(reply).startswith("ERR wrong number of arguments")


class Elsewhere:
    """Another node, which has two jobs, and is silent about them."""

    is_closed = False

    ids = (
        "D-00000000-AAAAAAAAAAAAAAAAAAAAAAAA-05a1",
        "D-00000000-AAAAAAAAAAAAAAAAAAAAAAAA-05a0",
    )

    def __init__(self) -> None:
        self.is_asked = False
        self.released: list[tuple[object, ...]] = []
        self._has_jobs = True

    def connect(self, address: Address) -> "Elsewhere":
        return self

    async def call_patiently(self, *words: object, timeout_s: float | None = None) -> Any:
        return await self.call(*words)

    async def call(self, to: object, *words: object) -> Any:
        """Be a connection, with the words in a list, and all connections, with an address."""
        if isinstance(to, list) and self._has_jobs:
            self._has_jobs = False
            counters = [b"nacks", 0, b"additional-deliveries", 0]
            return [
                [b"q", text.encode(), body, *counters]
                for text, body in zip(self.ids, (b"more", b"once"), strict=True)
            ]
        if "QBUS.RELEASE" in words:
            self.released.append(words)
            return 1
        self.is_asked = self.is_asked or "SHOW" in words
        return await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        pass


class TestWaiting:
    async def test_clients_are_served_in_their_order(self, jobs: Jobs) -> None:
        waiting = [jobs.begin("GETJOB FROM q", jobs.new_client()) for _ in range(4)]
        for number in range(3):
            await jobs.add(body=str(number))
        served = [decoded(await asyncio.wait_for(one, 5))[0][2] for one in waiting[:3]]
        assert served == ["0", "1", "2"]
        assert not waiting[3].done()
        waiting[3].cancel()

    async def test_whoever_comes_later_stands_behind_them(self, jobs: Jobs) -> None:
        await jobs.add(body="first")
        assert await jobs.bodies() == ["first"]
        waiting = jobs.begin("GETJOB FROM q")
        added = [jobs.begin(f"ADDJOB q {number} 0") for number in range(2)]
        late = jobs.begin("GETJOB FROM q", jobs.new_client())
        for one in added:
            await one
        assert decoded(await asyncio.wait_for(waiting, 5))[0][2] == "0"
        assert decoded(await asyncio.wait_for(late, 5))[0][2] == "1"

    async def test_one_that_waits_for_several_queues_gets_one_job(self, jobs: Jobs) -> None:
        await jobs.add("b")
        assert await jobs.bodies(queue="b") == ["body"]
        waiting = jobs.begin("GETJOB COUNT 5 FROM a b c")
        await jobs.add("b", "x")
        assert decoded(await asyncio.wait_for(waiting, 5))[0][2] == "x"
        await jobs.add("a", "y")
        assert await jobs.bodies(queue="a") == ["y"]
        assert [jobs.service.need_queue(name).blocked for name in (b"a", b"b", b"c")] == [0, 0, 0]

    async def test_a_client_that_is_gone_gets_nothing(self, jobs: Jobs) -> None:
        waiting = jobs.begin("GETJOB FROM q")
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        await jobs.add()
        assert await jobs.bodies() == ["body"]

    async def test_a_job_that_was_taken_for_it_goes_back(self, jobs: Jobs) -> None:
        await jobs.plane.create("other", qbus_delay_enable=True)
        await jobs.add()
        assert jobs.service.find_queue(b"other") is not None
        reply = jobs.begin("GETJOB FROM q other")
        assert not reply.done(), "the jobs of several queues are taken in a task"
        reply.cancel()
        await asyncio.sleep(0.02)
        await jobs.settled()
        ((_, _, _, *counters),) = await jobs.ask("GETJOB NOHANG WITHCOUNTERS FROM q")
        assert counters == ["nacks", 0, "additional-deliveries", 0]

    @pytest.mark.sources
    async def test_a_partition_that_fails_costs_no_job_of_another(
        self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await jobs.plane.create("q", 2, qbus_delay_enable=True)
        await jobs.add(options="RETRY 0")
        first, second = jobs.service.need_queue(b"q").parts

        async def fail(*_: object, **__: object) -> None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        monkeypatch.setattr(ShareQueue, "length", 1)
        take = ShareQueue.take

        async def take_or_fail(queue: ShareQueue, *arguments: Any, **named: Any) -> Any:
            if queue is second.queue:
                await fail()
            return await take(queue, *arguments, **named)

        monkeypatch.setattr(ShareQueue, "take", take_or_fail)
        assert await jobs.bodies("COUNT 10") == ["body"]
        assert await jobs.ask("GETJOB NOHANG COUNT 10 FROM q") is None
        assert first.queue.group == GROUP

    async def test_a_group_whose_state_is_deleted_begins_anew(self, jobs: Jobs) -> None:
        await jobs.add(body="first")
        assert await jobs.bodies() == ["first"]
        await jobs.plane.queues.delete(jobs.partition(), GROUP)
        waiting = jobs.begin("GETJOB FROM q", jobs.new_client())
        assert decoded(await asyncio.wait_for(waiting, 5))[0][2] == "first"
        await jobs.plane.queues.delete(jobs.partition(), GROUP)
        await jobs.add(body="second")
        await eventually(lambda: jobs.service.need_queue(b"q").length == 2)
        assert await jobs.bodies() == ["first", "second"]

    async def test_one_command_names_not_too_many_queues(self, jobs: Jobs) -> None:
        names = " ".join(f"q{number}" for number in range(1001))
        assert str(await jobs.ask(f"GETJOB FROM {names}")).startswith("ERR at most 1000 queues")
        assert await jobs.ask(f"GETJOB NOHANG FROM {names[:3000]}") is None
        assert jobs.service.known_queues() == []

    @pytest.mark.parametrize("command", ["ACKJOB", "FASTACK", "DELJOB", "NACK", "ENQUEUE"])
    async def test_one_command_names_not_too_many_jobs(self, jobs: Jobs, command: str) -> None:
        ids = " ".join(["D-00000000-AAAAAAAAAAAAAAAAAAAAAAAA-05a1"] * 10_001)
        assert str(await jobs.ask(f"{command} {ids}")).startswith("ERR at most 10000 jobs")

    async def test_what_came_from_another_node_too_late_is_for_the_next(self, jobs: Jobs) -> None:
        queue = jobs.service.need_queue(b"q")
        came = Job(b"q", "D-00000000-AAAAAAAAAAAAAAAAAAAAAAAA-05a0", b"late")
        assert not queue.give_from_elsewhere(TakenJob(came, None))
        queue.keep(TakenJob(came, None))
        assert queue.unwanted() == []  # at most once: it cannot be given back
        assert await jobs.ask("QLEN q") == 1
        assert await jobs.ask("GETJOB FROM q other") == [["q", came.id, "late"]]
        assert jobs.service.need_queue(b"other").blocked == 0
        queue.keep(TakenJob(Job(b"q", came.id[:-1] + "1", b"late"), None))
        assert len(queue.unwanted()) == 1
        assert await jobs.ask("QLEN q") == 0

    async def test_a_node_gives_back_what_its_clients_still_have(self, jobs: Jobs) -> None:
        job = await jobs.add(options="RETRY 5")
        assert await jobs.bodies() == ["body"]
        await jobs.pass_time(6)
        assert await jobs.bodies() == ["body"], "its lock ran out, and somebody else has it"
        assert await jobs.ask(f"QBUS.LOCAL QBUS.RELEASE {job} 0 0") == 0
        assert await jobs.bodies() == []
        assert await jobs.ask(f"QBUS.LOCAL QBUS.RELEASE {job} 0 1") == 1
        assert await jobs.bodies() == ["body"]

    async def test_what_a_client_left_long_ago_is_not_taken_from_who_has_it(
        self, jobs: Jobs
    ) -> None:
        await jobs.add(options="RETRY 5")
        (late,) = await jobs.service.need_queue(b"q").take(1)
        await jobs.pass_time(6)
        assert await jobs.bodies() == ["body"]
        await jobs.service.give_back(late)
        assert await jobs.bodies() == []
        await jobs.pass_time(6)
        (soon,) = await jobs.service.need_queue(b"q").take(1)
        await jobs.service.give_back(soon)
        assert await jobs.bodies() == ["body"]

    async def test_another_node_gets_only_what_is_led_here(self, jobs: Jobs) -> None:
        queue = jobs.service.need_queue(b"q")
        waiting = jobs.begin("QBUS.LOCAL GETJOB FROM q", jobs.new_client())
        await eventually(lambda: queue.blocked == 1)
        assert queue.own_clients(9) == 0
        came = Job(b"q", "D-00000000-AAAAAAAAAAAAAAAAAAAAAAAA-05a1", b"from elsewhere")
        assert not queue.give_from_elsewhere(TakenJob(came, None))
        queue.keep(TakenJob(came, None))
        again = jobs.begin("QBUS.LOCAL GETJOB FROM q", jobs.new_client())
        await eventually(lambda: queue.blocked == 2)
        assert await jobs.ask("QBUS.LOCAL GETJOB NOHANG FROM q") is None
        for body in ("one", "two"):
            await jobs.add(body=body)
        for one, body in ((waiting, "one"), (again, "two")):
            assert decoded(await asyncio.wait_for(one, 5))[0][2] == body
        assert await jobs.bodies("COUNT 9") == ["from elsewhere"]

    async def test_a_node_that_waits_keeps_nothing_from_elsewhere_from_own_clients(
        self, jobs: Jobs
    ) -> None:
        queue = jobs.service.need_queue(b"q")
        waiting = jobs.begin("QBUS.LOCAL GETJOB FROM q", jobs.new_client())
        await eventually(lambda: queue.blocked == 1)
        came = Job(b"q", "D-00000000-AAAAAAAAAAAAAAAAAAAAAAAA-05a0", b"once")
        queue.keep(TakenJob(came, None))
        assert await jobs.ask("QBUS.LOCAL GETJOB NOHANG FROM q") is None
        assert await jobs.bodies() == ["once"]
        assert not waiting.done()
        await jobs.add(body="here")
        assert decoded(await asyncio.wait_for(waiting, 5))[0][2] == "here"

    async def test_what_comes_from_another_node_to_a_paused_queue_is_for_who_waits_then(
        self, jobs: Jobs
    ) -> None:
        queue = jobs.service.need_queue(b"q")
        assert await jobs.ask("PAUSE q out") == "out"
        waiting = jobs.begin("GETJOB FROM q", jobs.new_client())
        await eventually(lambda: queue.blocked == 1)
        for body in (b"one", b"two"):
            came = TakenJob(Job(b"q", "D-00000000-AAAAAAAAAAAAAAAAAAAAAAAA-05a0", body), None)
            assert not queue.give_from_elsewhere(came)
            queue.keep(came)
        assert not waiting.done()
        assert await jobs.ask("PAUSE q none") == "none"
        assert decoded(await asyncio.wait_for(waiting, 5))[0][2] == "one"
        assert await jobs.bodies() == ["two"]

    async def test_what_another_node_sends_as_the_last_client_goes_is_given_back(
        self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(service, "_LINGER_S", 0.01)
        monkeypatch.setattr(service, "_CERTAIN_S", -1.0)  # the reply comes late
        peers = Elsewhere()
        node = Node(NODE + 1, "b" * 40, Address("elsewhere", 7711))
        monkeypatch.setattr(jobs.service, "peers", peers)
        monkeypatch.setattr(jobs.service, "others_with", lambda _: [node])
        waiting = jobs.begin("GETJOB FROM q", jobs.new_client())
        await eventually(lambda: peers.is_asked)
        waiting.cancel()
        await eventually(lambda: peers.released == [("QBUS.RELEASE", peers.ids[0], 0, 0)])
        queue = jobs.service.need_queue(b"q")
        assert queue.length == 1, "what is given out once stays for the next client"
        monkeypatch.undo()
        assert await jobs.ask("GETJOB FROM q other") == [["q", peers.ids[1], "once"]]

    async def test_thousands_wait_and_go(self, jobs: Jobs) -> None:
        await jobs.add()
        assert await jobs.bodies() == ["body"]
        waiting = [jobs.begin("GETJOB FROM q", jobs.new_client()) for _ in range(5000)]
        assert jobs.service.need_queue(b"q").blocked == 5000
        for one in waiting[:4990]:
            one.cancel()
        await asyncio.sleep(0)
        assert jobs.service.need_queue(b"q").blocked == 10
        for number in range(10):
            await jobs.add(body=str(number))
        served = [decoded(await asyncio.wait_for(one, 5))[0][2] for one in waiting[4990:]]
        assert served == [str(number) for number in range(10)]

    async def test_the_end_of_the_broker_ends_the_wait(self, jobs: Jobs) -> None:
        waiting = jobs.begin("GETJOB FROM q")
        await asyncio.sleep(0)
        jobs.service.drain()
        assert decoded(await asyncio.wait_for(waiting, 5)) is None
        assert await jobs.ask("GETJOB FROM q") is None

    async def test_a_queue_that_goes_on_serves_those_who_wait(self, jobs: Jobs) -> None:
        await jobs.add()
        assert await jobs.ask("PAUSE q out") == "out"
        waiting = jobs.begin("GETJOB FROM q", jobs.new_client())
        await asyncio.sleep(0.02)
        assert not waiting.done()
        assert await jobs.ask("PAUSE q none") == "none"
        assert decoded(await asyncio.wait_for(waiting, 5))[0][2] == "body"

    async def test_a_job_that_comes_again_serves_those_who_wait(self, jobs: Jobs) -> None:
        await jobs.add(options="RETRY 10")
        assert await jobs.bodies() == ["body"]
        waiting = jobs.begin("GETJOB FROM q", jobs.new_client())
        await jobs.pass_time(11)
        assert decoded(await asyncio.wait_for(waiting, 5))[0][2] == "body"
