"""`qbus queue` and `qbus trace` as a user runs them, on a running broker."""

import itertools
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import wait_until

from .conftest import Qbus

pytestmark = pytest.mark.integration

_numbers = itertools.count()
UPPER = (sys.executable, "-c", "import sys; print(sys.stdin.read().upper(), end='')")
FAIL = (sys.executable, "-c", "import sys; sys.exit(3)")


@pytest.fixture
def queue(qbus: Qbus) -> str:
    """An empty queue of two partitions."""
    name = f"queue-{next(_numbers)}"
    qbus("queue", "create", name, "--partitions", "2")
    return name


def added(qbus: Qbus, queue: str, *options: str, stdin: bytes = b"") -> list[str]:
    return qbus("queue", "add", queue, *options, stdin=stdin).decode().split()


def worked(qbus: Qbus, queue: str, command: tuple[str, ...], *options: str) -> Any:
    """What a worker did."""
    return json.loads(qbus("queue", "work", queue, "--json", *options, "--", *command))


def test_queues_are_created_once(qbus: Qbus) -> None:
    name = f"queue-{next(_numbers)}"
    assert qbus("queue", "create", name) == f"Created queue {name} with 1 partition.\n".encode()
    assert "TOPIC_ALREADY_EXISTS" in qbus.failure("queue", "create", name)
    said = qbus("queue", "create", name, "--if-not-exists")
    assert said == f"There is a queue {name} already.\n".encode()
    assert qbus.json("queue", "create", name, "--if-not-exists") == {
        "queue": name,
        "topic": name,
        "partitions": 1,
        "created": False,
    }


def test_lines_are_jobs_and_a_command_does_them(qbus: Qbus, queue: str, tmp_path: Path) -> None:
    ids = added(qbus, queue, stdin=b"one\ntwo\nthree\n")
    assert len(set(ids)) == 3
    assert {len(job_id) for job_id in ids} == {40}
    script = (
        "import os, sys; open(sys.argv[1] + '/' + os.environ['QBUS_JOB_ID'].replace('/', '_'), 'w')"
    )
    command = (sys.executable, "-c", script, str(tmp_path))
    found = worked(qbus, queue, command, "--count", "3", "--parallel", "2")
    assert (found["done"], found["failed"], found["lost"]) == (3, 0, 0)
    assert {path.name for path in tmp_path.iterdir()} == {i.replace("/", "_") for i in ids}
    assert qbus("queue", "peek", queue) == f"All jobs of {queue} are done.\n".encode()
    done = qbus.run("queue", "work", queue, "--idle", "1s", "--", *UPPER)
    assert done == (0, b"", f"Did 0 jobs of {queue}.\n".encode())


def test_results_for_those_who_wait(qbus: Qbus, queue: str) -> None:
    with qbus.start("queue", "work", queue, "--result", "--", *UPPER):
        assert qbus("queue", "add", queue, "--wait", "body", "more") == b"BODY\nMORE\n"
        found = qbus.json("queue", "add", queue, "--wait", "again")
        assert (found["queue"], found["results"], len(found["ids"])) == (queue, ["AGAIN"], 1)


def test_a_failed_job_waits_and_comes_again(qbus: Qbus, queue: str) -> None:
    added(qbus, queue, "body")
    options = ("--count", "2", "--backoff", "200ms")
    done = qbus.run("queue", "work", queue, *options, "--", *FAIL)
    assert (done.code, done.stdout) == (0, b"")
    assert done.stderr.endswith(f"Did 0 jobs of {queue}; 2 attempts failed.\n".encode())
    assert done.stderr.count(b"ended with 3") == 2


def test_a_job_that_always_fails_ends_among_the_dead_letters_of_its_queue(qbus: Qbus) -> None:
    queue = f"queue-{next(_numbers)}"
    qbus("queue", "create", queue, "--dead-letters", f"{queue}.dead")
    qbus("queue", "create", f"{queue}-other", "--dead-letters", f"{queue}-other.dead")
    added(qbus, queue, "poison")
    done = worked(qbus, queue, FAIL, "--idle", "4s")
    assert (done["done"], done["failed"]) == (0, 5)
    letters = qbus("consume", f"{queue}.dead", "--from", "earliest", "--exit-at-end")
    assert letters == b"poison\n"
    (found,) = qbus.json("queue", "stat", queue)
    assert (found["length"], found["taken"], found["dead_letters"]) == (0, 5, 1)


def test_delayed_jobs_are_neither_done_nor_waiting(qbus: Qbus, queue: str) -> None:
    added(qbus, queue, "later", "--delay", "1h")
    (found,) = qbus.json("queue", "stat", queue)
    assert (found["length"], found["delayed"]) == (0, 1), "before the group has begun"
    worked(qbus, queue, UPPER, "--idle", "1s")
    (found,) = qbus.json("queue", "stat", queue)
    assert (found["length"], found["delayed"]) == (0, 1)
    (other,) = qbus.json("queue", "stat", queue, "--group", "new")
    assert (other["length"], other["delayed"]) == (0, 1)
    peeked = qbus.json("queue", "peek", queue)
    assert (peeked["jobs"], peeked["delayed"]) == ([], 1)
    assert peeked["next_due"] > time.time() * 1000
    assert "1 record held back; the next is due in" in qbus("queue", "peek", queue).decode()


def test_the_share_group_of_a_queue(qbus: Qbus, queue: str) -> None:
    group = f"group-{queue}"
    qbus("queue", "create", queue, "--group", group, "--if-not-exists")
    added(qbus, queue, "one", "two", "--key", "k")
    worked(qbus, queue, UPPER, "--count", "1", "--group", group)
    assert group in {one["group"] for one in qbus.json("group", "list")}
    (described,) = qbus.json("group", "describe", group)
    assert (described["type"], described["state"]) == ("share", "Empty")
    assert sum(one["lag"] for one in described["offsets"]) == 1
    text = qbus("group", "describe", group).decode()
    assert text.startswith(f"{group}  Empty, 0 members, lag 1")
    assert ["topic", "partition", "start", "end", "lag"] in [
        line.split() for line in text.splitlines()
    ]


def test_the_settings_of_a_queue(qbus: Qbus, queue: str) -> None:
    qbus("queue", "set", queue, "--delivery-limit", "none", "--backoff", "10s")
    settings = qbus.json("queue", "describe", queue)["settings"]
    assert settings["delivery_limit"] == {"value": 0, "from": "queue"}
    assert settings["backoff_ms"] == {"value": 10_000, "from": "queue"}
    assert settings["dead_letters"] == {"value": None, "from": "group"}
    assert "no limit" in qbus("queue", "describe", queue).decode()
    assert "Name a setting" in qbus.failure("queue", "set", queue, code=2)
    assert "--delivery-limit" in qbus.failure(
        "queue", "set", queue, "--delivery-limit", "-1", code=2
    )


def test_what_waits_without_taking_it(qbus: Qbus, queue: str) -> None:
    ids = added(qbus, queue, "first", "second", "third")
    worked(qbus, queue, UPPER, "--count", "1")
    left = qbus.json("queue", "peek", queue)["jobs"]
    assert len(left) == 2
    assert {job["id"] for job in left} < set(ids)
    assert len(qbus.json("queue", "peek", queue, "--limit", "1", "--newest")["jobs"]) == 1
    lines = qbus("queue", "peek", queue).decode().splitlines()
    assert len(lines) == 3


def test_the_numbers_of_a_queue(qbus: Qbus, queue: str) -> None:
    added(qbus, queue, "one", "two", "three")
    worked(qbus, queue, UPPER, "--count", "1")
    (found,) = qbus.json("queue", "stat", queue)
    assert (found["queue"], found["group"]) == (queue, "disque")
    assert (found["length"], found["in_flight"], found["acknowledged"]) == (2, 0, 1)
    assert len(found["partitions"]) == 2
    assert queue in {one["queue"] for one in qbus.json("queue", "stat")}
    assert qbus("queue", "stat", queue).decode().splitlines()[1].split()[:2] == [queue, "2"]


def test_the_way_of_a_job(qbus: Qbus, queue: str) -> None:
    (job_id,) = added(qbus, queue, "--key", "k", "body")
    worked(qbus, queue, FAIL, "--count", "1", "--backoff", "0s")
    worked(qbus, queue, UPPER, "--count", "1", "--result")
    found = qbus.json("trace", job_id)
    assert (found["topic"], found["job_id"]) == (queue, job_id)
    events = [one for one in found["events"] if one["event"] != "begun"]
    assert events[0]["event"] == "appended"
    assert (events[0]["key"], events[0]["group"]) == ("k", None)
    assert [one["event"] for one in events if one["event"] == "returned"] == ["returned"]
    assert {one["event"] for one in events} == {"appended", "returned", "result", "acknowledged"}
    (result,) = (one["result"] for one in events if one["event"] == "result")
    assert result == "BODY"
    place = (queue, str(found["partition"]), str(found["offset"]))
    assert qbus.json("trace", *place)["events"] == found["events"]
    said = qbus("trace", *place).decode()
    assert said.startswith(f"{queue}-{found['partition']} at offset {found['offset']}\n")
    assert "given back: refused; given out 1 time so far" in said
    assert "no record" in qbus.failure("trace", queue, place[1], "999")
    assert "is no job's id" in qbus.failure("trace", "D-x", code=2)


def test_a_delayed_job(qbus: Qbus, queue: str) -> None:
    (job_id,) = added(qbus, queue, "--delay", "500ms", "body")
    assert worked(qbus, queue, UPPER, "--count", "1")["done"] == 1
    events = [one["event"] for one in qbus.json("trace", job_id)["events"]]
    assert [event for event in events if event != "begun"] == [
        "delayed",
        "delivered",
        "acknowledged",
    ]


def test_dead_letters_are_put_back(qbus: Qbus) -> None:
    queue = f"queue-{next(_numbers)}"
    dead, group = f"{queue}.dead", f"group-{queue}"
    qbus("queue", "create", queue, "--dead-letters", dead, "--group", group)
    added(qbus, queue, "--group", group, "body")
    worked(qbus, queue, FAIL, "--group", group, "--count", "5", "--backoff", "0s")
    wait_until(
        lambda: qbus("consume", dead, "--from", "earliest", "--exit-at-end") == b"body\n",
        "the dead letter",
    )
    found = qbus.json("queue", "redrive", dead)
    assert found == {"topic": dead, "records": 1, "skipped": 0}
    assert worked(qbus, queue, UPPER, "--group", group, "--count", "1")["done"] == 1
    assert qbus("queue", "redrive", dead) == f"Put back 0 records of {dead}.\n".encode()


def test_an_interrupted_worker_gives_its_job_back(qbus: Qbus, queue: str, tmp_path: Path) -> None:
    added(qbus, queue, "body")
    command = ("sh", "-c", f"sleep 60 & touch {tmp_path / 'there'}; wait; wait")
    with qbus.start("queue", "work", queue, "--", *command, stderr=subprocess.PIPE) as worker:
        wait_until((tmp_path / "there").exists, "the command")
        worker.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert worker.wait(30) == 143
        assert time.monotonic() - began < 10
        assert worker.stderr is not None
        assert b"Traceback" not in worker.stderr.read()
    assert worked(qbus, queue, UPPER, "--count", "1")["done"] == 1


def test_one_line_says_what_is_wrong(qbus: Qbus, queue: str) -> None:
    said = qbus.failure("queue", "work", queue, "--", "no-such-command")
    assert said == "no-such-command: there is no such command"
    assert "would not live longer" in qbus.failure(
        "queue", "add", queue, "--delay", "2d", "--ttl", "1d", "body"
    )
    qbus.failure("queue", "add", queue, "--delay", "soon", "body", code=2)
    qbus.failure("queue", "pause", queue, "maybe", code=2)


def test_json_of_added_jobs(qbus: Qbus, queue: str) -> None:
    document = json.loads(qbus("queue", "add", queue, "--json", "one", "two"))
    assert (document["queue"], len(document["ids"])) == (queue, 2)


def test_a_paused_queue_gives_nothing_out(qbus: Qbus, queue: str) -> None:
    added(qbus, queue, "body")
    said = qbus("queue", "pause", queue, "out").decode()
    assert said == f"Queue {queue} gives no jobs out.\n"
    assert worked(qbus, queue, UPPER, "--idle", "2s")["done"] == 0
    assert qbus.json("queue", "pause", queue, "none") == {"queue": queue, "paused": "none"}
    assert worked(qbus, queue, UPPER, "--count", "1")["done"] == 1
