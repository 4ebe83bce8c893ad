"""A process that loads a server is told what to do, and fails with what it wrote."""

import pytest

from perf.load_process import LoadFailedError, LoadProcess

_ECHO = "import sys\nfor line in sys.stdin: print(line.strip() * 2, flush=True)"
_FAILS = "import sys; print('ready', flush=True); sys.stdin.readline(); raise ValueError('no luck')"


def test_it_answers_a_line_at_a_time() -> None:
    with LoadProcess("echo", ["-c", _ECHO]) as load:
        load.say("one")
        load.say("two")
        assert [load.line(), load.line()] == ["oneone\n", "twotwo\n"]


def test_why_it_ended_is_told() -> None:
    with LoadProcess("fails", ["-c", _FAILS]) as load:
        assert load.line() == "ready\n"
        load.say("go on")
        with pytest.raises(LoadFailedError, match=r"the load fails .*exit code is 1(?s:.*)no luck"):
            load.line()
        with pytest.raises(LoadFailedError, match="no luck"):
            load.say("go on")
        with pytest.raises(LoadFailedError, match="no luck"):
            load.wait(10)


def test_it_does_not_wait_for_ever() -> None:
    with LoadProcess("sleeps", ["-c", "import time; time.sleep(100)"]) as load:
        with pytest.raises(LoadFailedError, match=r"did not end within 0.01 s: it runs still"):
            load.wait(0.01)
        with pytest.raises(LoadFailedError, match=r"gave no answer within 0.1 s"):
            load.line(0.1)


def test_one_that_ended_well_is_waited_for() -> None:
    with LoadProcess("ends", ["-c", ""]) as load:
        load.wait(20)
