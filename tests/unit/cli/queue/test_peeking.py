"""The jobs that are not done, found in a log of jobs and of what settled them."""

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from qbus.cli.queue import peeking
from qbus.cli.queue.peeking import Unfinished

Log = list[tuple[int, int] | list[int]]
"""Batches: a list has records at these offsets, a pair settles those from the first to the last."""


def read(log: Log, start: int, limit: int, *, newest: bool) -> tuple[list[int], int]:
    """The offsets that are found, and how often the log is read for that."""
    left, times = Unfinished(start, limit, newest=newest), 0
    while left.is_unread:
        times += 1
        for batch in log:
            if isinstance(batch, tuple):
                left.settle(*batch)
            elif not left.add(record(offset) for offset in batch):
                break
        left.end_of_log()
    return [one.offset for one in left.records], times


def record(offset: int) -> Any:
    return cast("Any", SimpleNamespace(offset=offset))


@pytest.mark.parametrize("newest", [False, True])
def test_one_reading_is_enough_where_not_too_many_are_done(newest: bool) -> None:
    log: Log = [[0, 1, 2], (0, 0), [4, 5], (5, 5)]
    expected = [2, 4] if newest else [1, 2]
    assert read(log, 0, 2, newest=newest) == (expected, 1)


@pytest.mark.parametrize("newest", [False, True])
def test_the_log_is_read_again_if_what_was_kept_is_done(
    newest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peeking, "_KEPT", 4)
    log: Log = [[*range(10)], [*range(10, 20)]]
    done: Log = [(10, 19)] if newest else [(0, 9)]
    expected = [9] if newest else [10]
    assert read(log + done, 0, 1, newest=newest) == (expected, 2)


@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize("seed", range(50))
def test_it_finds_what_a_model_finds(
    seed: int, newest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(peeking, "_KEPT", rng.choice([1, 5, 20]))
    log: Log = []
    offset, left = 0, set[int]()
    for _ in range(rng.randint(1, 60)):
        if offset and rng.random() < 0.5:
            first = rng.randrange(offset)
            last = min(first + rng.randrange(12), offset - 1)
            log.append((first, last))
            left -= set(range(first, last + 1))
        else:
            batch = [*range(offset, offset + rng.randint(1, 9))]
            offset = batch[-1] + 1 + rng.randrange(2)
            log.append(batch)
            left |= set(batch)
    start, limit = rng.randrange(5), rng.randint(1, 12)
    wanted = sorted(one for one in left if one >= start)
    expected = wanted[-limit:] if newest else wanted[:limit]
    found, times = read(log, start, limit, newest=newest)
    assert found == expected
    assert times <= 2
