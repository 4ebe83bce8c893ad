"""Waiting for queries: to their end, to a failure, to a signal."""

import json
import os
import signal
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from qbus.clients.pipelines.progress import follow, running_stages, stages_reported
from qbus.clients.pipelines.run import Row, Tally
from qbus.clients.pipelines.submitted import Lines


class Watcher:
    """Keeps how many records it was told of last."""

    records: Sequence[int] = ()

    def progress(self, tallies: Sequence[Tally]) -> None:
        self.records = [tally.records for tally in tallies]

    def rows(self, rows: Sequence[Row]) -> None:
        raise AssertionError(rows)

    def working(self, text: str) -> None:
        raise AssertionError(text)

    def note(self, text: str) -> None:
        raise AssertionError(text)


class Query:
    """A streaming query that does ``then`` when it is waited for, and is over after ``looks``."""

    name = "q"

    def __init__(self, looks: int = 1, then: Callable[[], object] = list) -> None:
        self.looks = looks
        self.then = then
        self.error: Exception | None = None
        self.stopped = False

    @property
    def isActive(self) -> bool:
        return self.looks > 0 and self.error is None and not self.stopped

    def awaitTermination(self, seconds: int) -> bool:
        self.looks -= 1
        self.then()
        return not self.isActive

    @property
    def recentProgress(self) -> list[Any]:
        report = {"batchId": 0, "timestamp": "t", "numInputRows": 7}
        return [SimpleNamespace(json=json.dumps(report))]

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.stopped = True


def run(watcher: Watcher, *queries: Query) -> list[Tally]:
    return follow(cast("Any", queries), watcher)


def test_to_the_end_of_all() -> None:
    watcher = Watcher()
    tallies = run(watcher, Query(), Query(looks=3))
    assert [tally.records for tally in tallies] == [7, 7] == watcher.records


def test_when_one_fails_all_are_stopped() -> None:
    error = RuntimeError("broken")
    bad, good = Query(), Query(looks=100)
    bad.then = lambda: setattr(bad, "error", error)
    with pytest.raises(RuntimeError, match="broken"):
        run(Watcher(), bad, good)
    assert good.stopped


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_stops_queries_in_order(
    number: signal.Signals, expected: type[BaseException]
) -> None:
    before = signal.getsignal(number)
    query = Query(looks=100, then=lambda: os.kill(os.getpid(), number))
    with pytest.raises(expected) as raised:
        run(Watcher(), query)
    assert query.stopped
    assert query.looks == 99
    assert signal.getsignal(number) is before
    if isinstance(raised.value, SystemExit):
        assert raised.value.code == 143


Tasks = dict[int, tuple[int, int] | None]


class Tracker:
    """Spark's, with stages that have so many tasks done of so many."""

    def __init__(self, stages: Tasks) -> None:
        self.stages = stages

    def getActiveStageIds(self) -> list[int]:
        return list(self.stages)

    def getStageInfo(self, stage: int) -> object:
        found = self.stages[stage]
        return found and SimpleNamespace(numCompletedTasks=found[0], numTasks=found[1])


class Told:
    """Calls a function with what it is told."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self.working = tell


def spark(stages: Tasks) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: Tracker(stages)))


def test_all_stages_that_run() -> None:
    stages: Tasks = {4: (0, 3), 2: (1500, 2000), 5: None}
    text = running_stages(cast("Any", Tracker(stages)))
    assert text == "step 2: 1,500 of 2,000 tasks, step 4: 0 of 3 tasks"
    assert running_stages(cast("Any", Tracker({}))) == ""


def test_a_watcher_gets_stages_until_the_work_is_done() -> None:
    was_told = threading.Event()
    before = threading.active_count()
    with stages_reported(
        spark({1: (0, 1)}), cast("Any", Told(lambda _: was_told.set())), every=0.001
    ):
        assert was_told.wait(10)
    assert threading.active_count() == before


def test_stages_are_logged_every_half_minute(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    lines = Lines(clock=lambda: now[0])
    for now[0] in (1, 30, 31, 61):
        lines.working(f"at {now[0]}")
    assert capsys.readouterr().err.split("\n") == ["at 30", "at 61", ""]
