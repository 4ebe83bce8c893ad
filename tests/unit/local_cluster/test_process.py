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


def test_the_pid_file_exists_while_the_node_runs(node: NodeProcess, tmp_path: Path) -> None:
    file = tmp_path / "broker-1.pid"
    node.start()
    assert file.read_text() == f"{node.pid}\n"
    assert running_pid(file, tmp_path) == node.pid
    node.terminate()
    assert node.wait(10)
    assert node.pid is None
    assert not file.exists()


def test_the_exit_code_is_returned_once(node: NodeProcess) -> None:
    node.start()
    assert node.exit_code() is None
    assert node.pid is not None
    os.kill(node.pid, signal.SIGKILL)
    assert wait_until(node.exit_code, "its end") == -signal.SIGKILL
    assert node.exit_code() is None


def test_the_log_is_kept_over_starts(node: NodeProcess, tmp_path: Path) -> None:
    log = tmp_path / "log"
    node.start()
    wait_until(lambda: log.read_text() == "here\n", "its log")
    node.kill()
    node.start()
    wait_until(lambda: log.read_text() == "here\nhere\n", "both of its logs")


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "0", "99999999", pytest.param(str(os.getpid()), id="own")]
)
def test_a_pid_file_of_another_process_is_stale(tmp_path: Path, text: str) -> None:
    (tmp_path / "broker-1.pid").write_text(text)
    assert running_pid(tmp_path / "broker-1.pid", tmp_path / "other") is None


def test_a_node_dies_with_a_killed_parent(tmp_path: Path) -> None:
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
