"""Jobs over RESP, a hundred workers, and kills of workers and of the broker.

None is lost, none comes again once its acknowledgement was answered, and no two workers have one at
a time as long as the broker lives. With RETRY 0 none comes twice, ever.
"""

import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess, free_port
from tests.support.job_load import JobLoad, Seen, histogram
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.integration]

LOCK_S = 2
PROCESSES, TASKS = 5, 20
SCALE = float(os.environ.get("QBUS_JOBS_SCALE", "1"))
"""Factor on the million jobs of a night: ``QBUS_JOBS_SCALE=0.1`` takes a tenth of the time."""


def run(
    data_dir: Path, count: int, kills: int, options: Sequence[str], *, patience_s: float
) -> Seen:
    """Add jobs and work on them while workers, and now and then the broker, are killed."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance, port = random.Random(seed), free_port()
    breaks: list[tuple[int, int]] = []
    (journals := data_dir / "journals").mkdir()
    with BrokerProcess(data_dir / "data", "--disque-listen", f"127.0.0.1:{port}") as broker:
        load = JobLoad(journals, [("127.0.0.1", port)], "q", options, seed)
        try:
            load.work(PROCESSES, TASKS)
            load.add(count, 2, 8)
            for _ in range(kills):
                time.sleep(chance.uniform(0.3, 1.5))
                load.kill_worker(TASKS)
                if chance.random() < 0.4:
                    began = time.monotonic_ns()
                    broker.kill()
                    broker.start()
                    breaks.append((began, time.monotonic_ns()))
            wait_until(lambda: load.is_added, "all jobs to be added", patience_s, pause=0.5)
            time.sleep(2 * LOCK_S)  # what killed workers had comes again
            if "0" not in options:
                wait_until(
                    lambda: not load.seen().lost(), "all jobs to be done", patience_s, pause=1.0
                )
                time.sleep(2 * LOCK_S)  # what is done must not come again
        finally:
            seen = load.stop()
    print(histogram(seen))
    assert len(seen.added) == count
    assert not seen.given_within_lock(LOCK_S, breaks)
    return seen


def check_at_least_once(seen: Seen) -> None:
    assert not seen.lost()
    assert not seen.done_twice()
    assert not seen.given_after_done()


AT_LEAST_ONCE = ("RETRY", str(LOCK_S))
AT_MOST_ONCE = ("RETRY", "0", "REPLICATE", "1")


def test_none_is_lost_and_none_comes_again(tmp_path: Path) -> None:
    check_at_least_once(run(tmp_path, 2_000, 5, AT_LEAST_ONCE, patience_s=90))


@pytest.mark.nightly
def test_at_most_once_none_comes_twice(tmp_path: Path) -> None:
    seen = run(tmp_path, 1_500, 4, AT_MOST_ONCE, patience_s=90)
    assert not seen.given_twice()
    assert len(seen.given) > 1_000


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_a_million_jobs(tmp_path: Path) -> None:
    count, kills = int(1_000_000 * SCALE), max(int(300 * SCALE), 10)
    check_at_least_once(run(tmp_path, count, kills, AT_LEAST_ONCE, patience_s=3600))
