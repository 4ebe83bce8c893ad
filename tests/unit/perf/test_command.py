"""`python -m perf`: what it says while it measures, and where a package is missing."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from perf.progress import progress
from perf.requirements import missing

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("name", "package"), [("psutil", "psutil"), ("confluent_kafka.admin", "confluent_kafka")]
)
def test_a_missing_package_is_named_with_its_extra(name: str, package: str) -> None:
    reason = missing(ModuleNotFoundError(name=name))
    assert reason is not None
    assert f"the package {package} is not installed" in reason
    assert "'.[test]'" in reason


@pytest.mark.parametrize("name", ["perf.nosuch", "qbus.nosuch", "tests.support.x", None])
def test_a_defect_of_our_own_is_no_missing_package(name: str | None) -> None:
    assert missing(ModuleNotFoundError(name=name)) is None


def test_the_command_ends_with_one_line_where_a_package_is_missing() -> None:
    code = (
        "import sys; sys.modules['psutil'] = None; sys.argv = ['perf'];"
        "from perf.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("perf: the package psutil is not installed")
    assert len(done.stderr.splitlines()) == 1


def test_it_shows_what_it_measures_and_for_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("latency", 2, 31, every=0.01):
        deadline = time.monotonic() + 10
        said = ""
        while "so far" not in said:
            assert time.monotonic() < deadline
            said += capsys.readouterr().err
    assert said.startswith("[2/31] latency ...\n")
    assert capsys.readouterr().err.splitlines()[-1] == "[2/31] latency: 0 s"
