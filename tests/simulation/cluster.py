"""A cluster under faults, from one seed."""

from itertools import count

from qbus.metadata.znodes import PartitionStateNode

from .checks import Checks, ViolationError
from .disk import Disk
from .node import Node
from .rules import REPLICAS, Rules
from .store import Store
from .world import World

STORM = 40.0
CALM = 30.0


def simulate(seed: int, rules: Rules) -> Checks:
    """Inject faults for a while, then heal; raises ViolationError."""
    return Simulation(seed, rules).run()


class Simulation:
    """Brokers, a store, a producer, and fault injection."""

    def __init__(self, seed: int, rules: Rules) -> None:
        self.world = World(seed)
        self.rules = rules
        self.store = Store(self.world, PartitionStateNode(1, 0, REPLICAS, 0))
        disks = {replica: Disk() for replica in REPLICAS}
        self.checks = Checks(disks, lambda replica: rules.is_durable or self.nodes[replica].is_back)
        self.nodes: dict[int, Node] = {}
        for replica, disk in disks.items():
            self.nodes[replica] = Node(
                self.world, self.store, replica, self.nodes, self.checks, disk, rules
            )
        self.store.on_change = self._notify
        self._values = count()
        self._power_cut: int | None = (
            None  # the broker that may have lost records and is not back in sync
        )
        self._is_known = False

    def run(self) -> Checks:
        for node in self.nodes.values():
            node.begin()
        self._produce()
        self.world.later(3.0, self._inject_fault)
        self.world.run(STORM)
        self._heal()
        self.world.run(CALM)
        return self._verify()

    def _notify(self) -> None:
        """Notify brokers of changes; a lost message comes again with the next heartbeat."""
        snapshot = self.store.snapshot()
        if self._power_cut not in (*snapshot.state.isr, *snapshot.state.elr):
            self._is_known = True
        elif self._is_known:
            self._power_cut = None
        for node in self.nodes.values():
            if node.is_up:
                self.world.send("store", node.name, node.hear(snapshot))
        self._check()

    def _check(self) -> None:
        for node in self.nodes.values():
            if node.leading is not None:
                self.checks.strong_isr(self.store.state, node)

    def _produce(self) -> None:
        self.world.later(self.world.random.uniform(0.01, 0.2), self._produce)
        for node in self.nodes.values():
            if node.is_up and not node.is_paused and node.leading is not None:
                node.produce(next(self._values))
        self._check()

    # Faults.

    def _inject_fault(self) -> None:
        if self.world.is_calm:
            return
        random = self.world.random
        self.world.later(random.uniform(0.05, 3.0), self._inject_fault)
        node = self.nodes[random.choice(REPLICAS)]
        random.choice([self._crash, self._crash, self._pause, self._cut, self._reconnect])(node)

    def _crash(self, node: Node) -> None:
        if not node.is_up:
            return
        node.crash()
        if self.world.random.random() < 0.5 and self._may_lose_power(node):
            node.lost_power = True
            node.disk.power_cut(self.world.random)
            if not self.rules.is_durable:  # even if nothing was lost, because that is unknown
                self._power_cut, self._is_known = node.id, False
        delay = self.world.random.choice([0.01, 0.5, 5.0])
        self.world.later(delay, node.begin)

    def _may_lose_power(self, node: Node) -> bool:
        """Without stable storage, records survive in memory, of which not all may be lost at once.

        A leader that has proposed to continue without the others may soon be the only holder.
        """
        if self.rules.is_durable:
            return True
        state = self.store.state
        holders = {*state.isr, *state.elr} - {node.id}
        if node.leading is not None and node.leading.proposed is not None:
            on_its_way = node.leading.proposed.state
            holders &= {*on_its_way.isr, *on_its_way.elr}
        return self._power_cut is None and bool(holders)

    def _pause(self, node: Node) -> None:
        if node.is_up and not node.is_paused:
            node.is_paused = True
            delay = self.world.random.choice([0.5, 2.0, 6.0])
            self.world.later(delay, lambda: node.resume() if node.is_paused else None)

    def _cut(self, node: Node) -> None:
        places = ["store", *(other.name for other in self.nodes.values() if other is not node)]
        chosen = [place for place in places if self.world.random.random() < 0.5]
        way = self.world.random.choice(["to", "from", "both"])
        for place in chosen:
            if way != "to":
                self.world.cut.add((place, node.name))
            if way != "from":
                self.world.cut.add((node.name, place))

    def _reconnect(self, _node: Node) -> None:
        self.world.cut.clear()

    def _heal(self) -> None:
        self.world.is_calm = True
        self.world.cut.clear()
        for node in self.nodes.values():
            if node.is_paused:
                node.resume()

    # The end.

    def _verify(self) -> Checks:
        """Check that there is a leader, all replicas are in sync, and every answer was true."""
        state = self.store.state
        leader = self.nodes.get(state.leader)
        if leader is None or leader.leading is None or set(state.isr) != set(REPLICAS):
            raise ViolationError(f"not healed: {state}")
        self.checks.at_the_end(leader)
        for node in self.nodes.values():
            if (
                node.disk.entries[: node.high_watermark]
                != (leader.disk.entries[: node.high_watermark])
            ):
                raise ViolationError(f"{node.id} differs from its leader")
        return self.checks
