"""Nodes as child processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from qbus.local_cluster.process import NodeProcess, running_pid
from tests.support.waiting import wait_until


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    script = tmp_path / "wait.py"
    script.write_text("import time; print('here', flush=True); time.sleep(60)")
    command = [sys.executable, str(script)]
    node = NodeProcess("broker-1", command, tmp_path / "log", tmp_path / "broker-1.pid")
    yield node
    node.kill()


def test_its_file_tells_its_process_id_while_it_runs(node: NodeProcess, tmp_path: Path) -> None:
    file = tmp_path / "broker-1.pid"
    node.start()
    assert file.read_text() == f"{node.pid}\n"
    assert running_pid(file, tmp_path) == node.pid
    node.terminate()
    assert node.wait(10)
    assert node.pid is None
    assert not file.exists()


def test_that_it_ended_is_told_once(node: NodeProcess) -> None:
    node.start()
    assert node.ended() is None
    assert node.pid is not None
    os.kill(node.pid, signal.SIGKILL)
    assert wait_until(node.ended, "its end") == -signal.SIGKILL
    assert node.ended() is None


def test_what_it_prints_is_kept_over_starts(node: NodeProcess, tmp_path: Path) -> None:
    log = tmp_path / "log"
    node.start()
    wait_until(lambda: log.read_text() == "here\n", "its log")
    node.kill()
    node.start()
    wait_until(lambda: log.read_text() == "here\nhere\n", "both of its logs")


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "0", "99999999", pytest.param(str(os.getpid()), id="own")]
)
def test_a_file_that_tells_of_no_node_is_stale(tmp_path: Path, text: str) -> None:
    (tmp_path / "broker-1.pid").write_text(text)
    assert running_pid(tmp_path / "broker-1.pid", tmp_path / "other") is None


def test_it_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = (
        "import sys, time; from pathlib import Path;"
        "from qbus.local_cluster.process import NodeProcess;"
        "here = Path(sys.argv[1]);"
        "command = [sys.executable, '-c', 'import time; time.sleep(60)', str(here / 'data')];"
        "NodeProcess('n', command, here / 'log', here / 'n.pid').start();"
        "time.sleep(60)"
    )
    file = tmp_path / "n.pid"
    with subprocess.Popen([sys.executable, "-c", parent, str(tmp_path)]) as process:
        try:
            pid = wait_until(lambda: running_pid(file, tmp_path), "the node")
        finally:
            process.kill()
    assert isinstance(pid, int)
    wait_until(lambda: running_pid(file, tmp_path) is None, "the end of the node")
