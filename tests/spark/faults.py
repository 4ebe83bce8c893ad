"""What is done to a cluster and to an application while it copies a topic."""

import os
import random
import signal
from collections.abc import Callable

from tests.support.local_cluster import PATIENCE, Up
from tests.support.waiting import wait_until

from .driver import Driver, executors, python_workers

WORKERS = (1, 2)
BROKERS = (1, 2, 3)


class Faults:
    """Each method does one harm, and mends what does not mend itself."""

    def __init__(self, up: Up, driver: Driver, topics: list[str], chance: random.Random) -> None:
        self._up = up
        self._driver = driver
        self._topics = topics
        self._chance = chance

    def all(self) -> list[Callable[[], None]]:
        """Every one of them."""
        return [
            self.kill_an_executor,
            self.kill_a_python_worker,
            self.kill_the_driver,
            self.kill_a_broker,
            self.restart_a_broker,
            self.move_leaders,
            self.grow,
        ]

    def kill_an_executor(self) -> None:
        """Its worker starts another one."""
        wait_until(lambda: executors(self._pids), "an executor", PATIENCE)
        self._chance.choice(executors(self._pids)).kill()

    def kill_a_python_worker(self) -> None:
        """Its task fails, and is run again."""
        found = wait_until(lambda: python_workers(self._pids), "a Python worker", PATIENCE)
        self._chance.choice(found).kill()

    def kill_the_driver(self) -> None:
        """It is started again, and goes on from its checkpoints."""
        self._driver.kill()
        self._driver.keep_running()

    def kill_a_broker(self) -> None:
        """Others lead, until it is back."""
        number = self._chance.choice(BROKERS)
        self._end_broker(number, signal.SIGKILL)

    def restart_a_broker(self) -> None:
        """It hands over what it leads before it ends."""
        number = self._chance.choice(BROKERS)
        self._end_broker(number, signal.SIGTERM)

    def move_leaders(self) -> None:
        """Another replica of each partition leads from now on."""
        for topic in self._topics:
            (described,) = self._up.qbus("topic", "describe", topic)
            moves = []
            for one in described["partitions"]:
                first, *others = one["replicas"]
                brokers = ",".join(map(str, [*others, first]))
                moves += ["--move", f"{topic}:{one['partition']}={brokers}"]
            self._up.qbus("reassign", "execute", *moves)
        self._up.qbus("elect-leaders", "--all")
        self._up.wait_whole()

    def grow(self) -> None:
        """Both topics have two partitions more."""
        for topic in self._topics:
            (described,) = self._up.qbus("topic", "describe", topic)
            count = len(described["partitions"]) + 2
            self._up.qbus("topic", "alter", topic, "--partitions", str(count))

    @property
    def _pids(self) -> list[int]:
        return [self._up.pid(f"spark-worker-{number}") for number in WORKERS]

    def _end_broker(self, number: int, how: signal.Signals) -> None:
        self._up.wait_whole()  # two that are down at once stop acks=all
        name = f"broker-{number}"
        os.kill(self._up.pid(name), how)
        self._up.wait_gone(name)
        self._up.start_node(number)
