"""Random histories of groups of KIP-848."""

import os
import subprocess
import sys
from collections import Counter, defaultdict
from functools import partial
from random import Random
from typing import NamedTuple

import pytest

from qbus.broker.consumer_group import ConsumerGroup, Partitions
from qbus.broker.consumer_group.assignors import TopicPartition
from qbus.broker.consumer_group.nodes import decode
from qbus.broker.group.requests import Request, Respond, Result, Save
from qbus.broker.group.state import GroupState
from qbus.errors import ErrorCode
from tests.unit.broker.consumer_group.scene import Scene

from .classic import ClassicClient, error_of
from .client import NOTHING, Client

_HEARTBEAT_S = 5.0
_LATE_S = 18.0
"""So long a client may hear nothing, and so long it may take over or give up what it was told to.

That a member is told again and takes over what it missed, learns what to give up and has given that
up takes three times as long at most: a client is to need less than its rebalance time-out for it.
"""


class LateCommit(NamedTuple):
    """What a client commits of what it reads at a step, and the coordinator gets later."""

    client: Client
    epoch: int
    reads: Partitions
    step: int


class History:
    """A group, its clients, and a fate that comes from a seed.

    haste: how often clients do something before they have to; loss: how often messages are lost.
    mixed: how many clients are of the classic protocol, repeat requests, or subscribe by a pattern.
    """

    def __init__(
        self,
        seed: int,
        members: int,
        haste: float = 1.0,
        loss: float = 0.05,
        mixed: float = 0.0,
        **sizes: int,
    ) -> None:
        self.random = Random(seed)
        self.haste = haste
        self.loss = loss
        self.mixed = mixed
        self.scene = Scene(**sizes)
        self.members = members
        self.clients: list[Client | ClassicClient] = []
        self.stored = dict(self.scene.group.nodes())
        self.names = 0
        self.checked = 0
        self.had: dict[tuple[str, int], Partitions] = defaultdict(frozenset)
        """What each client has had in an epoch."""
        self.delays = Random(seed)
        self.commits: list[LateCommit] = []
        self.readers: dict[TopicPartition, tuple[Client | ClassicClient, int]] = {}
        """Who was the last to read a partition, and since which step nobody else has."""

    @property
    def group(self) -> ConsumerGroup:
        return self.scene.group

    # What happens

    def step(self) -> None:
        random = self.random
        fate = random.random()
        if fate < 0.05 and len(self.clients) < self.members:
            self.add()
        elif fate < 0.07 and self.clients:
            self.lose(random.choice(self.clients))
        elif fate < 0.075:
            self.restart()
        elif fate < 0.08:
            name = random.choice(sorted(self.scene.topics.sizes))
            self.note(self.group.topics_changed([self.grow(name)], self.scene.now))
        elif self.clients and random.random() < self.haste:
            client = random.choice(self.clients)
            if fate < 0.6:
                self.beat(client, self.loss)
            else:
                client.go_on(random)
        self.live(random.random() * 2 * _HEARTBEAT_S / max(len(self.clients), 1))
        self.check()
        self.commit()

    def live(self, seconds: float) -> None:
        """Let time pass, in which no client is so late that the coordinator gives it up."""
        end = self.scene.now + seconds
        while self.clients:
            client = min(self.clients, key=lambda one: one.due(_LATE_S))
            if (due := client.due(_LATE_S)) >= end:
                break
            self.pass_time(due - self.scene.now)
            client.settle(self.random)
            self.beat(client)
        self.pass_time(end - self.scene.now)

    def add(self) -> None:
        self.names += 1
        topics = tuple(
            name for name in sorted(self.scene.topics.sizes) if self.random.random() < 0.8
        ) or ("t",)
        instance = f"i{self.names}" if self.random.random() < 0.3 else None
        self.clients.append(self.new(f"m{self.names}", topics, instance))

    def new(
        self, name: str, topics: tuple[str, ...], instance: str | None
    ) -> Client | ClassicClient:
        if not self.mixed or self.random.random() >= self.mixed:
            return Client(name, topics, instance)
        fate = self.random.random()
        if fate < 0.5:
            return ClassicClient(name, topics, instance, is_eager=fate < 0.25)
        pattern = "|".join(topics) if fate < 0.75 else None
        return Client(name, topics, instance, pattern=pattern, repeats=self.random.random() < 0.5)

    def lose(self, client: Client | ClassicClient) -> None:
        """A client leaves, dies, or is restarted as the same static member."""
        self.clients.remove(client)
        fate = self.random.random()
        if fate < 0.4 and client.epoch > 0:
            self.send(client.leaving(-1))
        elif fate < 0.8 and client.instance_id is not None:
            if client.epoch > 0 and isinstance(client, Client):
                self.send(client.leaving(-2))
            elif client.epoch > 0:
                client.reads = NOTHING
            self.names += 1
            successor = self.new(f"m{self.names}", client.topics, client.instance_id)
            self.clients.append(successor)

    def grow(self, name: str) -> str:
        self.scene.topics.sizes[name] += 1
        return name

    def restart(self) -> None:
        """The coordinator loses its memory."""
        epoch, assignment_epoch, members = decode(self.stored)
        self.scene.group = self.scene.new_group(epoch)
        self.group.restore(assignment_epoch, members, self.scene.now)

    def beat(self, client: Client | ClassicClient, loss: float = 0.0) -> None:
        if client.is_out:
            return
        fate = self.random.random()
        request = client.request()
        if fate < loss / 2:
            client.take(None)
            return
        if not self.group.takes(request):  # it would be a classic group
            client.heard_at = client.told_at = self.scene.now
            return
        result = self.send(request)
        assert error_of(result) is not ErrorCode.UNKNOWN_MEMBER_ID, f"expelled: {client}"
        assert error_of(result) is not ErrorCode.FENCED_MEMBER_EPOCH, f"fenced: {client}"
        was_settled = client.wanted is None
        client.take(None if fate < loss else result)  # type: ignore[arg-type]
        client.heard_at = self.scene.now if fate >= loss else client.heard_at
        client.told_at = self.scene.now if was_settled else client.told_at
        if isinstance(client, Client) and not error_of(result):
            self.check_commits(client)

    def check_commits(self, client: Client) -> None:
        member = next(
            (one for one in self.group.members if one.member_id == client.member_id), None
        )
        if member is not None:
            self.had[client.member_id, client.epoch] |= client.reads
            admit = partial(self.group.admit_commit, client.member_id, None, now=0)
            for epoch in range(member.epoch - 2, member.epoch + 2):
                assert admit(generation=epoch) is self.group.admit_fetch(client.member_id, epoch)
            assert admit(generation=member.epoch) is ErrorCode.NONE
            if not admit(generation=member.previous_epoch):
                assert self.had[client.member_id, member.previous_epoch] <= member.held
            if member.epoch - 1 != member.previous_epoch:
                assert admit(generation=member.epoch - 1) is ErrorCode.STALE_MEMBER_EPOCH

    def commit(self) -> None:
        """Commits arrive late: those that are taken are of what nobody else has read meanwhile."""
        for client in self.clients:
            for one in client.reads:
                if self.readers.get(one, (None, 0))[0] is not client:
                    self.readers[one] = (client, self.checked)
        if self.clients and self.delays.random() < 0.3:
            client = self.delays.choice(self.clients)
            if isinstance(client, Client) and client.reads:
                self.commits.append(LateCommit(client, client.epoch, client.reads, self.checked))
        if self.commits and self.delays.random() < 0.3:
            late = self.commits.pop(self.delays.randrange(len(self.commits)))
            if not self.group.admit_commit(late.client.member_id, None, late.epoch, 0):
                for one in late.reads:
                    reader, since = self.readers[one]
                    assert reader is late.client, f"{late}: {reader} has read it"
                    assert since <= late.step, f"{late}: it came back at {since}"

    def send(self, request: Request) -> Result:
        effects = self.group.handle(request, self.scene.now)
        self.note(effects)
        (result,) = [effect.result for effect in effects if isinstance(effect, Respond)]
        return result

    def note(self, effects: list) -> None:
        if Save() in effects:
            self.stored = dict(self.group.nodes())

    def pass_time(self, seconds: float) -> None:
        """Let time pass without a word of the clients."""
        end = self.scene.now + seconds
        while self.group.wake_at <= end:
            self.scene.now = max(self.scene.now, self.group.wake_at)
            self.note(self.group.tick(self.scene.now))
        self.scene.now = end

    # What must hold

    def check(self) -> None:
        """No partition is read by two, nobody reads what the coordinator gave to another one."""
        self.checked += 1
        read = Counter(one for client in self.clients for one in client.reads)
        twice = [partition for partition, count in read.items() if count > 1]
        assert not twice, twice
        held = Counter(one for member in self.group.members for one in member.held)
        assert all(count == 1 for count in held.values())

    def calm_down(self) -> None:
        """Nothing more is lost: everything is read by one member that subscribes to it, evenly."""
        for _ in range(60):
            for client in self.clients:
                self.beat(client)
                client.settle(self.random)
                self.check()
            self.pass_time(_HEARTBEAT_S)
        live = [client for client in self.clients if not client.is_out]
        if not live or self.group.is_vacant:
            return
        assert self.group.state is GroupState.STABLE
        for name, size in self.scene.topics.sizes.items():
            readers = [client for client in live if name in client.topics]
            read = [
                index for client in live for topic, index in client.reads if topic == name.encode()
            ]
            assert sorted(read) == (list(range(size)) if readers else [])


@pytest.mark.parametrize("seed", range(20))
def test_a_partition_has_one_reader_at_all_times(seed: int) -> None:
    history = History(seed, members=8, t=6, u=3)
    for _ in range(1500):
        history.step()
    history.calm_down()


@pytest.mark.parametrize("seed", range(20))
def test_so_it_has_though_clients_do_all_at_the_last_moment(seed: int) -> None:
    history = History(2000 + seed, members=8, haste=0.2, t=6, u=3)
    for _ in range(1500):
        history.step()
    history.calm_down()


@pytest.mark.parametrize("seed", [19, 40, 50, 79])
def test_so_it_has_though_much_is_lost(seed: int) -> None:
    """Members missed twice what to give up, and took over what others had by then."""
    history = History(5000 + seed, members=4 + seed % 30, loss=0.4, t=1 + seed % 40, u=3, v=7)
    for _ in range(3000):
        history.step()
    history.calm_down()


@pytest.mark.parametrize("seed", range(10))
def test_so_it_has_with_clients_of_all_kinds(seed: int) -> None:
    """Of both protocols, those that repeat what they said, and those that subscribe by patterns."""
    history = History(3000 + seed, members=8, loss=0.1, mixed=0.7, t=6, u=3)
    for _ in range(1000):
        history.step()
    history.calm_down()


def test_a_seed_alone_makes_a_history() -> None:
    """Whatever order sets have in a process: a failure can be repeated."""
    script = (
        "from tests.simulation.consumer_groups.test_consumer_groups import History\n"
        "history = History(7, members=12, t=9, u=3, v=7)\n"
        "for _ in range(400): history.step()\n"
        "print(history.scene.now, sorted(history.group.nodes().items()))\n"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
        ).stdout
        for hash_seed in ("1", "2", "3")
    }
    assert len(told) == 1


def test_so_it_has_with_a_hundred_members() -> None:
    history = History(1000, members=100, t=150, u=60)
    for _ in range(100):
        history.add()
    for _ in range(4000):
        history.step()
    history.calm_down()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(500))
def test_so_it_has_in_many_histories(seed: int) -> None:
    history = History(5000 + seed, members=4 + seed % 30, t=1 + seed % 40, u=3, v=7)
    for _ in range(5000):
        history.step()
    history.calm_down()


@pytest.mark.parametrize(
    "fault", ["gives to two", "takes silence for yes", "forgets what is not given up"]
)
def test_a_broken_coordinator_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks find what they are for."""
    from qbus.broker.consumer_group import Member, group, nodes
    from qbus.broker.consumer_group.roster import Roster

    if fault == "gives to two":
        monkeypatch.setattr(Roster, "is_free", lambda *_: True)
        monkeypatch.setattr(Roster, "note_held", lambda *_: None)
    elif fault == "takes silence for yes":
        reconcile = Member.reconcile

        def hasty(self: Member, epoch: int, owned: object, is_free: object, **rest: object) -> bool:
            return reconcile(self, epoch, NOTHING, is_free, **rest)  # type: ignore[arg-type]

        monkeypatch.setattr(Member, "reconcile", hasty)
    else:
        encode = nodes.encode_member

        def forgetful(member: Member) -> bytes:
            before, member.revoking = member.revoking, NOTHING
            encoded = encode(member).replace(b"UnrevokedPartitions", b"Stable")
            member.revoking = before
            return encoded

        monkeypatch.setattr(group, "encode_member", forgetful)
    with pytest.raises(AssertionError):
        _run_some()


def _run_some() -> None:
    for seed in range(40):
        history = History(seed, members=8, t=6, u=3)
        for _ in range(1500):
            history.step()
