"""What 1,000 idle partitions cost: memory, open files, processor time, and a restart."""

import time

import psutil

from perf import rdkafka
from perf.report import Figure
from perf.servers import MEMORY, both, cpu_seconds, resident_mb
from tests.support.server_process import ServerProcess

PARTITIONS = 1000
_IDLE_SECONDS = 10


def run(rounds: int, scale: float) -> list[Figure]:
    """Create the partitions, write a little to each, leave them idle, and restart."""
    count = int(PARTITIONS * scale)
    created = Figure(f"create {count} partitions", "s", lower_is_better=True)
    memory = Figure(f"memory that {count} idle partitions add", "MB", lower_is_better=True)
    files = Figure(f"open files with {count} idle partitions", "files", lower_is_better=True)
    cpu = Figure(f"CPU with {count} idle partitions", "% of a core", lower_is_better=True)
    restart = Figure(f"clean restart with {count} partitions", "s", lower_is_better=True)
    with both(MEMORY) as servers:
        for server in servers:
            before = resident_mb(server)
            started = time.perf_counter()
            rdkafka.create_topic(server.bootstrap, "idle", count)
            created.add(server.name, time.perf_counter() - started)
            rdkafka.run("produce", server.bootstrap, topic="idle", count=20 * count, size=1000)
            memory.add(server.name, resident_mb(server) - before)
            files.add(server.name, psutil.Process(server.pid).num_fds())
            cpu.add(server.name, _idle_cpu(server))
            for _ in range(rounds):
                restart.add(server.name, _restart(server))
    return [created, memory, files, cpu, restart]


def _idle_cpu(server: ServerProcess) -> float:
    time.sleep(2)
    before = cpu_seconds(server)
    time.sleep(_IDLE_SECONDS)
    return (cpu_seconds(server) - before) / _IDLE_SECONDS * 100


def _restart(server: ServerProcess) -> float:
    server.stop()
    started = time.perf_counter()
    server.start()
    return time.perf_counter() - started
