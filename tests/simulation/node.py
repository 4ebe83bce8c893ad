"""A broker as the leader or a follower of the partition."""

from collections.abc import Callable, Mapping

from qbus.broker.log import EpochEnd
from qbus.broker.metadata.partition_states import Policy
from qbus.broker.partition.followers import Followers, Proposal
from qbus.broker.replicator.truncation_offset import Truncation, find_truncation
from qbus.metadata.znodes import NO_LEADER

from .checks import Checks
from .disk import Disk, Entry
from .member import Member
from .rules import REPLICAS, Rules
from .store import Refused, Snapshot, Store
from .world import World

_FETCHED = 5
_WRITTEN_OUT = 0.01


class Node(Member):
    """A broker; a crash leaves only its disk."""

    def __init__(
        self,
        world: World,
        store: Store,
        node_id: int,
        peers: Mapping[int, "Node"],
        checks: Checks,
        disk: Disk,
        rules: Rules,
    ) -> None:
        super().__init__(world, store, node_id, rules)
        self.disk = disk
        self._peers = peers
        self._checks = checks
        self._reset()

    def _reset(self) -> None:
        self.leader_epoch = -1
        self.high_watermark = 0
        self.leading: Followers | None = None
        self._waiting: list[tuple[int, int]] = []
        self._agreed = False
        self._fetching = 0.0

    def begin(self) -> None:
        """Start another incarnation with what is on the disk."""
        super().begin()
        self._reset()
        self._tick()
        self._flush()

    def _tick(self) -> None:
        self._later(0.25, self._tick)
        self.tick()
        if self.leading is not None:
            self._propose(self.leading)
        elif self._world.now - self._fetching > 1.0:
            self._fetch()

    def _learned(self, snapshot: Snapshot) -> None:
        state = snapshot.state
        if state.leader_epoch > self.leader_epoch:
            self.leader_epoch = state.leader_epoch
            self._agreed = False
            self._fetching = 0.0
            self._waiting.clear()
            self.leading = None
            if state.leader == self.id:
                self._lead(snapshot)
        elif self.leading is not None and state.leader_epoch == self.leader_epoch:
            self.leading.learned(state, snapshot.version)
            self._advance()

    # Leading.

    def _lead(self, snapshot: Snapshot) -> None:
        self._checks.leads(self)
        self.leading = Followers(
            self.id,
            REPLICAS,
            snapshot.state,
            snapshot.version,
            wanted=self._rules.wanted,
            epoch_start=self.disk.end,
            high_watermark=min(self.high_watermark, self.disk.end),
            now=self._world.now,
        )
        self.high_watermark = self.leading.high_watermark
        self._advance()

    def produce(self, value: int) -> None:
        """Append a producer's record, to be acknowledged when it is committed."""
        if self.leading is not None:
            self._waiting.append((self.disk.end, value))
            self.disk.append(Entry(self.leader_epoch, value))
            self._advance()

    def _advance(self) -> None:
        leading = self.leading
        if leading is None:
            return
        if self._rules.bugs.acknowledges_alone and leading.state.elr:
            leading.state = leading.state._replace(elr=())
            leading.wanted = Policy(1)
        if not leading.advance(self._stable_end):
            return
        self.high_watermark = leading.high_watermark
        self._checks.advanced(self)
        self._checks.strong_isr(self._store.state, self)
        while self._waiting and self._waiting[0][0] < self.high_watermark:
            self._checks.acknowledges(*self._waiting.pop(0))

    @property
    def _stable_end(self) -> int:
        return self.disk.stable if self._rules.is_durable else self.disk.end

    def _propose(self, leading: Followers) -> None:
        seen = self._seen
        assert seen is not None

        def is_live(broker: int, epoch: int) -> bool:
            return self._rules.bugs.ignores_broker_epochs or seen.live.get(broker) == epoch

        proposal = leading.proposed or leading.propose(
            self._world.now, self._rules.max_lag, is_live
        )
        if proposal is not None:
            self._write(leading, proposal, seen.controller_epoch)

    def _write(self, leading: Followers, proposal: Proposal, controller_epoch: int) -> None:
        def told(answer: int | Refused) -> None:
            if leading.proposed is not proposal:
                return
            if not isinstance(answer, Refused):
                leading.learned(proposal.state, answer)
                self._advance()
            elif not answer.is_stale:
                leading.refused()

        added = {} if self._rules.bugs.ignores_broker_epochs else proposal.added
        self._ask_store(
            lambda: self._store.set_state(
                proposal.state, proposal.version, controller_epoch, added
            ),
            told,
        )

    # Following.

    def _fetch(self) -> None:
        leader = self._leader()
        if leader is None or self._broker_epoch is None or self._stable_end < self.disk.end:
            return  # a fetch tells the leader what is stable here
        self._fetching = self._world.now
        latest = self.disk.epochs.latest_epoch
        if self._agreed or latest < 0:
            self._ask_for_records(leader, self._broker_epoch)
        elif self._rules.bugs.truncates_to_high_watermark:
            self.disk.truncate(self.high_watermark)
            self._agreed = True
            self._fetching = 0.0
        else:
            self._ask_for_epoch(leader, latest)

    def _ask_for_epoch(self, leader: "Node", latest: int) -> None:
        is_current, epoch = self._while_following(), self.leader_epoch

        def told(answer: EpochEnd) -> None:
            if is_current():
                self._truncate(answer)
                self._fetch()

        self._to(leader, lambda: leader.asked_for_epoch(self, epoch, latest, told))

    def _ask_for_records(self, leader: "Node", broker_epoch: int) -> None:
        is_current, epoch, end = self._while_following(), self.leader_epoch, self.disk.end

        def told(entries: list[Entry], high_watermark: int) -> None:
            if not is_current():
                return
            for entry in entries:
                self.disk.append(entry)
            self.high_watermark = max(self.high_watermark, min(high_watermark, self.disk.end))
            self._fetching = 0.0
            if not self._rules.is_durable:
                self._fetch_soon()

        self._to(leader, lambda: leader.asked(self, epoch, broker_epoch, end, told))

    def _while_following(self) -> Callable[[], bool]:
        """Return a check that the answer to the current request is still awaited."""
        epoch, asked_at = self.leader_epoch, self._fetching
        return lambda: epoch == self.leader_epoch and self._fetching == asked_at

    def _fetch_soon(self) -> None:
        self._later(self._world.random.uniform(0.01, 0.1), self._fetch)

    def _leader(self) -> "Node | None":
        """Return the leader of the current epoch, if it is another broker."""
        state = self._seen.state if self._seen is not None else None
        if state is None or state.leader in {NO_LEADER, self.id}:
            return None
        return self._peers[state.leader] if state.leader_epoch == self.leader_epoch else None

    def _truncate(self, answer: EpochEnd) -> None:
        if self._rules.bugs.ignores_the_epoch_of_the_answer:
            result = Truncation(min(answer.end_offset, self.disk.end), is_final=True)
        else:
            result = find_truncation(self.disk.epochs, 0, self.disk.end, answer)
        self.disk.truncate(result.end_offset)
        self._agreed = result.is_final

    def asked_for_epoch(
        self, peer: "Node", epoch: int, latest: int, told: Callable[[EpochEnd], None]
    ) -> None:
        """Answer a follower where one of its epochs ended."""
        if self.leading is None or epoch != self.leader_epoch:
            return
        epochs = self.disk.epochs
        known = epochs.latest_epoch
        answer = (
            EpochEnd(known, self.disk.end)
            if 0 <= known < latest
            else epochs.end_offset_for(latest, self.disk.end)
        )
        self._to(peer, lambda: told(answer))

    def asked(
        self,
        peer: "Node",
        epoch: int,
        broker_epoch: int,
        offset: int,
        told: Callable[[list[Entry], int], None],
    ) -> None:
        """Answer a fetch, which acknowledges all records before its offset."""
        if self.leading is None or epoch != self.leader_epoch or offset > self.disk.end:
            return
        known = 0 if self._rules.bugs.ignores_broker_epochs else broker_epoch
        if not self.leading.asked(peer.id, known, offset, self.disk.end, self._world.now):
            return
        entries = self.disk.entries[offset : offset + _FETCHED]
        self._advance()
        high_watermark = self.high_watermark
        self._to(peer, lambda: told(entries, high_watermark))

    def _flush(self) -> None:
        """Make what is written stable after a while; only then a durable follower continues."""
        self._later(self._world.random.uniform(0.005, 0.05), self._flush)
        if self._rules.is_durable or self._world.random.random() < _WRITTEN_OUT:
            self.disk.stable = self.disk.end
        self._advance()
        if self.leading is None and not self._fetching:
            self._fetch()
