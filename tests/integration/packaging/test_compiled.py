"""The processes that tests start run what is compiled, where there is a compiler."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.integration


def version(**environment: str) -> dict[str, object]:
    kept = {key: value for key, value in os.environ.items() if key != "QBUS_COMPILED"}
    told = subprocess.run(
        [sys.executable, "-m", "qbus", "version", "--json"],
        env={**kept, **environment},
        capture_output=True,
        check=True,
        timeout=60,
    )
    found: dict[str, object] = json.loads(told.stdout)
    return found


@pytest.fixture(scope="module", autouse=True)
def _needs_a_compiler() -> None:
    if shutil.which("cc") is None:
        pytest.skip("no compiler is here")
    if "make compile" in str(version()["why_not_compiled"]):
        pytest.skip("sources have changed since they were compiled")


def test_what_runs_is_said() -> None:
    assert version()["why_not_compiled"] is None
    sources = version(QBUS_COMPILED="0")
    assert (sources["compiled"], sources["why_not_compiled"]) == (False, "QBUS_COMPILED is 0")


def test_a_broker_maps_the_library(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        maps = Path(f"/proc/{broker.pid}/maps").read_text()
    assert "qbus_compiled__mypyc" in maps


_IMPORT_ALL = """
from importlib import import_module
from qbus.compiled import MODULES
for name in MODULES:
    try:
        assert import_module(name).__file__.endswith(".so"), "it is no compiled one"
    except Exception as error:
        print(name, repr(error))
"""


def test_every_compiled_module_can_be_imported() -> None:
    """What mypyc makes of some annotations fails when a module is imported, not when it is built.

    A broker imports a handler at its first request.
    """
    kept = {key: value for key, value in os.environ.items() if key != "QBUS_COMPILED"}
    told = subprocess.run(
        [sys.executable, "-c", _IMPORT_ALL],
        env=kept,
        capture_output=True,
        check=True,
        timeout=60,
        text=True,
    )
    assert told.stdout == ""


_REENTER = """
from qbus.broker.kafka.handlers import leaders
from qbus.broker.metadata.image import NodeAddress

assert leaders.__file__.endswith(".so"), "it is no compiled one"


class Broker:
    def node(self, listener):
        return NodeAddress(1, listener, 9092, None)


class Metadata:
    brokers = {1: Broker(), 2: Broker()}


class Last(Metadata):
    def __del__(self):
        begun.append(leaders.reachable(Metadata(), {1, 2}, "again"))


begun = []
first = leaders.reachable(Last(), {1, 2}, "first")
next(first)
del first
print(*(node.host for node in begun[0]))
"""


def test_a_generator_that_begins_while_another_ends_is_whole() -> None:
    """mypyc keeps the object of the one for the other, and setup.py makes that safe.

    Where releasing what the first one holds lets another thread run, that one does the same.
    """
    kept = {key: value for key, value in os.environ.items() if key != "QBUS_COMPILED"}
    ran = subprocess.run(
        [sys.executable, "-c", _REENTER],
        env=kept,
        capture_output=True,
        check=False,
        timeout=60,
        text=True,
    )
    assert (ran.stdout, ran.stderr) == ("again again\n", "")
