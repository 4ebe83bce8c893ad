"""Children of tests can be interrupted, and none outlives its test."""

import signal
import subprocess
import sys

import pytest

from tests.support.child import child


def test_a_child_is_killed_when_its_test_fails() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(AssertionError), child(command) as process:
        raise AssertionError
    assert process.returncode == -signal.SIGKILL


def test_children_of_a_background_job_can_be_interrupted() -> None:
    job = (
        "import signal, subprocess, sys; signal.signal(signal.SIGINT, signal.SIG_IGN);"
        "from tests.support.child import restore_interrupts; restore_interrupts();"
        "ask = 'import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)';"
        "subprocess.run([sys.executable, '-c', ask], check=True)"
    )
    done = subprocess.run([sys.executable, "-c", job], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
