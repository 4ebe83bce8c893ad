"""Jobs through clients that nobody here wrote: pydisque, redis, disqueue-node, spinach.

Each does what a worker does, and says what it saw.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from perf.peers.maven import Artifact, Unavailable, fetched
from tests.support.broker_process import BrokerProcess
from tests.support.npm import packages as installed
from tests.support.ports import free_port

pytestmark = pytest.mark.compat

_DRIVERS = Path(__file__).parent / "disque" / "drivers"
_PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Where a broker serves jobs."""
    found, directory = free_port(), tmp_path_factory.mktemp("broker") / "data"
    with BrokerProcess(directory, "--disque-listen", f"127.0.0.1:{found}"):
        yield found


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What a driver saw."""
    done = subprocess.run(
        command,
        capture_output=True,
        check=False,
        timeout=_PATIENCE_S,
        env={**os.environ, **(env or {})},
    )
    assert not done.returncode, done.stderr.decode()
    seen: dict[str, Any] = json.loads(done.stdout.decode().splitlines()[-1])
    return seen


def test_pydisque(port: int) -> None:
    pytest.importorskip("pydisque")
    driver = str(_DRIVERS / "with_pydisque.py")
    assert run([sys.executable, "-W", "ignore", driver, str(port), "with-pydisque"]) == {
        "node": 40,
        "length": 2,
        "peeked": ["one", "two"],
        "got": ["with-pydisque", True, "one"],
        "working": 30,
        "counters": [["one", 1, 0], ["two", 0, 0]],
        "shown": "active",
        "nothing": [],
        "stat": 3,
        "dequeued": 1,
        "enqueued": 1,
        "paused": "in",
        "resumed": "none",
        "scanned": True,
        "jobs": [],
    }


@pytest.mark.parametrize("protocol", ["2", "3"])
def test_redis_py_with_raw_commands(port: int, protocol: str) -> None:
    pytest.importorskip("redis")
    driver = str(_DRIVERS / "with_redis.py")
    assert run([sys.executable, driver, str(port), f"with-redis-{protocol}", protocol]) == {
        "ping": True,
        "got": True,
        "acknowledged": 1,
        "nothing": None,
        "unknown": True,
        "error": "wrong number of arguments for 'qlen' command",
        "pipelined": 100,
        "in order": True,
        "all": 100,
    }


def test_redis_cli(port: int) -> None:
    program = shutil.which("redis-cli")
    if program is None:
        pytest.skip("redis-cli is not installed")

    def ask(*words: str) -> str:
        command = [program, "-p", str(port), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    job = ask("ADDJOB", "cli", "hello", "5000")
    assert ask("GETJOB", "FROM", "cli").splitlines() == ["cli", job, "hello"]
    assert ask("ACKJOB", job) == "1"
    assert ask("QLEN") == "ERR wrong number of arguments for 'qlen' command"


def test_disqueue_node(port: int) -> None:
    for program in ("node", "npm"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    packages = installed(_DRIVERS)
    if packages is None:
        pytest.skip("npm cannot fetch disqueue-node")
    driver = str(_DRIVERS / "with_disqueue.js")
    env = {"NODE_PATH": str(packages), "NODE_NO_WARNINGS": "1"}
    assert run(["node", driver, str(port), "with-disqueue"], env) == {
        "length": 1,
        "got": ["with-disqueue", True, "one", 0],
        "working": 30,
        "nacked": 1,
        "nacks": 1,
        "shown": "active",
        "acknowledged": 1,
        "dequeued": 1,
        "enqueued": 1,
        "fast": 1,
        "nodes": 40,
    }


def test_spinach(port: int) -> None:
    try:
        jars = fetched("spinach-0.2", (Artifact("biz.paluch.redis", "spinach", "0.2"),))
    except Unavailable as unavailable:
        pytest.skip(str(unavailable))
    driver = str(_DRIVERS / "WithSpinach.java")
    assert run(["java", "-cp", f"{jars}/*", driver, str(port), "with-spinach"]) == {
        "length": 2,
        "peeked": "one",
        "got": [True, "one"],
        "working": 30,
        "nacked": 1,
        "both": 2,
        "shown": 30,
        "acknowledged": 2,
        "scanned": True,
        "jobs": 0,
        "nodes": 3,
        "ping": "PONG",
    }
