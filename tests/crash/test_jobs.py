"""Jobs over RESP, a hundred workers, and kills of workers and of the broker.

None is lost, none comes again once its acknowledgement was answered, no two workers have one at a
time as long as the broker lives, and the deliveries are counted right. Exactly those beyond the
limit are dead letters. With RETRY 0 none comes twice, ever.
"""

import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import job_letters
from tests.support.broker_process import BrokerProcess, free_port
from tests.support.job_audit import Seen
from tests.support.job_load import JobLoad
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.integration]

LOCK_S = 2
PROCESSES, TASKS = 5, 20
POISON = 100
SCALE = float(os.environ.get("QBUS_JOBS_SCALE", "1"))
"""Factor on the million jobs of a night: ``QBUS_JOBS_SCALE=0.1`` takes a tenth of the time."""
_FEW = 1_000


def run(
    data_dir: Path, count: int, kills: int, options: Sequence[str], *, patience_s: float
) -> Seen:
    """Add jobs and work on them while workers, and now and then the broker, are killed."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance, port = random.Random(seed), free_port()
    breaks: list[tuple[int, int]] = []
    (journals := data_dir / "journals").mkdir()
    is_once = "0" in options
    poison = 0 if is_once else POISON
    with BrokerProcess(data_dir / "data", "--disque-listen", f"127.0.0.1:{port}") as broker:
        job_letters.prepare(broker.bootstrap, 1)
        letters = job_letters.DeadLetters(broker.bootstrap)
        load = JobLoad(journals, [("127.0.0.1", port)], "q", options, seed, poison=poison)
        refused = job_letters.poisoned(range(count), poison)

        def left() -> object:
            seen = load.seen()
            more = seen.added - seen.done - len(seen.unanswered())
            if more > len(refused) + _FEW:
                return more
            return seen.lost(letters.read())

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
            if not is_once:
                wait_until(lambda: not left(), "all jobs to be done", patience_s, pause=0.5)
                time.sleep(2 * LOCK_S)  # what is done must not come again
            dead = letters.read()
            if not is_once:
                assert not load.undone().keys() - dead.keys()
        finally:
            seen = load.stop()
    judged, pairs = seen.pairs(breaks)
    print(f"given out {seen.histogram()}; {kills} processes and {len(breaks)} brokers were killed")
    print(f"{len(dead)} dead letters; {judged} of {pairs} deliveries came after others")
    assert seen.added == count
    assert not seen.given_within_lock(LOCK_S, breaks)
    assert not seen.done_twice()
    if not is_once:
        assert not seen.lost(dead)
        assert not seen.given_after_done()
        assert not seen.miscounted(LOCK_S, breaks)
        job_letters.check_letters(seen, poison, dead)
    return seen


AT_LEAST_ONCE = ("RETRY", str(LOCK_S))
AT_MOST_ONCE = ("RETRY", "0", "REPLICATE", "1")


def test_none_is_lost_and_none_comes_again(tmp_path: Path) -> None:
    run(tmp_path, 2_000, 5, AT_LEAST_ONCE, patience_s=90)


@pytest.mark.nightly
def test_at_most_once_none_comes_twice(tmp_path: Path) -> None:
    seen = run(tmp_path, 1_500, 4, AT_MOST_ONCE, patience_s=90)
    assert not seen.given_twice()
    assert seen.given > 1_000


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_a_million_jobs(tmp_path: Path) -> None:
    count, kills = int(1_000_000 * SCALE), max(int(300 * SCALE), 10)
    run(tmp_path, count, kills, AT_LEAST_ONCE, patience_s=3600)
