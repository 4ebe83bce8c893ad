"""Random faults of all kinds, also several at a time, determined by a seed."""

import time
from collections.abc import Callable

from .run import Run


class Storm:
    """Injects faults into a run; ``Run.conclude`` ends them."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._random = run.random

    def rage(self, turns: int) -> None:
        """In each turn inject a fault, or heal all, and wait a while."""
        kinds: list[Callable[[], None]] = [self._kill, self._kill_all, self._stop, self._heal]
        if self._run.network is not None:
            kinds += [self._cut, self._cut, self._isolate]
        for _ in range(turns):
            kind = self._random.choice(kinds)
            print(f"{time.monotonic():.1f} {kind.__name__}")
            kind()
            time.sleep(self._random.choice([0.1, 1.0, 3.0, 8.0]))

    def _alive(self) -> list[int]:
        return [node for node, broker in self._run.cluster.brokers.items() if broker.alive]

    def _kill(self) -> None:
        if alive := self._alive():
            self._run.kill(self._random.choice(alive))

    def _kill_all(self) -> None:
        self._run.kill(*self._alive())
        self._start_dead()

    def _stop(self) -> None:
        if alive := self._alive():
            node = self._random.choice(alive)
            self._run.stop(node)

    def _heal(self) -> None:
        if self._run.network is not None:
            self._run.network.heal()
        self._run.resume(*self._alive())
        self._start_dead()

    def _start_dead(self) -> None:
        """Start dead brokers without waiting: they may be cut off."""
        for broker in self._run.cluster.brokers.values():
            if not broker.alive:
                broker.start(wait=False)

    def _cut(self) -> None:
        assert self._run.network is not None
        one, other = self._random.sample(sorted(self._run.network.hosts), 2)
        self._run.network.cut(one, other, both=self._random.random() < 0.5)

    def _isolate(self) -> None:
        assert self._run.network is not None
        self._run.network.isolate([self._random.choice(sorted(self._run.network.hosts))])
