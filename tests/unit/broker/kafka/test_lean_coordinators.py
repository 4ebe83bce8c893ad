"""Commits and transactions by the lean way and the general one: the same answers."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qbus.broker.authorization import AccessControl, AclAuthorizer
from qbus.broker.broker import Broker
from qbus.broker.controller import NewTopic
from qbus.broker.kafka import dispatch
from qbus.broker.kafka.dispatch import Dispatcher, PendingReply
from qbus.broker.kafka.lean import LEAN
from qbus.broker.kafka.lean_answers import ExclusiveAnswer, RepeatableAnswer
from qbus.broker.net.peer import Peer
from qbus.broker.startup import running_broker
from qbus.broker.transaction import State
from qbus.clock import SystemClock
from qbus.config import BrokerConfig, ListenerInfo
from qbus.errors import ApiError, ErrorCode
from qbus.metadata.client_quotas import DEFAULT, QuotaEntity
from qbus.security.acls import AclIndex, Entry, Operation, Pattern, Permission, ResourceType
from qbus.wire import ApiKey, Struct, decode_response, encode_request, lean
from qbus.wire.messages.end_txn import EndTxnRequest
from qbus.wire.messages.init_producer_id import InitProducerIdRequest
from qbus.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from qbus.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from qbus.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.logs import batch, transactional
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(not lean.IS_BUILT, reason="nothing was compiled here")

HERE = ListenerInfo.plaintext("127.0.0.1", 9)
NAMES = ("a", "b")
TOPICS = ("t", "u")
PARTITIONS = 5


class Way:
    """A broker, and what answers requests to it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.peer = Peer(1, "127.0.0.1", HERE)
        self.dispatcher = Dispatcher(broker)
        self.names: dict[str, str] = {}  # of what is chosen at random
        for name in TOPICS:
            self.names[str(broker.metadata.topics[name].id)] = f"the id of {name}"

    def restrict(self) -> AclIndex:
        """Have access rules, of which there are none yet."""
        rules = AclIndex()
        self.dispatcher = Dispatcher(self.broker, AccessControl(AclAuthorizer(rules)))
        return rules

    def begin(self, key: ApiKey, version: int, request: Struct) -> Any:
        frame = b"".join(map(bytes, encode_request(key, version, 7, "test", request)))[4:]
        return self.dispatcher(self.peer, memoryview(bytearray(frame)))

    async def ask(self, key: ApiKey, version: int, request: Struct) -> bytes:
        return await answered(self.begin(key, version, request))


async def answered(reply: Any) -> bytes:
    assert reply is not None
    if isinstance(reply, PendingReply):
        done = asyncio.Event()
        reply.on_done(done.set)
        await asyncio.wait_for(done.wait(), 10)
        reply = reply.result()
    return b"".join(map(bytes, reply))


@pytest.fixture(params=["zookeeper", "log"])
async def both(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[Way]]:
    async with AsyncExitStack() as stack:
        ways = []
        for name, table in (("lean", LEAN), ("general", {})):
            settings = {
                "log.dirs": [str(tmp_path / name)],
                "offsets.storage": request.param,
                "offsets.topic.num.partitions": 1,
                "transaction.state.log.num.partitions": 1,
                "offset.metadata.max.bytes": 10,
                "durability": "memory",
            }
            running = running_broker(BrokerConfig(settings), SystemClock(), [HERE])
            broker = await stack.enter_async_context(running)
            await broker.controller.create_topics([NewTopic("t", PARTITIONS), NewTopic("u", 1)])
            await broker.transactions.coordinator("a")
            await broker.groups.find_coordinator("g")
            await eventually(lambda broker=broker: is_ready(broker))  # type: ignore[misc]
            with monkeypatch.context() as patch:
                patch.setattr(dispatch, "LEAN", table)
                ways.append(Way(broker))
        yield ways


def is_ready(broker: Broker) -> bool:
    has_offsets = any(list(log.shards()) for log in broker.groups.logs)
    wants_offsets = broker.config.offsets_storage == "log"
    return bool(list(broker.transactions.log.shards())) and has_offsets >= wants_offsets


async def alike(both: list[Way], key: ApiKey, version: int, requests: list[Any]) -> Any:
    """What both answer, which is the same but for what is chosen at random."""
    found, seen = [], []
    for way, request in zip(both, requests, strict=True):
        answer = await way.ask(key, version, request)
        found.append(decode_response(key, version, memoryview(answer)[4:])[1])
        seen.append(str(found[-1]))
        for known, stands_for in way.names.items():
            seen[-1] = seen[-1].replace(known, stands_for)
    assert seen[0] == seen[1], (key.name, version, requests[0])
    return found[0]


def commit_request(way: Way, version: int, topics: Any, **fields: Any) -> OffsetCommitRequest:
    """``topics``: a name and positions (index, offset, leader epoch, metadata) of each."""
    wanted = []
    for name, positions in topics:
        one = OffsetCommitRequestTopic(
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=epoch,
                    committed_metadata=text,
                )
                for index, offset, epoch, text in positions
            ]
        )
        if version >= 10:
            known = way.broker.metadata.topics.get(name)
            one.topic_id = known.id if known else b"unknown-topic-id"
        else:
            one.name = name
        wanted.append(one)
    known_fields: dict[str, Any] = {"group_id": "g", "topics": wanted}
    return OffsetCommitRequest(**(known_fields | fields))


def random_commit(chance: random.Random) -> tuple[Any, dict[str, Any]]:
    count = chance.randint(0, 3) if chance.random() < 0.2 else 1
    if chance.random() < 0.3:
        indexes = chance.sample(range(PARTITIONS), chance.randint(1, PARTITIONS))
        some = [
            (index, chance.randint(0, 99), -1, chance.choice(["", "note"])) for index in indexes
        ]
        return [("t", some)], {"group_id": chance.choice(["g", "h"])}
    positions = [
        (
            chance.choice([0, 0, 1, 1, PARTITIONS, -1]) if chance.random() < 0.3 else 0,
            chance.choice([0, 7, 2**40]),
            chance.choice([-1, 0, 3]),
            chance.choice([None, "", "note", "nöte", "much too long for it"])
            if chance.random() < 0.3
            else "",
        )
        for _ in range(count)
    ]
    name = chance.choice(["t", "t", "u", "unknown"]) if chance.random() < 0.3 else "t"
    topics = [(name, positions)]
    if chance.random() < 0.3:
        topics.append(("u", [(0, chance.randint(0, 99), -1, "")]))
    fields: dict[str, Any] = {"group_id": chance.choice(["g", "g", "h", "gröup", ""])}
    if chance.random() < 0.2:
        fields |= {"generation_id_or_member_epoch": chance.choice([0, 1]), "member_id": "m"}
    if chance.random() < 0.1:
        fields["group_instance_id"] = chance.choice(["", "i"])
    return topics, fields


@pytest.mark.parametrize("seed", range(3))
async def test_random_commits_are_answered_alike(both: list[Way], seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(80):
        version = chance.choice([7, 8, 9, 10])
        topics, fields = random_commit(chance)
        requests = [commit_request(way, version, topics, **fields) for way in both]
        await alike(both, ApiKey.OFFSET_COMMIT, version, requests)
        asked = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=fields["group_id"], topics=None)]
        )
        await alike(both, ApiKey.OFFSET_FETCH, 9, [asked] * 2)
    assert both[0].broker.groups.commits == both[1].broker.groups.commits > 0
    for way in both:
        for log in way.broker.groups.logs:
            before = [dict(machine.committed()) for machine in log.machines()]
            for shard in list(log.shards()):
                log._load_again(shard)
            await eventually(lambda log=log: not log.loading)  # type: ignore[misc]
            assert [dict(machine.committed()) for machine in log.machines()] == before


async def test_a_commit_of_too_many_for_one_batch_goes_the_general_way(both: list[Way]) -> None:
    way = both[0]
    await way.broker.controller.create_topics([NewTopic("large", 3_000)])
    await eventually(lambda: "large" in way.broker.metadata.topics)
    positions = [(index, 7, -1, "") for index in range(3_000)]
    for count, is_lean in ((1, False), (1_000, True), (3_000, False)):
        request = commit_request(way, 9, [("large", positions[:count])])
        reply = way.begin(ApiKey.OFFSET_COMMIT, 9, request)
        assert isinstance(reply._future, ExclusiveAnswer) is is_lean
        await answered(reply)
    assert len((await way.broker.groups.offsets("g"))["large"]) == 3_000


@pytest.mark.parametrize("topics", [(("t", (1, 0, 1)),), (("t", (0, 1)), ("u", (0,)), ("t", (1,)))])
async def test_of_a_partition_that_comes_twice_the_later_counts_and_is_one_record(
    both: list[Way], topics: tuple[tuple[str, tuple[int, ...]], ...]
) -> None:
    known = [commit_request(way, 9, [("t", [(0, 1, -1, "")])]) for way in both]
    await alike(both, ApiKey.OFFSET_COMMIT, 9, known)
    counts = [log.counts for way in both for log in way.broker.groups.logs]
    before = [one.written for one in counts]
    offsets = iter(range(10, 99))
    sent = [(name, [(one, next(offsets), -1, "") for one in some]) for name, some in topics]
    requests = [commit_request(way, 9, sent) for way in both]
    await alike(both, ApiKey.OFFSET_COMMIT, 9, requests)
    expected = {(name, one): at for name, some in sent for one, at, _, _ in some}
    for way in both:
        found = await way.broker.groups.offsets("g")
        assert {(name, at): found[name][at].offset for name, at in expected} == expected
    stored = len(expected) if both[0].broker.config.offsets_storage == "log" else 0
    assert [one.written - then for one, then in zip(counts, before, strict=True)] == [stored] * 2


async def test_a_commit_goes_the_lean_way_once_its_group_is_in_memory(both: list[Way]) -> None:
    way = both[0]
    for turn in range(2):
        request = commit_request(way, 9, [("t", [(0, turn, -1, "")])])
        reply = way.begin(ApiKey.OFFSET_COMMIT, 9, request)
        assert isinstance(reply._future, ExclusiveAnswer) is (turn > 0)
        assert reply.exclusive
        await answered(reply)
    assert (await way.broker.groups.offsets("g"))["t"][0].offset == 1


async def test_commits_need_their_rights_whichever_way_they_go(both: list[Way]) -> None:
    request = [commit_request(way, 9, [("t", [(0, 5, -1, "")])]) for way in both]
    await alike(both, ApiKey.OFFSET_COMMIT, 9, request)
    seen = []
    rules = [way.restrict() for way in both]
    for kind, name in ((None, ""), (ResourceType.GROUP, "g"), (ResourceType.TOPIC, "t")):
        if kind is not None:
            entry = Entry("User:*", "*", Operation.READ, Permission.ALLOW)
            for one in rules:
                one.put(Pattern(kind, name), [entry])
        response = await alike(both, ApiKey.OFFSET_COMMIT, 9, request)
        seen.append(response.topics[0].partitions[0].error_code)
    assert seen == [
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.NONE,
    ]


async def test_a_commit_that_cannot_be_stored_says_so(both: list[Way]) -> None:
    request = [commit_request(way, 9, [("t", [(0, 5, -1, "")])]) for way in both]
    await alike(both, ApiKey.OFFSET_COMMIT, 9, request)
    begun = [
        way.begin(ApiKey.OFFSET_COMMIT, 9, one) for way, one in zip(both, request, strict=True)
    ]
    for way in both:  # the next turn of the loop finds no log, or no group
        for log in way.broker.groups.logs:
            for shard in log.shards():
                shard.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for metadata in way.broker.groups._registry:
            way.broker.groups._registry.unload(metadata, ErrorCode.NOT_COORDINATOR)
    lean_answer, _ = [await answered(one) for one in begun]
    _, response = decode_response(ApiKey.OFFSET_COMMIT, 9, memoryview(lean_answer)[4:])
    assert response.topics[0].name == "t"
    assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR


class Producer:
    """A transactional id, and what its producer knows of itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ids: dict[Way, int] = {}
        self.epoch = -1
        self.sequences: dict[int, int] = {}

    def batch(self, way: Way, **fields: Any) -> memoryview:
        """One of its transaction."""
        return transactional(b"r", producer_id=self.ids[way], **{"epoch": self.epoch, **fields})


def produce_request(way: Way, version: int, one: Producer, index: int, sent: Any) -> ProduceRequest:
    naming: dict[str, Any] = {"name": "t"}
    if version >= 13:
        naming = {"topic_id": way.broker.metadata.topics["t"].id}
    data = PartitionProduceData(index=index, records=bytes(sent))
    return ProduceRequest(
        transactional_id=one.name,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(partition_data=[data], **naming)],
    )


async def initialize(both: list[Way], one: Producer) -> None:
    request = InitProducerIdRequest(transactional_id=one.name, transaction_timeout_ms=60_000)
    epochs = []
    for way in both:
        answer = await way.ask(ApiKey.INIT_PRODUCER_ID, 5, request)
        _, given = decode_response(ApiKey.INIT_PRODUCER_ID, 5, memoryview(answer)[4:])
        assert given.error_code == 0
        one.ids[way] = given.producer_id
        way.names[str(given.producer_id)] = f"the id of {one.name}"
        epochs.append(given.producer_epoch)
    assert epochs[0] == epochs[1]
    one.epoch, one.sequences = epochs[0], {}


async def produce(both: list[Way], one: Producer, chance: random.Random) -> int:
    version, index = chance.choice([9, 11, 12, 12, 12, 13]), chance.choice([0, 0, 0, 1, 5])
    epoch = one.epoch + (chance.choice([-1, 1]) if chance.random() < 0.1 else 0)
    sequence = one.sequences.get(index, 0) + (chance.random() < 0.05)
    is_plain = chance.random() < 0.05
    requests = []
    for way in both:
        sent = one.batch(way, epoch=max(epoch, 0), sequence=sequence)
        plain = batch(b"plain")
        requests.append(produce_request(way, version, one, index, plain if is_plain else sent))
    response = await alike(both, ApiKey.PRODUCE, version, requests)
    code: int = response.responses[0].partition_responses[0].error_code
    if not code:
        one.sequences[index] = sequence + 1
    return code


async def end(both: list[Way], one: Producer, chance: random.Random) -> int:
    version = chance.choice([2, 3, 5, 5, 5])
    epoch, is_commit = max(one.epoch - (chance.random() < 0.1), 0), chance.random() < 0.7
    requests = [
        EndTxnRequest(
            transactional_id=one.name,
            producer_id=one.ids[way],
            producer_epoch=epoch,
            committed=is_commit,
        )
        for way in both
    ]
    response = await alike(both, ApiKey.END_TXN, version, requests)
    code: int = response.error_code
    if version >= 5 and not code:
        one.epoch, one.sequences = response.producer_epoch, {}
    return code


@pytest.mark.parametrize("both", ["zookeeper"], indirect=True)
@pytest.mark.parametrize("seed", range(3))
async def test_random_transactions_are_answered_alike(both: list[Way], seed: int) -> None:
    chance = random.Random(seed)
    producers = [Producer(name) for name in NAMES]
    codes = []
    for one in producers:
        await initialize(both, one)
    for _ in range(80):
        one = chance.choice(producers)
        if chance.random() < 0.05:
            await initialize(both, one)
        elif chance.random() < 0.6:
            codes.append(await produce(both, one, chance))
        else:
            codes.append(await end(both, one, chance))
        await eventually(lambda: all(is_settled(way) for way in both))
    assert codes.count(0) > 20
    assert len(set(codes)) > 3
    ends = [
        [way.broker.replicas.leader_of("t", index).log.log_end_offset for index in (0, 1)]
        for way in both
    ]
    assert ends[0] == ends[1]


def is_settled(way: Way) -> bool:
    """Whether every transaction that was decided is over."""
    (machine,) = way.broker.transactions.log.machines()
    return not machine.ending


@pytest.mark.parametrize("both", ["zookeeper"], indirect=True)
class TestATransaction:
    async def test_goes_the_lean_way(self, both: list[Way]) -> None:
        way, one = both[0], Producer("a")
        await initialize(both, one)
        replies = []
        for sequence in (0, 1):
            sent = one.batch(way, sequence=sequence)
            request = produce_request(way, 12, one, 0, sent)
            reply = way.begin(ApiKey.PRODUCE, 12, request)
            replies.append(reply)
            await answered(reply)
        ending = EndTxnRequest(
            transactional_id="a", producer_id=one.ids[way], producer_epoch=0, committed=True
        )
        replies.append(way.begin(ApiKey.END_TXN, 5, ending))
        await answered(replies[-1])
        kinds = [isinstance(reply._future, RepeatableAnswer) for reply in replies]
        assert kinds == [True, False, True]
        assert [reply.exclusive for reply in replies] == kinds
        await eventually(lambda: is_settled(way))

    async def test_that_follows_at_once_waits_for_the_one_before(self, both: list[Way]) -> None:
        """The markers of the first are held up: the next batch is neither refused nor lost."""
        way, one = both[0], Producer("a")
        await initialize(both, one)
        sent = one.batch(way)
        await way.ask(ApiKey.PRODUCE, 12, produce_request(way, 12, one, 0, sent))
        partition = way.broker.replicas.leader_of("t", 0)
        partition.pause_appends("test")  # which takes no marker
        request = EndTxnRequest(
            transactional_id="a", producer_id=one.ids[way], producer_epoch=0, committed=True
        )
        await way.ask(ApiKey.END_TXN, 5, request)
        again = one.batch(way, epoch=1)
        reply = way.begin(ApiKey.PRODUCE, 12, produce_request(way, 12, one, 1, again))
        await asyncio.sleep(0.05)
        assert not reply.done()
        partition.resume_appends("test")
        _, response = decode_response(ApiKey.PRODUCE, 12, memoryview(await answered(reply))[4:])
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        machine = way.broker.transactions.log.machine("a")
        assert machine.transactions["a"].state is State.ONGOING

    async def test_of_a_client_that_is_gone_appends_nothing_more(self, both: list[Way]) -> None:
        way, one = both[0], Producer("a")
        await initialize(both, one)
        sent = one.batch(way)
        reply = way.begin(ApiKey.PRODUCE, 12, produce_request(way, 12, one, 0, sent))
        reply.cancel()
        await asyncio.sleep(0.02)
        assert way.broker.replicas.leader_of("t", 0).log.log_end_offset == 0

    async def test_is_repeated_once_however_often_its_coordinator_gives_up(
        self, both: list[Way]
    ) -> None:
        way, one = both[0], Producer("a")
        await initialize(both, one)
        request = produce_request(way, 12, one, 0, one.batch(way))
        reply = way.begin(ApiKey.PRODUCE, 12, request)
        tasks = len(asyncio.all_tasks())
        for _ in range(3):
            reply._future.set_exception(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        assert len(asyncio.all_tasks()) == tasks + 1
        reply._future.set_result(None)  # it was acknowledged after all
        log = way.broker.replicas.leader_of("t", 0).log
        assert log.log_end_offset == 0
        _, response = decode_response(ApiKey.PRODUCE, 12, memoryview(await answered(reply))[4:])
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert log.log_end_offset == 1

    async def test_that_is_refused_after_all_is_told_its_throttle_time(
        self, both: list[Way]
    ) -> None:
        """The general way's answer names the leader behind the throttle time."""
        way, one = both[0], Producer("a")
        await initialize(both, one)
        way.broker.quotas.set_quotas({QuotaEntity(DEFAULT): {"request_percentage": 1e-6}})
        partition = way.broker.replicas.leader_of("t", 0)
        request = produce_request(way, 12, one, 0, one.batch(way))
        reply = way.begin(ApiKey.PRODUCE, 12, request)
        partition.suspect()
        _, response = decode_response(ApiKey.PRODUCE, 12, memoryview(await answered(reply))[4:])
        partition.resume()
        (told,) = response.responses[0].partition_responses
        assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [node.port for node in response.node_endpoints] == [HERE.address.port]
        assert response.throttle_time_ms == 1001

    async def test_whose_topic_is_compacted_meanwhile_needs_keys(self, both: list[Way]) -> None:
        way, one = both[0], Producer("a")
        await initialize(both, one)
        log = way.broker.replicas.leader_of("t", 0).log
        request = produce_request(way, 12, one, 0, one.batch(way))
        reply = way.begin(ApiKey.PRODUCE, 12, request)
        log.update_config(replace(log.config, compacts=True))
        _, response = decode_response(ApiKey.PRODUCE, 12, memoryview(await answered(reply))[4:])
        (told,) = response.responses[0].partition_responses
        assert told.error_code == ErrorCode.INVALID_RECORD
        assert log.log_end_offset == 0

    async def test_needs_its_rights_whichever_way_it_goes(self, both: list[Way]) -> None:
        one = Producer("a")
        await initialize(both, one)
        rules = [way.restrict() for way in both]
        seen = []
        entry = Entry("User:*", "*", Operation.WRITE, Permission.ALLOW)
        kinds = ((None, ""), (ResourceType.TRANSACTIONAL_ID, "a"), (ResourceType.TOPIC, "t"))
        for kind, name in kinds:
            for rule in rules:
                if kind is not None:
                    rule.put(Pattern(kind, name), [entry])
            requests = [produce_request(way, 12, one, 0, one.batch(way)) for way in both]
            response = await alike(both, ApiKey.PRODUCE, 12, requests)
            seen.append(response.responses[0].partition_responses[0].error_code)
        assert seen == [
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.NONE,
        ]

    async def test_is_ended_by_who_may_write_in_it_whichever_way_that_goes(
        self, both: list[Way]
    ) -> None:
        one = Producer("a")
        await initialize(both, one)
        requests = [produce_request(way, 12, one, 0, one.batch(way)) for way in both]
        await alike(both, ApiKey.PRODUCE, 12, requests)
        endings = [
            EndTxnRequest(
                transactional_id="a", producer_id=one.ids[way], producer_epoch=0, committed=True
            )
            for way in both
        ]
        rules = [way.restrict() for way in both]
        seen = [(await alike(both, ApiKey.END_TXN, 5, endings)).error_code]
        for rule in rules:
            entry = Entry("User:*", "*", Operation.WRITE, Permission.ALLOW)
            rule.put(Pattern(ResourceType.TRANSACTIONAL_ID, "a"), [entry])
        seen.append((await alike(both, ApiKey.END_TXN, 5, endings)).error_code)
        assert seen == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.NONE]
        await eventually(lambda: all(is_settled(way) for way in both))


async def test_a_quota_of_time_is_told_whichever_way_a_commit_goes(both: list[Way]) -> None:
    told = []
    for way in both:
        request = commit_request(way, 9, [("t", [(0, 5, -1, "")])], group_id="g")
        await way.ask(ApiKey.OFFSET_COMMIT, 9, request)
        way.broker.quotas.set_quotas({QuotaEntity(DEFAULT): {"request_percentage": 1e-6}})
        answer = await way.ask(ApiKey.OFFSET_COMMIT, 9, request)
        response = decode_response(ApiKey.OFFSET_COMMIT, 9, memoryview(answer)[4:])[1]
        (partition,) = response.topics[0].partitions
        told.append((response.throttle_time_ms, response.topics[0].name, partition.error_code))
    assert told == [(1001, "t", 0)] * 2
