"""What goes wrong around an agent: it says what, where and why, and goes on once that is mended.

Nothing is lost, and nothing is shipped twice.
"""

import asyncio
import errno
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from qbus.agent.config import parse
from qbus.agent.file_shipper import FileShipper
from qbus.agent.positions.positions import FILE_NAME
from qbus.agent.status import FileState
from qbus.errors import ErrorCode
from qbus.wire import ApiKey
from qbus.wire.messages.metadata import MetadataRequest, MetadataResponse
from qbus.wire.messages.produce import ProduceRequest, ProduceResponse
from tests.support.fake_broker import FakeBroker
from tests.support.ports import free_port
from tests.support.waiting import eventually

CONFIG = """
bootstrap = "{bootstrap}"
topic = "{topic}"
[[source]]
paths = ["{pattern}"]
from_beginning = true
{settings}
[delivery]
linger_ms = 5
[tailing]
poll_interval_ms = {poll_ms}
"""
RARELY_MS = 600_000
"""Longer than any test: only what the kernel tells leads to another look."""


class Scene:
    """A log, an agent, and a broker that keeps what comes."""

    def __init__(self, directory: Path, broker: FakeBroker) -> None:
        self.directory = directory
        self.log = directory / "app.log"
        self.pattern = f"{directory}/*.log"
        self.broker = broker
        self.files: FileShipper | None = None

    @asynccontextmanager
    async def shipping(
        self,
        bootstrap: str = "",
        poll_ms: int = RARELY_MS,
        settings: str = "",
        topic: str = "lines",
    ) -> AsyncIterator[FileShipper]:
        text = CONFIG.format(
            bootstrap=bootstrap or self.broker.bootstrap,
            pattern=self.pattern,
            poll_ms=poll_ms,
            settings=settings,
            topic=topic,
        )
        files = self.files = FileShipper(parse(text.encode()), self.directory / "data")
        await files.start()
        try:
            yield files
        finally:
            await files.stop()

    def write(self, data: bytes) -> None:
        with self.log.open("ab") as file:
            file.write(data)

    def arrived(self, topic: str = "lines") -> list[bytes]:
        return [value or b"" for value in self.broker.logs[topic, 0].values()]

    async def arrive(self, *values: bytes) -> None:
        """Return once exactly these values have arrived, in this order."""
        await eventually(lambda: len(self.arrived()) >= len(values))
        assert self.arrived() == [*values]

    def error(self) -> str | None:
        """What the status says of the log."""
        assert self.files is not None
        return next((file.error for file in self.files.files() if file.path == str(self.log)), None)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qbus.agent.delivery.dispatcher._PAUSE_S", 0.05)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with FakeBroker({"lines": 1, "later": 1}) as broker:
        yield Scene(tmp_path, broker)


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep files from being opened that nobody may read, although root could."""
    really_open = os.open

    def guarded(path: Any, flags: int, *arguments: Any, **more: Any) -> int:
        is_log = str(path).endswith(".log")
        if is_log and os.path.exists(path) and not os.stat(path).st_mode & 0o444:  # noqa: PTH110, PTH116
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return really_open(path, flags, *arguments, **more)

    monkeypatch.setattr(os, "open", guarded)


async def test_a_directory_in_a_files_place(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.log.mkdir()
    async with scene.shipping():
        await eventually(lambda: scene.error() == "it is a directory")
        assert f"{scene.log} matches, and is not read: it is a directory" in caplog.text
        scene.log.rmdir()
        scene.write(b"one\n")
        await scene.arrive(b"one")
        await eventually(lambda: scene.error() is None)


@pytest.mark.parametrize("content", [b"one\n", b""])
@pytest.mark.usefixtures("locked")
async def test_a_file_that_nobody_may_read_is_read_when_somebody_may(
    scene: Scene, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    caplog.set_level(logging.INFO)
    scene.write(content)
    scene.log.chmod(0)
    async with scene.shipping():
        await eventually(lambda: scene.error() == "Permission denied")
        assert f"{scene.log}: Permission denied; trying again" in caplog.text
        scene.log.chmod(0o640)
        await eventually(lambda: scene.error() is None)
        assert f"{scene.log} can be read again" in caplog.text
        scene.write(b"two\n")
        await scene.arrive(*content.splitlines(), b"two")


async def test_a_broker_that_is_away_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbus.agent.delivery.dispatcher._LOOK_MS", 200)
    port = free_port()
    broker = FakeBroker({"lines": 1}, port=port)
    scene = Scene(tmp_path, broker)
    scene.write(b"one\n")
    async with scene.shipping(f"127.0.0.1:{port}") as files:
        await eventually(lambda: files.error is not None)
        assert f"127.0.0.1:{port}" in str(files.error)
        assert f"no broker of 127.0.0.1:{port} can be reached" in caplog.text
        scene.write(b"two\n")
        async with broker:
            await scene.arrive(b"one", b"two")
            await eventually(lambda: files.error is None)


async def test_brokers_that_take_lines_are_there_however_slow_they_are_to_tell_of_themselves(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(request: MetadataRequest) -> MetadataResponse:
        if not request.topics:
            await asyncio.sleep(60)
        return scene.broker.metadata(request)

    monkeypatch.setattr("qbus.agent.delivery.dispatcher._LOOK_MS", 50)
    scene.broker.handlers[ApiKey.METADATA] = slow
    async with scene.shipping() as files:
        await eventually(lambda: files.error is not None)
        scene.write(b"one\n")
        await scene.arrive(b"one")
        await eventually(lambda: files.error is None)


async def test_a_topic_that_may_not_be_written_to(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(request: ProduceRequest) -> ProduceResponse | None:
        scene.broker.refusal = lambda *_: ErrorCode.TOPIC_AUTHORIZATION_FAILED  # type: ignore[method-assign]
        return scene.broker.produce(request)

    scene.broker.handlers[ApiKey.PRODUCE] = refuse
    scene.write(b"one\n")
    async with scene.shipping() as files:
        await eventually(lambda: files.error is not None)
        assert "lines-0: TOPIC_AUTHORIZATION_FAILED (its user needs: qbus acl add" in caplog.text
        assert "TOPIC_AUTHORIZATION_FAILED" in str(files.error)
        scene.write(b"two\n")
        del scene.broker.refusal
        scene.broker.handlers[ApiKey.PRODUCE] = scene.broker.produce
        await scene.arrive(b"one", b"two")
        await eventually(lambda: files.error is None)


@pytest.mark.parametrize("settings", ["", "encoding = 'utf-16-le'", "headers = {at = '{offset}'}"])
async def test_lines_that_are_too_large_for_their_topic_are_set_aside(
    scene: Scene, caplog: pytest.LogCaptureFixture, settings: str
) -> None:
    def limited(request: ProduceRequest) -> ProduceResponse | None:
        (data,) = request.topic_data[0].partition_data
        assert data.records is not None
        code = ErrorCode.MESSAGE_TOO_LARGE if len(data.records) > 900 else ErrorCode.NONE
        scene.broker.refusal = lambda *_: code  # type: ignore[method-assign]
        return scene.broker.produce(request)

    scene.broker.handlers[ApiKey.PRODUCE] = limited
    encoding = "utf-16-le" if "utf" in settings else "utf-8"
    values = [b"line %02d " % number + os.urandom(10).hex().encode() for number in range(20)]
    large = {number: os.urandom(600).hex().encode() for number in (0, 7, 8, 19)}
    lines = [large.get(number, value) for number, value in enumerate(values)]
    width = len("x".encode(encoding))
    places = [width * sum(len(line) + 2 for line in lines[:number]) for number in large]
    scene.write(b"".join(line + b"\r\n" for line in lines).decode().encode(encoding))
    others = scene.directory / "other.log"
    others.write_bytes(b"".join(b"other %d\n" % n for n in range(20)).decode().encode(encoding))
    async with scene.shipping(settings=settings) as files:
        await eventually(lambda: files.refused == 4 and files.records == 36)
        (status,) = (file for file in files.files() if file.path == str(scene.log))
        assert status.refused == 4
        assert status.position == status.size, "a restart does not read them again"
        assert str(status.refusal).startswith(
            f"the record at byte {places[-1]} (1200 bytes), now in"
        )
    assert [value for value in scene.arrived() if value.startswith(b"line")] == [
        value for number, value in enumerate(values) if number not in large
    ]
    assert len(scene.arrived()) == 36, "every other line arrives once"
    kept = {path.read_bytes() for path in (scene.directory / "data/damaged").iterdir()}
    assert kept == set(large.values())
    for place in places:
        assert f"{scene.log}: topic lines refuses the record at byte {place} " in caplog.text
    assert "trying again" not in caplog.text


async def test_a_topic_that_may_not_be_seen(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(request: MetadataRequest) -> MetadataResponse:
        answer = scene.broker.metadata(request)
        for topic in answer.topics:
            topic.error_code, topic.partitions = ErrorCode.TOPIC_AUTHORIZATION_FAILED, []
        return answer

    scene.broker.handlers[ApiKey.METADATA] = refuse
    scene.write(b"one\n")
    async with scene.shipping() as files:
        await eventually(lambda: files.error is not None)
        assert "TOPIC_AUTHORIZATION_FAILED" in str(files.error)
        assert caplog.text.count("lines: TOPIC_AUTHORIZATION_FAILED (its user needs: qbus acl") == 1
        scene.broker.handlers[ApiKey.METADATA] = scene.broker.metadata
        await scene.arrive(b"one")
        await eventually(lambda: files.error is None)


async def test_a_full_disk_for_the_positions(
    scene: Scene, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    scene.write(b"one\n")
    async with scene.shipping() as files:
        await scene.arrive(b"one")
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            scene.write(b"two\n")
            await eventually(lambda: files.error is not None)
            assert str(files.error).endswith("No space left on device")
            where = scene.directory / "data" / FILE_NAME
            assert f"reading stops: {where}: No space left on device" in caplog.text
        await eventually(lambda: files.error is None)
    async with scene.shipping():
        scene.write(b"three\n")
        await scene.arrive(b"one", b"two", b"three")


@pytest.mark.parametrize("is_copied", [False, True])
async def test_a_file_that_is_truncated_and_written_anew_at_once(
    scene: Scene, is_copied: bool
) -> None:
    lines = [b"line %04d %b" % (number, b"x" * 100) for number in range(100)]
    scene.write(b"".join(line + b"\n" for line in lines))
    async with scene.shipping():
        await scene.arrive(*lines)
        if is_copied:
            (scene.directory / "app.log.1").write_bytes(scene.log.read_bytes())
        with scene.log.open("r+b") as file:
            file.truncate(0)
            file.write(b"".join(b"new " + line + b"\n" for line in lines))
        await scene.arrive(*lines, *(b"new " + line for line in lines))


async def test_a_file_that_is_written_over_from_its_start_is_read_from_there(scene: Scene) -> None:
    scene.write(b"a line of the first content\n" * 20)
    async with scene.shipping():
        await scene.arrive(*[b"a line of the first content"] * 20)
        with scene.log.open("r+b") as file:
            file.write(b"a line of the other content\n" * 20)
        await scene.arrive(
            *[b"a line of the first content"] * 20, *[b"a line of the other content"] * 20
        )


async def test_an_end_that_is_written_over_is_shipped_again_with_all_before_it(
    scene: Scene,
) -> None:
    """Which bytes are other ones is not known, when an agent finds them at its start."""
    scene.write(b"one line of many\n" * 40)
    async with scene.shipping():
        await scene.arrive(*[b"one line of many"] * 40)
    with scene.log.open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(b"ot")
    async with scene.shipping():
        await scene.arrive(*[b"one line of many"] * 79, b"one line ot many")


class Linked:
    """A log in another directory, to which a link in the scene's directory leads."""

    def __init__(self, scene: Scene, is_directory_linked: bool) -> None:
        self.scene = scene
        self.real = scene.directory / "real"
        self.real.mkdir()
        self.log = self.real / "app.log"
        self.log.touch()
        self.link = scene.directory / ("links" if is_directory_linked else "app.log")
        self.link.symlink_to(self.real if is_directory_linked else self.log)
        if is_directory_linked:
            scene.pattern = f"{self.link}/*.log"


@pytest.mark.parametrize("is_directory_linked", [False, True])
async def test_a_file_behind_a_link_that_was_rotated_while_no_agent_ran(
    scene: Scene, is_directory_linked: bool
) -> None:
    linked = Linked(scene, is_directory_linked)
    linked.log.write_bytes(b"one\n")
    async with scene.shipping():
        await scene.arrive(b"one")
    with linked.log.open("ab") as file:
        file.write(b"two\n")
    linked.log.rename(linked.real / "app.log.1")
    linked.log.write_bytes(b"three\n")
    async with scene.shipping():
        await scene.arrive(b"one", b"two", b"three")
    linked.log.rename(linked.real / "app.log.2")
    linked.log.write_bytes(b"four\n")
    async with scene.shipping():
        await scene.arrive(b"one", b"two", b"three", b"four")


@pytest.mark.parametrize("is_directory_linked", [False, True])
async def test_a_link_that_leads_elsewhere_since_the_last_agent(
    scene: Scene, is_directory_linked: bool
) -> None:
    linked = Linked(scene, is_directory_linked)
    linked.log.write_bytes(b"one\n")
    async with scene.shipping():
        await scene.arrive(b"one")
    with linked.log.open("ab") as file:
        file.write(b"two\n")
    other = scene.directory / "other"
    other.mkdir()
    (other / "app.log").write_bytes(b"three\n")
    linked.link.unlink()
    linked.link.symlink_to(other if is_directory_linked else other / "app.log")
    async with scene.shipping():
        await eventually(lambda: len(scene.arrived()) == 3)
    assert sorted(scene.arrived()) == [b"one", b"three", b"two"]


async def test_a_closed_file_behind_a_link_that_is_rotated(scene: Scene) -> None:
    linked = Linked(scene, False)
    linked.log.write_bytes(b"one\n")
    async with scene.shipping(settings="close_idle_ms = 100", poll_ms=50) as files:
        await scene.arrive(b"one")
        await eventually(lambda: [file.state for file in files.files()] == [FileState.IDLE])
        with linked.log.open("ab") as file:
            linked.log.rename(linked.real / "app.log.1")
            file.write(b"two\n")
        linked.log.write_bytes(b"three\n")
        await scene.arrive(b"one", b"two", b"three")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("continue", [b"two", b"new", b"three"]), ("start_over", [b"one", b"two", b"new", b"three"])],
)
async def test_a_change_of_the_topic(scene: Scene, choice: str, expected: list[bytes]) -> None:
    settings = f"topic_change = '{choice}'"
    scene.write(b"one\n")
    async with scene.shipping(settings=settings):
        await scene.arrive(b"one")
    scene.write(b"two\n")
    for _ in range(2):  # the second agent knows the topic
        async with scene.shipping(settings=settings, topic="later") as files:
            await eventually(lambda: bool(list(files.files())))
            await eventually(lambda: b"two" in scene.arrived("later"))
            path = scene.directory / "new.log"
            if not path.exists():
                path.write_bytes(b"new\n")
            await eventually(lambda: b"new" in scene.arrived("later"))
    async with scene.shipping(settings=settings, topic="later"):
        scene.write(b"three\n")
        await eventually(lambda: b"three" in scene.arrived("later"))
    assert scene.arrived("later") == expected
    assert scene.arrived() == [b"one"]


async def test_another_file_with_the_inode_does_not_continue_after_a_change_of_the_topic(
    scene: Scene,
) -> None:
    scene.write(b"one\n")
    async with scene.shipping():
        await scene.arrive(b"one")
    scene.log.write_bytes(b"other\n")
    async with scene.shipping(settings="topic_change = 'continue'", topic="later"):
        await eventually(lambda: scene.arrived("later") == [b"other"])


async def test_an_agent_that_stops_at_once_closes_what_it_opened(scene: Scene) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - numbers
    async with scene.shipping():
        pass
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208 - numbers
