"""What the supervisor does with signals that come while it starts processes."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, signal, sys, time
from qbus.broker.workers.supervisor import Supervisor
from qbus.config import BrokerConfig

fork = os.fork

def told_meanwhile():
    pid = fork()
    if pid:
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        time.sleep(0.3)  # it comes to nothing before it is told to end
    return pid

os.fork = told_meanwhile
config = BrokerConfig({"log.dirs": [sys.argv[1]], "listeners": "127.0.0.1:0"})
sys.exit(Supervisor(config, 2, "human", "INFO").run())
"""


def test_a_stop_during_the_start_is_heard_once_and_reaches_all(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"told to stop again" not in done.stderr
