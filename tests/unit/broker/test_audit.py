"""The audit log: every event that is due becomes a line, and what is lost is counted and said."""

import errno
import json
import logging
import os
import stat
import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from qbus.broker.audit import AuditFile, AuditLimits, AuditLog, Caller
from qbus.broker.net.peer import Principal
from qbus.errors import ConfigError
from qbus.security.acls import Decision, Operation, Reason, Resource, ResourceType

ALICE = Principal("User", "alice")
ORDERS = Resource(ResourceType.TOPIC, "orders")
DENIED = Decision(False, Reason.NO_RULES_DENY)


class Disk(AuditFile):
    """A file that can be made slow or full."""

    def __init__(self, path: Path, limits: AuditLimits = AuditLimits()) -> None:  # noqa: B008
        super().__init__(path, limits)
        self.is_full = False
        self.free = Event()
        self.free.set()
        self.reached = Event()

    def write(self, lines: bytes) -> None:
        self.reached.set()
        assert self.free.wait(10)
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(lines)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "audit.log")


@pytest.fixture
def audit(disk: Disk) -> Iterator[AuditLog]:
    log = AuditLog(disk, queue_size=100, node_id=3)
    log.start()
    yield log
    disk.free.set()
    log.close()


def caller(request: str = "FETCH", client_id: str | None = "app", **more: Any) -> Caller:
    return Caller(ALICE, "10.0.0.1", client_id, request, **more)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_says_who_did_what_to_what_and_why(audit: AuditLog, tmp_path: Path) -> None:
    audit.authorization(caller(), Operation.READ, ORDERS, DENIED)
    audit.close()
    (line,) = lines(tmp_path / "audit.log")
    time = line.pop("time")
    assert time.endswith("Z")
    assert line == {
        "broker": 3,
        "event": "authorization",
        "principal": "User:alice",
        "host": "10.0.0.1",
        "client_id": "app",
        "request": "FETCH",
        "operation": "READ",
        "resource_type": "TOPIC",
        "resource": "orders",
        "allowed": False,
        "rule": "no rule concerns the resource",
    }


def test_authentications_and_changes_have_lines_of_their_own(
    audit: AuditLog, tmp_path: Path
) -> None:
    audit.authentication(
        principal=ALICE, host="::1", mechanism="PLAIN", allowed=False, reason="wrong password"
    )
    audit.administration(caller("CREATE_ACLS"), "add access rule", "a rule")
    audit.close()
    first, second = lines(tmp_path / "audit.log")
    assert (first["event"], first["mechanism"], first["reason"]) == (
        "authentication",
        "PLAIN",
        "wrong password",
    )
    assert (second["event"], second["action"], second["target"]) == (
        "administration",
        "add access rule",
        "a rule",
    )


def test_what_a_client_calls_itself_cannot_forge_or_flood_lines(
    audit: AuditLog, tmp_path: Path
) -> None:
    hostile = 'x"}\n{"event":"authorization","allowed":true}\u2028\udc80' + "y" * 100_000
    audit.authorization(caller(client_id=hostile), Operation.READ, ORDERS, DENIED)
    audit.close()
    text = (tmp_path / "audit.log").read_text()
    assert text.count("\n") == 1
    assert len(text) < 2000
    assert lines(tmp_path / "audit.log")[0]["allowed"] is False


def test_what_waits_for_a_slow_disk_takes_little_memory(audit: AuditLog, disk: Disk) -> None:
    disk.free.clear()
    tracemalloc.start()
    try:
        for number in range(80):
            name = f"{number}" + "y" * 100_000
            audit.authorization(caller(client_id=name), Operation.READ, ORDERS, DENIED)
        del name
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_only_the_brokers_user_can_read_it(audit: AuditLog, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "audit.log").stat().st_mode) == 0o600


def test_the_file_is_appended_to_across_restarts(tmp_path: Path) -> None:
    for _ in range(2):
        log = AuditLog(AuditFile(tmp_path / "audit.log", AuditLimits()))
        log.start()
        log.administration(caller(), "a", "b")
        log.close()
    assert len(lines(tmp_path / "audit.log")) == 2


def test_it_is_rotated_by_size_and_the_oldest_goes(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / "audit.log", AuditLimits(max_bytes=100, max_files=2))
    for number in range(8):
        file.write(b"%d" % number + b"." * 58 + b"\n")
    file.close()
    found = {path.name: path.read_bytes()[:1] for path in sorted(tmp_path.iterdir())}
    assert found == {"audit.log": b"7", "audit.log.1": b"6", "audit.log.2": b"5"}


def test_no_former_files_are_kept_if_none_are_wanted(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / "audit.log", AuditLimits(max_bytes=100, max_files=0))
    for _ in range(3):
        file.write(b"." * 60 + b"\n")
    file.close()
    assert [path.name for path in tmp_path.iterdir()] == ["audit.log"]
    assert (tmp_path / "audit.log").stat().st_size == 61


def test_what_finds_the_queue_full_is_counted_and_said(
    audit: AuditLog, disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk.free.clear()
    audit.administration(caller(), "first", "")
    assert disk.reached.wait(10)
    with caplog.at_level(logging.ERROR):
        for _ in range(300):
            audit.authorization(caller(), Operation.READ, ORDERS, DENIED)
    assert audit.dropped == 210
    assert "lost 1 events, 1 in all: its queue is full" in caplog.text
    disk.free.set()
    audit.close()
    assert len(lines(tmp_path / "audit.log")) == 91
    assert audit.written == 91


def test_room_is_kept_for_administration(audit: AuditLog, disk: Disk, tmp_path: Path) -> None:
    disk.free.clear()
    audit.administration(caller(), "first", "")
    assert disk.reached.wait(10)
    for _ in range(300):
        audit.authorization(caller(), Operation.READ, ORDERS, DENIED)
    dropped = audit.dropped
    audit.administration(caller(), "last", "")
    assert audit.dropped == dropped
    disk.free.set()
    audit.close()
    assert lines(tmp_path / "audit.log")[-1]["action"] == "last"


def test_a_full_disk_is_said_and_the_log_goes_on_once_there_is_room(
    audit: AuditLog, disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk.is_full = True
    with caplog.at_level(logging.ERROR):
        audit.administration(caller(), "lost", "")
        while not audit.dropped:
            assert disk.reached.wait(10)
    assert "the disk does not take it (No space left on device): make room" in caplog.text
    disk.is_full = False
    audit.administration(caller(), "written", "")
    audit.close()
    assert [line["action"] for line in lines(tmp_path / "audit.log")] == ["written"]
    assert audit.dropped == 1


def test_after_a_torn_write_the_next_line_stands_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = AuditFile(tmp_path / "audit.log", AuditLimits())
    file.write(b'{"a":1}\n')
    written = iter([3])

    def tear(fd: int, data: Any) -> int:
        count = next(written, None)
        if count is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[:count])

    write = os.write
    monkeypatch.setattr("os.write", tear)
    with pytest.raises(OSError, match="No space"):
        file.write(b'{"b":2}\n')
    monkeypatch.undo()
    file.write(b'{"c":3}\n')
    file.close()
    assert (tmp_path / "audit.log").read_bytes() == b'{"a":1}\n{"b\n{"c":3}\n'


def test_events_are_sampled_as_configured(disk: Disk) -> None:
    for part, expected in ((0.0, {False}), (1.0, {True}), (0.5, {False, True})):
        log = AuditLog(disk, sampling=partial(float, part))
        assert {log.samples() for _ in range(200)} == expected


def test_what_the_lean_way_leaves_to_be_recorded_is_recorded(disk: Disk) -> None:
    part = 1.0
    log = AuditLog(disk, sampling=lambda: part)
    assert log.is_due()
    part = 0.0
    assert log.samples()  # as was promised
    assert not log.samples()
    assert not log.is_due()


def test_a_disk_that_hangs_does_not_keep_a_broker_from_stopping(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(disk)
    log.start()
    disk.free.clear()
    log.administration(caller(), "a", "b")
    assert disk.reached.wait(10)
    log.close(timeout_s=0.01)
    assert "does not end" in caplog.text
    disk.free.set()
    log.close()


def test_a_path_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    log = AuditLog(AuditFile(tmp_path, AuditLimits()))
    with pytest.raises(ConfigError, match=r"qbus\.audit\.log\.path.*directory"):
        log.start()
    log.close()
