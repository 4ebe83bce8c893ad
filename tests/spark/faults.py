"""Faults of a cluster and of an application that copies a topic."""

import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress

import psutil

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
        self._kill_one(executors, "an executor")

    def kill_a_python_worker(self) -> None:
        """Its task fails, and is run again."""
        self._kill_one(python_workers, "a Python worker")

    def kill_the_driver(self) -> None:
        """The driver is started again and goes on from its checkpoints."""
        self._driver.kill()
        self._driver.keep_running()

    def kill_a_broker(self) -> None:
        """Others lead, until it is back."""
        number = self._chance.choice(BROKERS)
        self._end_broker(number, signal.SIGKILL)

    def restart_a_broker(self) -> None:
        """The broker hands over its partitions before it ends."""
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

    def _kill_one(self, found: Callable[[list[int]], list[psutil.Process]], what: str) -> None:
        workers = [self._up.pid(f"spark-worker-{number}") for number in WORKERS]

        def is_killed() -> bool:
            self._driver.keep_running()  # it may have ended by itself meanwhile, and have none
            with suppress(IndexError, psutil.NoSuchProcess):
                self._chance.choice(found(workers)).kill()
                return True
            return False

        wait_until(is_killed, what, PATIENCE)

    def _end_broker(self, number: int, how: signal.Signals) -> None:
        self._up.wait_whole()  # two that are down at once stop acks=all
        name = f"broker-{number}"
        os.kill(self._up.pid(name), how)
        self._up.wait_gone(name)
        self._up.start_node(number)
