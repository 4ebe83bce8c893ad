"""What the supervisor does with processes that end and with signals, whenever they come.

It runs in a process of its own, in which its workers do other things than brokers do.
"""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.support.ports import free_port
from tests.support.waiting import wait_until

BEGIN = """
import json, os, signal, socket, sys, time
from pathlib import Path
from qbus.broker.workers.supervisor import Supervisor
from qbus.broker.workers.worker import tell_ready
from qbus.config import BrokerConfig
from qbus.service import logs

logs.configure("human", "INFO")
directory, options = Path(sys.argv[1]), json.loads(sys.argv[2])
settings = {"log.dirs": [str(directory / "data")], "listeners": "127.0.0.1:0", **options}
supervisor = Supervisor(BrokerConfig(settings), 2, "human", "INFO")
(one, two), hub = supervisor._workers, supervisor._hub

def begin(name):
    "Begin a life; which one it is."
    path = directory / name
    lives = [*(path.read_text().split() if path.exists() else []), str(os.getpid())]
    path.with_suffix(".new").write_text(" ".join(lives))
    path.with_suffix(".new").rename(path)
    return len(lives)

def wait_for(name, lives=1):
    while not (directory / name).exists() or len((directory / name).read_text().split()) < lives:
        time.sleep(0.01)

def rest(lifeline):
    "Do nothing until the supervisor is gone, or SIGTERM comes."
    while lifeline.recv(4096):
        pass
    return 0

def serve(lifeline):
    tell_ready(lifeline)
    return rest(lifeline)

one.run = two.run = serve
"""
RUN = "\nsys.exit(supervisor.run())\n"

NO_STORE = {"zookeeper.connect": "127.0.0.1:1"}  # which nobody asks for anything here


class Supervised:
    """A process with a supervisor."""

    def __init__(self, directory: Path, process: subprocess.Popen[bytes]) -> None:
        self.directory = directory
        self.process = process

    def log(self) -> str:
        """What it has said so far."""
        return (self.directory / "log").read_text()

    def wait_for(self, text: str) -> None:
        """Wait until it has said that."""
        wait_until(lambda: text in self.log(), text)

    def lives(self, name: str) -> list[int]:
        """The processes that have begun under that name."""
        return [int(pid) for pid in (self.directory / name).read_text().split()]

    def stop(self) -> int:
        """Tell it to stop, once; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def supervised(directory: Path, script: str, options: dict[str, str]) -> Iterator[Supervised]:
    """A supervisor of two workers; ``script`` says what they do."""
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", BEGIN + script + RUN, str(directory), json.dumps(options)],
            stderr=log,
        )
    try:
        yield Supervised(directory, process)
    finally:
        process.kill()
        process.wait(30)


def test_a_stop_during_the_start_is_heard_once_and_reaches_all(tmp_path: Path) -> None:
    script = """
fork = os.fork

def told_meanwhile():
    pid = fork()
    if pid:
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        time.sleep(0.3)  # it comes to nothing before it is told to end
    return pid

os.fork = told_meanwhile
"""
    with supervised(tmp_path, script, {}) as supervisor:
        assert supervisor.process.wait(30) == 0, supervisor.log()
        assert "told to stop again" not in supervisor.log()


def test_a_stop_while_it_stops_by_itself_is_the_first_one(tmp_path: Path) -> None:
    script = """
def fail(lifeline):
    wait_for("two")
    return 1

def end_slowly(lifeline):
    def end(*_):
        begin("ending")
        wait_for("go")
        os.write(2, b"ended in order")
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    begin("two")
    return rest(lifeline)

one.run, two.run = fail, end_slowly
"""
    with supervised(tmp_path, script, NO_STORE) as supervisor:
        supervisor.wait_for("broker 1 could not start (exit code 1): stopping")
        wait_until((tmp_path / "ending").exists, "the other one to be told")
        supervisor.process.send_signal(signal.SIGTERM)
        (tmp_path / "go").write_text("1")
        assert supervisor.process.wait(30) == 1
        assert "ended in order" in supervisor.log()
        assert "told to stop again" not in supervisor.log()


def test_one_that_has_served_is_started_again_though_others_are_not_ready(tmp_path: Path) -> None:
    script = """
def end_at_once(lifeline):
    tell_ready(lifeline)
    return 1 if begin("one") == 1 else rest(lifeline)

def begin_slowly(lifeline):
    wait_for("one", 2)
    return serve(lifeline)

one.run, two.run = end_at_once, begin_slowly
"""
    with supervised(tmp_path, script, NO_STORE) as supervisor:
        supervisor.wait_for("2 brokers listen on")
        assert "broker 1 has ended (exit code 1): starting it again" in supervisor.log()
        assert supervisor.stop() == 0


def test_workers_that_lose_the_hub_before_they_serve_are_started_again(tmp_path: Path) -> None:
    script = """
def die_once(lifeline):
    life, streams = begin("hub"), []
    tell_ready(lifeline)
    while True:
        data, descriptors, _, _ = socket.recv_fds(lifeline, 4096, 1)
        if not data:
            return 0
        streams += descriptors
        if life == 1 and len(streams) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

def need_hub(process):
    def run(lifeline):
        if len((directory / "hub").read_text().split()) == 1:
            supervisor._store_streams[process.name].recv(1)
            time.sleep(0.3)  # as a broker takes a while to end
            return 1
        return serve(lifeline)
    return run

hub.run, one.run, two.run = die_once, need_hub(one), need_hub(two)
"""
    with supervised(tmp_path, script, {}) as supervisor:
        supervisor.wait_for("2 brokers listen on")
        assert "hub has ended (SIGKILL)" in supervisor.log()
        assert supervisor.stop() == 0


def hub_that_finds(error: str) -> str:
    """A hub that is killed once it has served, and whose next life cannot open the store."""
    return f"""
from qbus.metadata import StoreUnavailable, StoreUnusable

def die_once(lifeline):
    life = begin("hub")
    if life == 2:
        raise {error}("cannot open the store")
    tell_ready(lifeline)
    if life == 1:
        wait_for("one")
        wait_for("two")
        os.kill(os.getpid(), signal.SIGKILL)
    return rest(lifeline)

def announced(name):
    def run(lifeline):
        begin(name)
        return serve(lifeline)
    return run

hub.run, one.run, two.run = die_once, announced("one"), announced("two")
"""


def test_a_hub_that_cannot_open_the_store_for_now_is_started_again(tmp_path: Path) -> None:
    with supervised(tmp_path, hub_that_finds("StoreUnavailable"), {}) as supervisor:
        supervisor.wait_for("hub has ended (exit code 1): starting it again")
        wait_until(lambda: len(supervisor.lives("hub")) == 3, "a third life of the hub")
        assert supervisor.stop() == 0


def test_a_store_that_cannot_be_used_ends_all(tmp_path: Path) -> None:
    with supervised(tmp_path, hub_that_finds("StoreUnusable"), {}) as supervisor:
        assert supervisor.process.wait(30) == 1
        assert "the metadata store cannot be used: stopping" in supervisor.log()
        assert len(supervisor.lives("hub")) == 2


def test_a_new_hub_knows_the_workers_that_live(tmp_path: Path) -> None:
    script = """
run = hub.run

def serve_metrics(lifeline):
    begin("hub")
    return run(lifeline)

hub.run = serve_metrics
"""
    address = f"127.0.0.1:{free_port()}"
    options = {**NO_STORE, "metrics.listen": address}
    with supervised(tmp_path, script, options) as supervisor:
        supervisor.wait_for("2 brokers listen on")
        wait_until(lambda: known_workers(address) == {"1", "2"}, "the workers to be known")
        os.kill(supervisor.lives("hub")[0], signal.SIGKILL)
        wait_until(lambda: len(supervisor.lives("hub")) == 2, "another hub")
        wait_until(lambda: known_workers(address) == {"1", "2"}, "the workers to be known again")
        assert supervisor.log().count("starting it again") == 1
        assert supervisor.stop() == 0


def known_workers(address: str) -> set[str]:
    """The brokers that the metrics' page of all speaks of."""
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    except OSError:  # there is no hub for now
        return set()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return {sample.labels["broker"] for sample in families["qbus_worker_up"].samples}


def test_workers_on_zookeeper_do_not_wait_for_the_metrics(tmp_path: Path) -> None:
    script = """
def end_once(lifeline):
    if begin("hub") == 1:
        tell_ready(lifeline)
        wait_for("one")
        return 1
    return rest(lifeline)  # and never ready

def follow(lifeline):
    life = begin("one")
    tell_ready(lifeline)
    if life == 1:
        wait_for("hub", 2)
        return 1
    return rest(lifeline)

hub.run, one.run = end_once, follow
"""
    options = {**NO_STORE, "metrics.listen": f"127.0.0.1:{free_port()}"}
    with supervised(tmp_path, script, options) as supervisor:
        supervisor.wait_for("broker 1 serves again")
        assert supervisor.stop() == 0
