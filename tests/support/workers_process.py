"""A broker of several workers, whose processes can be told apart."""

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from .broker_process import BrokerProcess
from .ports import free_ports
from .readiness import answers
from .waiting import wait_until

_PATIENCE_S = 30.0


class WorkersProcess(BrokerProcess):
    """``qbus broker --workers COUNT``: worker 1 is broker 1, the others follow, as do their ports.

    A plain kill is of the supervisor alone.
    """

    def __init__(
        self, data_dir: Path, count: int, *options: str, env: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(
            data_dir,
            *("--workers", str(count)),
            *options,
            port=free_ports(count).start,
            env=env,
        )
        self.count = count

    def serves(self) -> bool:
        """Whether all workers answer."""
        return all(answers(self.port_of(number)) for number in range(1, self.count + 1))

    def port_of(self, number: int) -> int:
        """Where a worker listens."""
        return self.port + number - 1

    def worker_pid(self, number: int) -> int:
        """The process of a worker, once it listens."""
        wanted = self.port_of(number)

        def listening() -> list[int]:
            return [pid for pid, port in self._children().items() if port == wanted]

        return wait_until(listening, f"worker {number} to listen")[0]

    def hub_pid(self) -> int:
        """The process that keeps the metadata."""
        return min(pid for pid, port in self._children().items() if port is None)

    def kill_worker(self, number: int) -> None:
        """Send SIGKILL to a worker; the supervisor reaps it."""
        os.kill(self.worker_pid(number), signal.SIGKILL)

    def kill_all(self) -> None:
        """Send SIGKILL to all processes at once, the supervisor first."""
        children = psutil.Process(self.pid).children(recursive=True)
        self.send_signal(signal.SIGSTOP)  # it starts nothing again
        for child in children:
            child.kill()
        self.kill()
        psutil.wait_procs(children, timeout=_PATIENCE_S)

    def wait_for_children(self) -> None:
        """Wait until no process of a supervisor that was killed is left."""
        deadline = time.monotonic() + _PATIENCE_S
        while any(_runs_for(one, self.data_dir) for one in psutil.process_iter()):
            assert time.monotonic() < deadline, "processes outlive their supervisor"
            time.sleep(0.02)

    def _children(self) -> dict[int, int | None]:
        """The processes, and which of the workers' ports each listens on."""
        ours = range(self.port, self.port + self.count)
        found: dict[int, int | None] = {}
        for child in psutil.Process(self.pid).children():
            with suppress(psutil.Error):  # it has ended just now
                sockets = child.net_connections()
                ports = [one.laddr.port for one in sockets if one.status == "LISTEN"]
                found[child.pid] = next((port for port in ports if port in ours), None)
        return found


def _runs_for(process: psutil.Process, data_dir: Path) -> bool:
    try:
        return str(data_dir) in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
