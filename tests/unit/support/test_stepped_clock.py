"""A process sees the time of day that the test sets, and its other clocks go on."""

import subprocess
import sys
from pathlib import Path

from tests.support import stepped_clock
from tests.support.stepped_clock import SteppedClock
from tests.support.tools import skip_because_of

_TELL = """
import sys, time
for _ in sys.stdin:
    print(time.time() - time.monotonic(), flush=True)
"""


def test_the_time_of_day_steps_and_others_go_on(tmp_path: Path) -> None:
    skip_because_of(stepped_clock.missing())
    clock = SteppedClock(tmp_path, "clock")
    with subprocess.Popen(
        [sys.executable, "-c", _TELL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(clock.env),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def told() -> float:
            assert process.stdin is not None
            assert process.stdout is not None
            print(file=process.stdin, flush=True)
            return float(process.stdout.readline())

        before = told()
        for offset in (100.0, -100.0, 0.0):
            clock.step(offset)
            assert abs(told() - before - offset) < 1
        process.stdin.close()
