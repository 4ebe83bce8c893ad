"""Every command x a data directory that is offline: nothing looks empty, healthy or finished.

A command that waits names the partition and the broker meanwhile; a view names them with the
directory and the reason; none of them exits with 0 as if there were nothing.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

from .conftest import Qbus

pytestmark = pytest.mark.integration

WAITING = {
    "produce": ["produce", "seg"],
    "consume to the end": ["consume", "seg", "--exit-at-end"],
    "consume the latest": ["consume", "seg", "--from", "latest", "--count", "1"],
    "consume in a group": ["consume", "seg", "--group", "g"],
    "consume by a pattern": ["consume", "^s.*"],
    "group describe": ["group", "describe", "g"],
    "group reset-offsets": ["group", "reset-offsets", "g", "--topic", "seg", "--to", "earliest"],
    "queue add": ["queue", "add", "q", "body"],
    "queue work": ["queue", "work", "q", "--", "true"],
    "queue peek": ["queue", "peek", "q"],
    "queue stat": ["queue", "stat", "q"],
    "queue redrive": ["queue", "redrive", "q"],
    "delay list": ["delay", "list", "held"],
    "delay show": ["delay", "show", "held", "0", "0"],
    "trace": ["trace", "seg", "0", "0"],
    "transaction find-hanging": ["transaction", "find-hanging"],
}


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Qbus, Path]]:
    """A broker whose only data directory went offline, with records, jobs and held records."""
    data = tmp_path_factory.mktemp("broker") / "data"
    with BrokerProcess(data, "-o", "group.initial.rebalance.delay.ms=0") as broker:
        qbus = Qbus(broker.bootstrap)
        qbus("topic", "create", "seg", "--config", "segment.bytes=1024")
        qbus("topic", "create", "held", "--delay")
        qbus("queue", "create", "q")
        qbus("produce", "seg", stdin=b"x" * 900 + b"\n")
        qbus("produce", "held", "--delay", "1h", stdin=b"x\n")
        qbus("queue", "add", "q", "body")
        qbus("consume", "seg", "--group", "g", "--count", "1")
        shutil.rmtree(data / "seg-0")  # so that the next segment cannot be made
        with qbus.start("produce", "seg", stdin=subprocess.PIPE) as producing:
            assert producing.stdin is not None
            producing.stdin.write(b"x" * 900 + b"\n")
            producing.stdin.flush()
            wait_until(
                lambda: all(one["offline"] == [0] for one in qbus.json("topic", "list")),
                "the directory to be offline",
                30,
                pause=0.2,
            )
            producing.kill()
        yield qbus, data


@pytest.fixture(scope="module")
def said(offline: tuple[Qbus, Path]) -> dict[str, str]:
    """The first line of each command that names a partition, or how it ended without."""
    with ThreadPoolExecutor(4) as threads:
        return dict(zip(WAITING, threads.map(partial(_said, offline[0]), WAITING), strict=True))


def _said(qbus: Qbus, name: str) -> str:
    words = WAITING[name]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with qbus.start(*words, **streams) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"line\n")
        process.stdin.flush()
        for line in process.stderr:
            if re.search(rb"\b(seg|q|held)-0\b", line):
                process.kill()
                return str(line.decode())
        return f"nothing, and ended with {process.wait()}"


@pytest.mark.parametrize("name", WAITING)
def test_it_says_what_it_waits_for(said: dict[str, str], name: str) -> None:
    assert re.search(r"\b(seg|q|held)-0 has no leader now: offline on broker 1", said[name])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["topic", "describe", "seg"], 1),
        (["topic", "describe"], 1),
        (["cluster", "status"], 0),
        (["log-dirs", "list"], 0),
    ],
)
def test_views_name_the_directory_and_the_reason(
    offline: tuple[Qbus, Path], words: list[str], code: int
) -> None:
    qbus, data = offline
    done = qbus.run(*words)
    shown = done.stdout.decode()
    assert done.code == code, done
    assert str(data) in shown
    assert "offline" in shown
    assert "No such file or directory" in shown
    if code:
        assert re.search(r"-0: it has no leader; offline on broker 1", done.stderr.decode())


def test_lists_show_what_is_offline(offline: tuple[Qbus, Path]) -> None:
    qbus, _ = offline
    header, *topics = qbus("topic", "list").decode().splitlines()
    assert header.split() == ["topic", "partitions", "offline", "replicas", "id"]
    assert {line.split()[2] for line in topics} == {"1"}
    assert b"3 without a leader: held-0, q-0, seg-0" in qbus("cluster", "status")
    assert "may hold jobs, too: held-0, q-0, seg-0" in qbus.run("queue", "stat").stderr.decode()
    assert qbus.run("queue", "stat").code == 1
