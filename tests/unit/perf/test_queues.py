"""Measurements of queues: what counts beside which peer, and loads that end or fall silent."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from perf import queues
from perf.peers import job_queues
from perf.peers.job_queues import JobServer, Load
from perf.queues import Figures, Row

ANSWERS = """
import sys
for line in sys.stdin:
    command, *words = line.split()
    if command == "end":
        break
    if command != "silence":
        print('{"jobs": %d, "seconds": 2, "p50_ms": 1, "p99_ms": 3}' % len(words), flush=True)
"""


@contextmanager
def loaded() -> Iterator[Load]:
    load = Load([sys.executable, "-c", ANSWERS])
    try:
        yield load
    finally:
        load.stop()


def test_figures_of_qbus_stand_beside_each_peer() -> None:
    figures = Figures(["redis", "beanstalkd"])
    figures.add("qbus", "add", "jobs/s", 300)
    figures.add("redis", "add", "jobs/s", 200)
    figures.add("beanstalkd", "add", "jobs/s", 100)
    ratios = {name: figure.ratio for (name, _), figure in figures.found.items()}
    assert ratios == {"add beside redis": 1.5, "add beside beanstalkd": 3.0}


def test_figures_do_not_stand_beside_a_peer_without_the_case() -> None:
    figures = Figures(["redis", "beanstalkd"])
    figures.add("qbus", "100 at a time", "jobs/s", 300, without={"beanstalkd"})
    assert [name for name, _ in figures.found] == ["100 at a time beside redis"]


def test_figures_of_qbus_alone() -> None:
    figures = Figures([])
    figures.add("qbus", "add", "jobs/s", 300)
    assert [figure.qbus for figure in figures.found.values()] == [[300]]


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (Row(1), "1 worker"),
        (Row(16), "16 workers"),
        (Row(16, most=1), "16 workers, 1 at a time"),
    ],
)
def test_names_of_rows(row: Row, name: str) -> None:
    assert str(row) == name


def test_every_peer_is_loaded_in_one_way_and_the_rows_are_those_of_the_ways() -> None:
    assert len(job_queues.NAMES) == len(set(job_queues.NAMES))
    assert queues.ROWS.keys() == job_queues.WAYS.keys()


def test_a_load_answers_each_command() -> None:
    with loaded() as load:
        assert load.ask("work", 10, 1.5)["jobs"] == 2
        assert load.ask("close")["jobs"] == 0


def test_a_load_that_fails() -> None:
    with loaded() as load, pytest.raises(RuntimeError, match="the load failed: end"):
        load.ask("end")


def test_a_load_that_falls_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_queues, "_PATIENCE_S", 0.1)
    with loaded() as load, pytest.raises(RuntimeError, match="did not answer: silence 5"):
        load.ask("silence", 5)


def test_a_missing_disque_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBUS_DISQUE_SERVER", "/nowhere/disque-server")
    assert "no disque-server" in (job_queues.missing("disque") or "")


def test_a_server_that_does_not_keep_up_has_no_latency(capsys: pytest.CaptureFixture[str]) -> None:
    with loaded() as load:
        server = JobServer("slow", psutil.Process(), load)
        assert queues._steady(server, 1.0) == {}
    assert "slow does not keep up" in capsys.readouterr().err
