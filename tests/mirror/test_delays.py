"""Delayed records over two mirrors in a chain, while brokers and mirrors are killed.

Every record comes once where it is written, and the logs of the copies are equal to the source's,
byte for byte, with what they hide. Then the first mirror ends in the middle of deliveries: what its
copy had by then is delivered there, each record once, by whomever.
"""

import random
import time
from pathlib import Path

import pytest

from tests.support.delayed_load import PARTITIONS, DelayedLoad, Reader, create_topic, finish
from tests.support.mirrored_delays import (
    Way,
    assert_equal,
    audit_of_end,
    end_mirror,
    log_ends,
    wait_for_quiet,
    wait_until_copied,
)
from tests.support.seeds import new_seed
from tests.support.waiting import wait_until


@pytest.fixture
def seed() -> int:
    seed = new_seed()
    print(f"QBUS_SEED={seed}")
    return seed


def run_faults(directory: Path, seed: int, rounds: int) -> None:
    """Kill something ``rounds`` times while delayed records are sent and delivered."""
    rng = random.Random(seed)
    with Way(directory, "a", "b", "c") as way:
        create_topic(way.source.bootstrap, "t", 1, segment_bytes="100000")
        way.mirror("t")
        load, reader = DelayedLoad(way.source.bootstrap, "t"), Reader(way.source.bootstrap, "t")
        for _ in range(rounds):
            time.sleep(rng.uniform(0.5, 2.0))
            process = rng.choice([*way.brokers.values(), *way.mirrors])
            print(f"kill {process.name} {process.bootstrap}")
            process.kill()
            time.sleep(rng.uniform(0.0, 0.5))
            process.start()
        finish(load, reader)
        for name in ("b", "c"):
            wait_until_copied(way.source, "t", way.brokers[name], "a.t", PARTITIONS)
            assert_equal(way.source, "t", way.brokers[name], "a.t")


def run_end(directory: Path, seed: int) -> None:
    """End a mirror while records are delivered, and kill its target at the same time."""
    rng = random.Random(seed)
    with Way(directory, "a", "b") as way:
        create_topic(way.source.bootstrap, "t", 1, segment_bytes="100000")
        way.mirror("t")
        load = DelayedLoad(way.source.bootstrap, "t")
        wait_until(lambda: log_ends(way.target, "a.t", PARTITIONS)[0] >= 0, "the copy")
        time.sleep(rng.uniform(3.0, 4.0))
        victim = rng.choice([way.source, way.target, way.mirrors[0]])
        is_before = rng.random() < 0.5
        print(f"kill {victim.name} {victim.bootstrap} {'before' if is_before else 'after'} the end")
        if is_before:
            victim.kill()
            victim.start()
            time.sleep(rng.uniform(0.0, 1.0))
        end_mirror(way.target, "a.t")
        if not is_before:
            time.sleep(rng.uniform(0.0, 0.5))
            victim.kill()
            victim.start()
        load.finish()
        wait_for_quiet(way.target, "a.t")
        wait_for_quiet(way.source, "t")
        audit_of_end(way.source, "t", way.target, "a.t")


@pytest.mark.integration
def test_kills_leave_the_copies_equal(tmp_path: Path, seed: int) -> None:
    run_faults(tmp_path, seed, 3)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_many_kills_leave_the_copies_equal(tmp_path: Path, seed: int) -> None:
    run_faults(tmp_path, seed, 20)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_mirrors_end_among_kills(tmp_path: Path, seed: int) -> None:
    for number in range(6):
        run_end(tmp_path / str(number), seed + number)
