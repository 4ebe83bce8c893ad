"""A process that runs, crashes, is paused, and talks to others over the network."""

from collections.abc import Callable

from .world import World


class Process:
    """A process. A message reaches the incarnation that ran when it was sent, or none."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.is_up = False
        self.is_paused = False
        self.lost_power = False
        """A power cut happened that the store does not know of. A broker tells it from a crash by
        the identity of the system's boot, which its directories keep."""
        self._world = world
        self._incarnation = 0
        self._backlog: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Start another incarnation."""
        self.is_up = True
        self._incarnation += 1
        self._backlog.clear()

    def crash(self) -> None:
        """Kill the process."""
        self.is_up = self.is_paused = False
        self._incarnation += 1

    def resume(self) -> None:
        """Continue after a pause with all messages that arrived meanwhile."""
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for event in backlog:
            event()

    def _mine(self, event: Callable[[], None]) -> Callable[[], None]:
        """Restrict ``event`` to this incarnation, and delay it while paused."""
        return self._of(self._incarnation, event)

    def _of(self, incarnation: int, event: Callable[[], None]) -> Callable[[], None]:
        def deliver() -> None:
            if self._incarnation != incarnation or not self.is_up:
                return
            if self.is_paused:
                self._backlog.append(deliver)
            else:
                event()

        return deliver

    def _later(self, delay: float, event: Callable[[], None]) -> None:
        self._world.later(delay, self._mine(event))

    def _to(self, peer: "Process", event: Callable[[], None]) -> None:
        self._world.send(self.name, peer.name, peer._mine(event))
