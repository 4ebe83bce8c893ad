"""How far work is that has no batches."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from qbus.clients.pipelines.stages import at_work, told
from qbus.clients.pipelines.submitted import Lines

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


class Watcher:
    """Calls a function with what it is told."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self.working = tell


def spark(stages: Tasks) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: Tracker(stages)))


def test_all_stages_that_run() -> None:
    stages: Tasks = {4: (0, 3), 2: (1500, 2000), 5: None}
    text = at_work(cast("Any", Tracker(stages)))
    assert text == "step 2: 1,500 of 2,000 tasks, step 4: 0 of 3 tasks"
    assert at_work(cast("Any", Tracker({}))) == ""


def test_a_watcher_is_told_until_the_work_is_done() -> None:
    was_told = threading.Event()
    before = threading.active_count()
    with told(spark({1: (0, 1)}), cast("Any", Watcher(lambda _: was_told.set())), every=0.001):
        assert was_told.wait(10)
    assert threading.active_count() == before


def test_logs_are_told_every_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    lines = Lines(clock=lambda: now[0])
    for now[0] in (1, 30, 31, 61):
        lines.working(f"at {now[0]}")
    assert capsys.readouterr().err.split("\n") == ["at 30", "at 61", ""]
