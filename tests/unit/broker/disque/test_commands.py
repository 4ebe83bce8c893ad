"""Jobs through their commands: what becomes of them as time passes and disks fail.

The replies to good and bad input are in tests/compat/disque: the same for Disque itself.
"""

import asyncio
import errno
import gc
import os
import random
from dataclasses import replace

import pytest

from qbus.broker.controller.controller import ConfigChange
from qbus.broker.disque import service
from qbus.broker.disque.adding import Adder, NewJob
from qbus.broker.metadata.image import BrokerInfo
from qbus.broker.partition.partition import Partition
from qbus.broker.queues.journal import Entry
from qbus.errors import ApiError, ErrorCode
from qbus.jobs import JobIds, JobOptions, parse_id
from qbus.records import iter_batches
from qbus.records.control import Change, decode_shared, iter_control
from tests.support.data_plane import NODE
from tests.support.resp_client import ReplyError
from tests.support.waiting import eventually

from .jobs import Jobs, decoded

HOUR_S = 3600.0


def changes_from(jobs: Jobs, offset: int) -> list[list[Change]]:
    """What was done with jobs, as each hidden batch from ``offset`` on says."""
    log = jobs.partition().log
    found = log.read(offset, 1 << 20, log.log_end_offset, wait=True)
    assert found is not None
    with found:
        batches = [bytes(batch) for header, batch in iter_batches(found.read()) if header.is_hidden]
    return [
        [change for record in iter_control(batch) for change in decode_shared(record.value).changes]
        for batch in batches
    ]


class BrokenDelays:
    """Fails at whatever it is given."""

    def intake(self, partition: Partition, batch: memoryview, acks: int) -> None:
        raise RuntimeError("a defect")


class TestAcknowledging:
    async def test_those_of_one_turn_are_one_change(self, jobs: Jobs) -> None:
        ids = [await jobs.add(body=str(number)) for number in range(6)]
        await jobs.bodies()
        before = jobs.partition().log.log_end_offset
        replies = [jobs.begin(f"ACKJOB {ids[at]}") for at in (3, 1, 2, 5)]
        replies.append(jobs.begin(f"ACKJOB {ids[2]} {ids[0]}"))
        assert [decoded(await reply) for reply in replies] == [1, 1, 1, 1, 1]
        done = [(one.first, one.last) for batch in changes_from(jobs, before) for one in batch]
        assert len(done) == 2, "of neighbours, with what is between them"
        assert len(changes_from(jobs, before)) == 1
        assert await jobs.ask(f"ACKJOB {' '.join(ids)}") == 1
        await jobs.pass_time(301)
        assert await jobs.bodies() == []

    @pytest.mark.parametrize("seed", range(8))
    async def test_any_of_those_taken_together_can_be_done_apart(
        self, jobs: Jobs, seed: int
    ) -> None:
        rng = random.Random(seed)
        ids = [
            await jobs.add(queue, options=f"RETRY {rng.choice((60, 60, 60, 120))}")
            for queue in "qqqqrqqqqrqqqq"
        ]
        for queue in "qr":
            got = await jobs.ask(f"GETJOB NOHANG COUNT 100 FROM {queue}")
            assert [job[1] for job in got] == [one for one in ids if one in str(got)]
        nobody = JobIds(bytes(16), 0).encode(3, JobOptions(60, 1), 0).decode()
        done = set[str]()
        while len(done) < len(ids):
            some = rng.choices([*ids, nobody], k=rng.randint(1, 6))
            new = set(some) - done - {nobody}
            assert await jobs.ask(f"ACKJOB {' '.join(some)}") == len(new)
            done |= new
        await jobs.pass_time(1000)
        assert await jobs.bodies() == await jobs.bodies(queue="r") == []

    async def test_those_taken_together_come_again_at_their_own_times(self, jobs: Jobs) -> None:
        for number, retry in enumerate([60, 60, 600, 60, 600, 600]):
            await jobs.add(body=str(number), options=f"RETRY {retry}")
        await jobs.bodies()
        await jobs.pass_time(61)
        again = await jobs.ask("GETJOB NOHANG COUNT 100 WITHCOUNTERS FROM q")
        assert [(job[2], job[4], job[6]) for job in again] == [(n, 0, 1) for n in "013"]
        await jobs.pass_time(550)
        assert await jobs.bodies() == ["0", "1", "2", "3", "4", "5"]

    async def test_delayed_ones_are_done_beside_others(self, jobs: Jobs) -> None:
        ids = [await jobs.add(options="DELAY 5"), await jobs.add(), await jobs.add()]
        await jobs.pass_time(6)
        assert len(await jobs.bodies()) == 3
        assert await jobs.ask(f"ACKJOB {' '.join(ids)} {ids[0]}") == 3
        assert await jobs.ask(f"ACKJOB {' '.join(ids)}") == 0

    async def test_nothing_is_left_to_the_garbage_collector(self, jobs: Jobs) -> None:
        await jobs.add()
        gc.collect()
        gc.disable()
        try:
            ids = [await jobs.add() for _ in range(3)]
            await jobs.bodies()
            assert await jobs.ask(f"ACKJOB {' '.join(ids)}") == 3
            await jobs.settled()
            assert not [one for one in gc.get_objects() if isinstance(one, Entry)]
        finally:
            gc.enable()

    async def test_none_is_answered_before_it_is_stored(self, jobs: Jobs) -> None:
        ids = [await jobs.add() for _ in range(3)]
        await jobs.bodies()
        jobs.plane.disk.hold_syncs()
        replies = [jobs.begin(f"ACKJOB {text}") for text in ids]
        await asyncio.sleep(0.02)
        assert not any(reply.done() for reply in replies)
        jobs.plane.disk.release_syncs()
        assert [decoded(await reply) for reply in replies] == [1, 1, 1]

    async def test_what_is_given_back_in_the_same_turn_comes_again(self, jobs: Jobs) -> None:
        ids = [await jobs.add(body=str(number)) for number in range(3)]
        await jobs.bodies()
        words = [f"ACKJOB {ids[0]}", f"NACK {ids[1]}", f"ACKJOB {ids[1]} {ids[2]}"]
        replies = [jobs.begin(line) for line in words]
        counts = [decoded(await reply) for reply in replies]
        assert counts[0] == 1
        await jobs.settled()
        left = await jobs.bodies()
        assert (counts[2], left) in [(2, []), (1, ["1"])]

    @pytest.mark.sources  # a part of the broker fails
    async def test_what_cannot_be_stored_is_not_done(
        self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("qbus.broker.queues.gate._RETRY_S", 0.0)
        ids = [await jobs.add(body=str(number)) for number in range(3)]
        await jobs.bodies()
        with monkeypatch.context() as patch:
            patch.setattr(Partition, "append_own", refuse)
            replies = [jobs.begin(f"ACKJOB {text}") for text in ids]
            for reply in replies:
                assert isinstance(decoded(await reply), ReplyError)
        assert await jobs.ask(f"ACKJOB {ids[0]}") == 1
        await jobs.pass_time(301)
        assert await jobs.bodies() == ["1", "2"]


def refuse(*_: object) -> None:
    raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")


class TestQueuesThatCannotBeUsed:
    """Nothing that is there looks empty."""

    @pytest.mark.parametrize(
        "line",
        [
            "QLEN q",
            "QSTAT q",
            "QPEEK q 1",
            "ADDJOB q body 60000",
            "GETJOB NOHANG FROM q",
            "GETJOB TIMEOUT 60000 FROM q",
        ],
    )
    async def test_a_partition_whose_directory_failed_is_named(self, jobs: Jobs, line: str) -> None:
        await jobs.add("q")
        lose(jobs, "q")
        reply = await asyncio.wait_for(jobs.ask(line), 5)
        assert str(reply).startswith("MISCONF Partition 0 of the queue cannot be used")

    async def test_a_new_queue_that_no_disk_takes_is_refused_at_once(
        self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no data directory can be used")

        monkeypatch.setattr(jobs.plane.logs, "create", fail)
        lose(jobs, "new")
        reply = await asyncio.wait_for(jobs.ask("ADDJOB new body 60000"), 5)
        assert str(reply).startswith("MISCONF Partition 0 of the queue cannot be used")

    async def test_queues_beside_it_go_on(self, jobs: Jobs) -> None:
        await jobs.add("q")
        await jobs.add("other")
        lose(jobs, "q")
        assert await jobs.ask("QLEN other") == 1
        assert len(await jobs.ask("GETJOB NOHANG FROM q other")) == 1


def lose(jobs: Jobs, *topics: str) -> None:
    """Have the directory of the partitions failed, as the broker has announced."""
    for topic in topics:
        partition = jobs.plane.replicas.get_partition(topic, 0)
        if partition is not None:
            partition.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
    brokers = jobs.plane.metadata.brokers
    brokers[NODE] = replace(brokers[NODE], offline=frozenset((topic, 0) for topic in topics))


class TestAdding:
    async def test_a_queue_is_made_by_its_first_job(self, jobs: Jobs) -> None:
        await jobs.add("new")
        (made,) = jobs.controller.created
        assert (made.name, made.partitions, made.replication_factor) == ("new", 1, 1)
        assert made.config == {
            "qbus.delay.enable": "true",
            "qbus.queue.retention": "acknowledged",
            "qbus.queue.idle.ms": "300000",
        }

    async def test_asking_makes_no_queue(self, jobs: Jobs) -> None:
        for line in ("QLEN q", "QSTAT q", "QPEEK q 1", "GETJOB NOHANG FROM q", "PAUSE q in"):
            await jobs.ask(line)
        assert jobs.controller.created == []

    async def test_a_queue_that_cannot_be_made_takes_nothing(self, jobs: Jobs) -> None:
        jobs.controller.refusal = ApiError(ErrorCode.POLICY_VIOLATION, "no more topics")
        reply = await jobs.ask("ADDJOB q body 0")
        assert "the queue cannot be created: no more topics" in str(reply)

    async def test_any_name_will_do(self, jobs: Jobs) -> None:
        text = await jobs.add('"emails: high"')
        assert await jobs.ask('GETJOB FROM "emails: high"') == [["emails: high", text, "body"]]
        assert list(jobs.plane.metadata.topics) == ["disque-x.emails-3a-20high"]

    async def test_a_name_has_its_limits(self, jobs: Jobs) -> None:
        reply = await jobs.ask(f"ADDJOB {'x' * 250} body 0")
        assert isinstance(reply, ReplyError)

    async def test_those_of_one_turn_share_a_batch(self, jobs: Jobs) -> None:
        await jobs.add()
        before = jobs.partition().log.log_end_offset
        replies = [jobs.begin(f"ADDJOB q {number} 0") for number in range(20)]
        ids = [decoded(await reply) for reply in replies]
        log = jobs.partition().log
        found = log.read(before, 1 << 20, log.log_end_offset, wait=True)
        assert found is not None
        with found:
            batches = [header for header, _ in iter_batches(found.read())]
        assert [header.records_count for header in batches if not header.is_control] == [20]
        offsets = [job.offset for job in map(parse_id, ids) if job is not None]
        assert offsets == list(range(before, before + 20))

    async def test_big_ones_go_into_batches_of_their_own(self, jobs: Jobs) -> None:
        await jobs.add()
        big = "x" * 300_000
        replies = [jobs.begin(f"ADDJOB q {big} 0") for _ in range(3)]
        assert len({decoded(await reply) for reply in replies}) == 3

    async def test_one_that_is_too_big_is_refused(self, jobs: Jobs) -> None:
        await jobs.add()
        reply = await jobs.ask(f"ADDJOB q {'x' * 2_000_000} 0")
        assert isinstance(reply, ReplyError)
        assert await jobs.ask("QLEN q") == 1

    async def test_an_id_waits_for_the_disk(self, jobs: Jobs) -> None:
        await jobs.add()
        jobs.plane.disk.hold_syncs()
        reply = jobs.begin("ADDJOB q later 0")
        await asyncio.sleep(0.02)
        assert not reply.done()
        jobs.plane.disk.release_syncs()
        assert isinstance(decoded(await reply), str)

    async def test_those_of_a_pipeline_count_for_the_limit_of_a_queue(self, jobs: Jobs) -> None:
        await jobs.add()
        replies = [jobs.begin("ADDJOB q body 0 MAXLEN 5") for _ in range(100)]
        texts = [str(decoded(await reply)) for reply in replies]
        assert sum(text.startswith("MAXLEN") for text in texts) == 96
        assert await jobs.ask("QLEN q") == 5

    async def test_async_does_not_wait(self, jobs: Jobs) -> None:
        await jobs.add()
        jobs.plane.disk.hold_syncs()
        assert isinstance(await jobs.ask("ADDJOB q now 0 ASYNC"), str)
        jobs.plane.disk.release_syncs()

    @pytest.mark.parametrize("options", ["", "DELAY 100"])
    @pytest.mark.parametrize("command", ["ACKJOB", "FASTACK", "DELJOB", "DEQUEUE", "SHOW"])
    async def test_an_async_one_is_found_by_its_id_before_it_is_on_the_disk(
        self, jobs: Jobs, command: str, options: str
    ) -> None:
        await jobs.add()
        jobs.plane.disk.hold_syncs()
        text = await jobs.ask(f"ADDJOB q now 0 ASYNC {options}")
        reply = jobs.begin(f"{command} {text}")
        await asyncio.sleep(0)
        jobs.plane.disk.release_syncs()
        answer = decoded(await reply)
        if command == "SHOW":
            assert answer[answer.index("id") + 1] == text
            return
        if not (command == "DEQUEUE" and options):  # what is delayed is in no queue yet
            assert answer == 1
        await jobs.settled()
        assert await jobs.bodies() == ["body"]

    async def test_one_that_is_not_safe_in_time_is_taken_back(self, jobs: Jobs) -> None:
        await jobs.add()
        jobs.plane.disk.hold_syncs()
        assert await jobs.ask("ADDJOB q late 20") == ReplyError(
            "NOREPL Timeout reached before replicating to the requested number of nodes"
        )
        jobs.plane.disk.release_syncs()
        await eventually(lambda: jobs.partition().high_watermark >= 3)
        await jobs.settled()
        assert await jobs.bodies() == ["body"]

    async def test_each_has_its_own_time(self, jobs: Jobs) -> None:
        await jobs.add()
        jobs.plane.disk.hold_syncs()
        patient = jobs.begin("ADDJOB q patient 60000")
        await asyncio.sleep(0)
        hasty = [jobs.begin(f"ADDJOB q hasty {ms}") for ms in (40, 20, 60_000, 0)]
        for late in hasty[:2]:
            assert str(decoded(await asyncio.wait_for(late, 5))).startswith("NOREPL Timeout")
        assert not any(one.done() for one in (patient, *hasty[2:]))
        jobs.plane.disk.release_syncs()
        for one in (patient, *hasty[2:]):
            assert isinstance(decoded(await one), str)
        await jobs.settled()
        assert await jobs.bodies() == ["body", "patient", "hasty", "hasty"]

    async def test_many_are_each_told_in_time(self, jobs: Jobs) -> None:
        await jobs.add()
        jobs.plane.disk.hold_syncs()
        late = [jobs.begin(f"ADDJOB q hasty {ms}") for ms in range(1, 101)]
        await asyncio.sleep(0)
        late += [jobs.begin(f"ADDJOB q hasty {ms}") for ms in range(1, 101)]
        for reply in late:
            assert str(decoded(await asyncio.wait_for(reply, 5))).startswith("NOREPL Timeout")
        end = jobs.partition().log.log_end_offset
        jobs.plane.disk.release_syncs()
        await eventually(lambda: jobs.partition().high_watermark > end)  # they are taken back
        await jobs.settled()
        assert await jobs.bodies() == ["body"]

    async def test_a_defect_leaves_nobody_waiting(self, jobs: Jobs) -> None:
        await jobs.add()
        adder = Adder(BrokenDelays(), jobs.clock.time_ms, lambda *_: None)
        added = [NewJob(b"body", JobOptions(60, 1, delay)) for delay in (10, 20)]
        for job in added:
            adder.add(jobs.partition(), JobIds(bytes(16), 0), job)
        for job in added:
            assert str(decoded(await asyncio.wait_for(job.reply, 5))) == "ERR a defect"

    async def test_nor_is_a_delayed_one_that_is_not_safe_in_time(self, jobs: Jobs) -> None:
        await jobs.add()
        jobs.plane.disk.hold_syncs()
        reply = await jobs.ask("ADDJOB q late 20 DELAY 10")
        assert str(reply).startswith("NOREPL Timeout")
        end = jobs.partition().log.log_end_offset
        jobs.plane.disk.release_syncs()
        await eventually(lambda: jobs.partition().high_watermark > end)  # the cancellation
        await jobs.settled()
        await jobs.pass_time(11)
        assert await jobs.bodies() == ["body"]

    async def test_a_full_broker_takes_none(self, jobs: Jobs) -> None:
        await jobs.add()
        jobs.plane.metadata.brokers[NODE] = BrokerInfo(NODE, "127.0.0.1", 9092, is_full=True)
        reply = await jobs.ask("ADDJOB q body 0")
        assert str(reply) == "OOM command not allowed when used memory > 'maxmemory'."
        assert await jobs.bodies() == ["body"]

    async def test_the_job_that_finds_the_disk_full_is_refused_as_those_after_it(
        self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await jobs.add()

        def write(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            for name in ("write", "pwrite", "writev", "pwritev"):
                patch.setattr(os, name, write)
            reply = await jobs.ask("ADDJOB q body 0")
        assert str(reply) == "OOM command not allowed when used memory > 'maxmemory'."

    async def test_a_topic_without_delays_takes_no_delayed_ones(self, jobs: Jobs) -> None:
        await jobs.plane.create("plain")
        assert "qbus.delay.enable=false" in str(await jobs.ask("ADDJOB plain body 0 DELAY 5"))
        await jobs.add("plain")
        assert await jobs.bodies(queue="plain") == ["body"]

    async def test_the_id_says_what_was_asked_for(self, jobs: Jobs) -> None:
        job = parse_id(await jobs.add(options="TTL 7200 DELAY 60"))
        assert job is not None
        assert job.is_delayed
        assert job.seconds == jobs.clock.time_ms() // 1000 + 60
        assert job.text.endswith(f"{7200 // 60 | 1:04x}")
        assert job.node == jobs.service.nodes.name[:8]


class TestTime:
    async def test_retry_hour_by_hour(self, jobs: Jobs) -> None:
        text = await jobs.add(options=f"RETRY {int(HOUR_S)} TTL 86400")
        for hour in range(5):
            assert await jobs.ask("GETJOB NOHANG WITHCOUNTERS FROM q") == [
                ["q", text, "body", "nacks", 0, "additional-deliveries", hour]
            ]
            await jobs.pass_time(HOUR_S - 1)
            assert await jobs.bodies() == []
            await jobs.pass_time(1.1)

    async def test_a_job_without_retry_never_comes_again(self, jobs: Jobs) -> None:
        await jobs.add(options="RETRY 0 TTL 864000")
        assert await jobs.bodies() == ["body"]
        for _ in range(24):
            await jobs.pass_time(HOUR_S)
            assert await jobs.bodies() == []

    async def test_nor_after_a_restart(self, jobs: Jobs) -> None:
        await jobs.add(options="RETRY 0")
        assert await jobs.bodies() == ["body"]
        await jobs.restart()
        assert await jobs.bodies() == []

    async def test_one_with_retry_comes_again_after_a_restart(self, jobs: Jobs) -> None:
        text = await jobs.add()
        assert await jobs.bodies() == ["body"]
        await jobs.restart()
        assert await jobs.ask("GETJOB NOHANG FROM q") == [["q", text, "body"]]

    async def test_what_is_done_is_done_after_a_restart(self, jobs: Jobs) -> None:
        text = await jobs.add()
        assert await jobs.ask(f"ACKJOB {text}") == 1
        await jobs.restart()
        assert await jobs.bodies() == []
        assert await jobs.ask(f"ACKJOB {text}") == 0

    @pytest.mark.parametrize("hours", [1, 23, 25])
    async def test_delay_hour_by_hour(self, jobs: Jobs, hours: int) -> None:
        seconds = int(hours * HOUR_S)
        text = await jobs.add(options=f"DELAY {seconds} TTL {2 * seconds}")
        for _ in range(hours - 1):
            await jobs.pass_time(HOUR_S)
        await jobs.pass_time(HOUR_S - 1)
        assert await jobs.bodies() == []
        assert (await jobs.ask(f"SHOW {text}"))[5] == "active"
        waiting = jobs.begin("GETJOB FROM q")
        await jobs.pass_time(2)
        assert decoded(await asyncio.wait_for(waiting, 5)) == [["q", text, "body"]]
        assert await jobs.ask(f"ACKJOB {text}") == 1

    async def test_a_delayed_job_is_found_by_its_id_after_a_restart(self, jobs: Jobs) -> None:
        text = await jobs.add(options="DELAY 10")
        await jobs.pass_time(11)
        await eventually(lambda: jobs.partition().visible_end > 1)
        await jobs.settled()
        await jobs.restart()
        assert (await jobs.ask(f"SHOW {text}"))[5] == "queued"
        assert await jobs.ask(f"ACKJOB {text}") == 1
        assert await jobs.bodies() == []

    async def test_the_time_to_live_ends_a_job(self, jobs: Jobs) -> None:
        text = await jobs.add(options=f"TTL {int(HOUR_S)}")
        await jobs.pass_time(HOUR_S - 1)
        assert (await jobs.ask(f"SHOW {text}"))[9] == 1
        await jobs.pass_time(2)
        assert await jobs.bodies() == []
        assert await jobs.ask(f"SHOW {text}") is None

    async def test_jobs_that_nobody_takes_give_room_once_they_are_too_old(self, jobs: Jobs) -> None:
        for number in range(50):
            await jobs.add(
                body=str(number), options=f"RETRY 1000 TTL {100 if number < 30 else 10_000}"
            )
        assert await jobs.bodies("COUNT 2") == ["0", "1"]
        await jobs.pass_time(101)
        assert await jobs.service.expiry.look(jobs.service.local_queues()) == 28
        assert await jobs.ask("QLEN q") == 20
        assert await jobs.service.expiry.look(jobs.service.local_queues()) == 0

    @pytest.mark.parametrize(("elapsed", "allowed"), [(49, True), (50, True), (51, False)])
    async def test_working_is_for_the_first_half_of_it(
        self, jobs: Jobs, elapsed: int, allowed: bool
    ) -> None:
        text = await jobs.add(options="TTL 100 RETRY 80")
        assert await jobs.bodies() == ["body"]
        await jobs.pass_time(elapsed)
        reply = await jobs.ask(f"WORKING {text}")
        assert reply == 80 if allowed else str(reply).startswith("TOOLATE")

    async def test_working_begins_the_retry_time_anew(self, jobs: Jobs) -> None:
        text = await jobs.add(options="RETRY 100 TTL 10000")
        assert await jobs.bodies() == ["body"]
        for _ in range(10):
            await jobs.pass_time(90)
            assert await jobs.ask(f"WORKING {text}") == 100
            assert await jobs.bodies() == []
        await jobs.pass_time(101)
        assert await jobs.bodies() == ["body"]

    async def test_a_nack_may_wait(self, jobs: Jobs) -> None:
        text = await jobs.add()
        assert await jobs.bodies() == ["body"]
        assert await jobs.ask(f"NACK {text} DELAY 60") == 1
        await jobs.pass_time(59)
        assert await jobs.bodies() == []
        await jobs.pass_time(2)
        assert await jobs.bodies() == ["body"]

    async def test_a_nack_waits_as_the_queue_says(self, jobs: Jobs) -> None:
        text = await jobs.add(options="RETRY 3600")
        assert await jobs.bodies() == ["body"]
        assert await jobs.ask(f"NACK {text}") == 1
        assert await jobs.bodies() == ["body"], "Disque puts it back at once"
        assert await jobs.ask(f"NACK {text}") == 1
        assert await jobs.bodies() == []
        await jobs.pass_time(0.12)
        assert await jobs.bodies() == ["body"]

    async def test_a_client_s_queue_has_no_limit_of_deliveries(self, jobs: Jobs) -> None:
        text = await jobs.add(options="RETRY 3600")
        for _ in range(10):
            assert await jobs.bodies() == ["body"]
            assert await jobs.ask(f"NACK {text} DELAY 0") == 1

    async def test_a_limit_of_the_queue_holds_from_when_it_is_set(self, jobs: Jobs) -> None:
        text = await jobs.add(options="RETRY 3600")
        topic = jobs.service.metadata.topics["q"]
        limit = {"qbus.queue.delivery.limit": "2"}
        await jobs.controller.alter_topic_configs(
            [ConfigChange(topic.name, lambda config: {**config, **limit})]
        )
        await jobs.settled()
        for _ in range(2):
            assert await jobs.bodies() == ["body"]
            await jobs.ask(f"NACK {text} DELAY 0")
        assert (await jobs.bodies(), await jobs.ask("QLEN q")) == ([], 0)

    async def test_a_nack_cannot_wait_a_negative_time(self, jobs: Jobs) -> None:
        text = await jobs.add()
        reply = await jobs.ask(f"NACK {text} DELAY -1")
        assert str(reply) == "ERR DELAY time must be a non negative number"


class TestPausing:
    async def test_on_all_nodes_it_is_a_setting_of_the_topic(self, jobs: Jobs) -> None:
        await jobs.add()
        assert await jobs.ask("PAUSE q in bcast") == "in"
        assert jobs.plane.metadata.topics["q"].config["qbus.queue.pause"] == "in"
        await jobs.restart()
        assert await jobs.ask("PAUSE q state") == "in"
        assert await jobs.ask("PAUSE q none bcast") == "none"
        assert "qbus.queue.pause" not in jobs.plane.metadata.topics["q"].config

    async def test_names_without_jobs_are_not_kept_without_end(
        self, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(service, "MOST_QUEUES", 5)
        replies = [str(await jobs.ask(f"PAUSE q{number} in")) for number in range(8)]
        assert replies == ["in"] * 5 + ["ERR there are too many queues without a job"] * 3

    async def test_on_one_node_it_ends_with_the_node(self, jobs: Jobs) -> None:
        await jobs.add()
        assert await jobs.ask("PAUSE q out") == "out"
        await jobs.restart()
        assert await jobs.ask("PAUSE q state") == "none"


class TestResults:
    async def test_whoever_waits_for_a_job_gets_its_result(self, jobs: Jobs) -> None:
        text = await jobs.add()
        waiting = jobs.begin(f"WAITJOB {text}", jobs.new_client())
        await asyncio.sleep(0.02)
        assert not waiting.done()
        assert await jobs.ask(f"ACKJOB {text} RESULT done") == 1
        assert decoded(await asyncio.wait_for(waiting, 5)) == "done"
        assert await jobs.ask(f"WAITJOB {text}") == "done"

    async def test_one_that_is_too_large_is_refused(self, jobs: Jobs) -> None:
        text = await jobs.add()
        reply = await jobs.ask(f"ACKJOB {text} RESULT {'x' * (1 << 20)}")
        assert "the result is too large" in str(reply)
        assert await jobs.bodies() == ["body"]
        assert await jobs.ask(f"ACKJOB {text} RESULT {'x' * 1_000_000}") == 1
        assert await jobs.ask(f"WAITJOB {text}") == "x" * 1_000_000

    async def test_one_needs_a_body(self, jobs: Jobs) -> None:
        text = await jobs.add()
        assert str(await jobs.ask(f"ACKJOB {text} RESULT")) == "ERR syntax error"
        assert str(await jobs.ask(f"NACK {text} DELAY")) == "ERR syntax error"
        assert await jobs.ask(f"ACKJOB {text} RESULT result") == 1

    async def test_there_need_be_none(self, jobs: Jobs) -> None:
        text = await jobs.add()
        assert await jobs.ask(f"ACKJOB {text}") == 1
        assert await jobs.ask(f"WAITJOB {text}") is None

    async def test_the_wait_has_a_limit(self, jobs: Jobs) -> None:
        text = await jobs.add()
        assert await jobs.ask(f"WAITJOB {text} 20") is None
        assert str(await jobs.ask(f"WAITJOB {text} -1")) == "ERR timeout is negative"
        assert str(await jobs.ask(f"WAITJOB {text} 1 2")).startswith("ERR wrong number")


class TestLooking:
    async def test_jscan_finds_all_in_small_steps(self, jobs: Jobs) -> None:
        ids = {await jobs.add(queue) for queue in ("a", "b", "c") for _ in range(7)}
        found, cursor = [], "0"
        while True:
            cursor, some = await jobs.ask(f"JSCAN {cursor} COUNT 2")
            found += some
            if cursor == "0":
                break
        assert sorted(found) == sorted(ids)

    async def test_jscan_finds_delayed_ones_too(self, jobs: Jobs) -> None:
        ids = {await jobs.add(queue) for queue in ("a", "b") for _ in range(2)}
        delayed = {await jobs.add("b", options=f"DELAY {10 + n}") for n in range(5)}
        found, cursor, steps = list[str](), "0", 0
        while cursor != "0" or not steps:
            cursor, some = await jobs.ask(f"JSCAN {cursor} COUNT 2")
            found, steps = found + some, steps + 1
        assert sorted(found) == sorted(ids | delayed)
        assert steps >= 5
        _, active = await jobs.ask("JSCAN BUSYLOOP STATE active")
        assert set(active) == delayed
        _, queued = await jobs.ask("JSCAN BUSYLOOP STATE queued")
        assert set(queued) == ids
        _, (whole, *_) = await jobs.ask("JSCAN BUSYLOOP QUEUE b STATE active REPLY all")
        assert whole == await jobs.ask(f"SHOW {whole[1]}")
        await jobs.pass_time(30)
        _, again = await jobs.ask("JSCAN BUSYLOOP QUEUE b STATE queued")
        assert set(again) >= delayed, "they keep their ids"
        assert await jobs.ask("JSCAN BUSYLOOP QUEUE b STATE active") == ["0", []]

    async def test_the_newest_are_found_behind_what_is_done(self, jobs: Jobs) -> None:
        replies = [jobs.begin(f"ADDJOB q {number} 0") for number in range(3000)]
        ids = [decoded(await reply) for reply in replies]
        assert await jobs.ask(f"ACKJOB {' '.join(ids[7:2990])}") == 2983
        peeked = await jobs.ask("QPEEK q -14")
        wanted = [*range(2999, 2989, -1), 6, 5, 4, 3]
        assert [body for _, _, body in peeked] == [str(number) for number in wanted]
        assert len(await jobs.ask("QPEEK q -100")) == 17
        assert [body for _, _, body in await jobs.ask("QPEEK q 8")][-1] == "2990"

    async def test_qscan_finds_all_in_small_steps(self, jobs: Jobs) -> None:
        for number in range(20):
            await jobs.add(f"queue-{number}")
        found, cursor = [], "0"
        while True:
            cursor, some = await jobs.ask(f"QSCAN {cursor} COUNT 3")
            found += some
            if cursor == "0":
                break
        assert sorted(found) == sorted(f"queue-{number}" for number in range(20))

    async def test_a_record_that_a_kafka_client_sent_is_a_job(self, jobs: Jobs) -> None:
        await jobs.add()
        assert await jobs.bodies() == ["body"]
        from qbus.records import build_batch

        batch = build_batch([(b"key", b"from kafka", [("h", b"1")], jobs.clock.time_ms())])
        jobs.partition().append(memoryview(batch), -1)
        await jobs.settled()
        ((_, text, body),) = await jobs.ask("GETJOB NOHANG FROM q")
        assert body == "from kafka"
        assert text.endswith("-ffff")
        pairs = await jobs.ask(f"SHOW {text}")
        described = dict(zip(pairs[::2], pairs[1::2], strict=True))
        assert described["retry"] == 300
        assert described["ttl"] > JobOptions(10**8, 0).ttl
        assert await jobs.ask(f"ACKJOB {text}") == 1

    async def test_idle_queues_are_forgotten(self, jobs: Jobs) -> None:
        waiting = jobs.begin("GETJOB TIMEOUT 1 FROM nothing")
        await waiting
        assert len(jobs.service.known_queues()) == 1
        jobs.service.known_queues()[0].used_at -= 400
        jobs.service.look_after_queues()
        assert jobs.service.known_queues() == []


class TestConnections:
    async def test_the_handshake_of_newer_redis_clients(self, jobs: Jobs) -> None:
        assert (await jobs.ask("HELLO 2"))[:2] == ["server", "disque"]
        assert b"%7\r\n" in await jobs.begin("HELLO 3")
        assert await jobs.ask("HELLO 3 SETNAME worker")
        assert str(await jobs.ask("HELLO 3 SETNAME a\x01b")).startswith("ERR Client names cannot")
        assert jobs.client.name == b"worker"
        assert str(await jobs.ask("HELLO 3 FOO")) == "ERR syntax error"

    async def test_a_password_may_come_with_it(self, jobs: Jobs) -> None:
        jobs.service.authentication.password = b"secret"
        assert str(await jobs.ask("HELLO")) == "NOAUTH Authentication required."
        assert str(await jobs.ask("HELLO 3")) == "NOAUTH Authentication required."
        refused = str(await jobs.ask("HELLO 3 AUTH default wrong"))
        assert refused == "WRONGPASS invalid username-password pair or user is disabled."
        assert await jobs.ask("HELLO 3 AUTH default secret")
        assert await jobs.ask("PING") == "PONG"

    async def test_a_password_may_be_any_bytes(self, jobs: Jobs) -> None:
        assert await jobs.ask('CONFIG SET requirepass "\\xff\\x00"') == "OK"
        assert str(await jobs.ask("PING")) == "NOAUTH Authentication required."
        assert str(await jobs.ask('AUTH "\\xfe"')) == "ERR invalid password"
        assert await jobs.ask('AUTH "\\xff\\x00"') == "OK"
        assert await jobs.ask("CONFIG GET requirepass") == ["requirepass", "********"]

    async def test_a_long_pattern_is_refused_before_it_is_compiled(self, jobs: Jobs) -> None:
        """Python takes ten seconds to compile a megabyte of them."""
        assert await jobs.ask("CONFIG GET " + "[d]*" * 32) == []
        refused = str(await jobs.ask("CONFIG GET " + "?" * 129))
        assert refused == "ERR a pattern has at most 128 bytes"

    @pytest.mark.parametrize("line", ["SHUTDOWN", "DEBUG FLUSHALL", "DEBUG SLEEP 0"])
    async def test_what_does_harm_is_not_for_everybody(self, jobs: Jobs, line: str) -> None:
        assert "disque.admin.enable is false" in str(await jobs.ask(line))

    async def test_debug_flushall_ends_all_jobs(self, jobs: Jobs) -> None:
        jobs.service.config = jobs.plane.config.with_static({"disque.admin.enable": "true"})
        for queue in ("a", "b"):
            for _ in range(3):
                await jobs.add(queue)
        assert await jobs.ask("DEBUG FLUSHALL") == "OK"
        assert await jobs.bodies(queue="a b") == []
        assert await jobs.ask("QSCAN BUSYLOOP") == ["0", []], "Disque forgets empty queues"
        await jobs.add("a")
        assert await jobs.ask("QSCAN BUSYLOOP") == ["0", ["a"]]
        assert await jobs.bodies(queue="a") == ["body"]
        assert await jobs.ask("DEBUG SLEEP 0.01") == "OK"

    async def test_only_nodes_leave(self, jobs: Jobs) -> None:
        assert str(await jobs.ask("QBUS.LEAVES somebody yes")) == "ERR no such node"
        name = jobs.service.nodes.name
        assert await jobs.ask(f"QBUS.LEAVES {name} yes") == "OK"
        assert await jobs.ask("CLUSTER LEAVING") == "yes"

    async def test_all_clients_are_not_paused_for_good(self, jobs: Jobs) -> None:
        assert await jobs.ask("CLIENT PAUSE 9223372036854775807") == "OK"
        assert jobs.admin.is_paused
        left = jobs.admin.paused_until - asyncio.get_running_loop().time()
        assert 0 < left <= 60

    async def test_a_word_that_is_no_command(self, jobs: Jobs) -> None:
        assert "unknown command" in str(await jobs.ask(f'"{chr(233)}\\xff" a'))
