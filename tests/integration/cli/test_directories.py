"""Every command that keeps something x a directory that cannot be used: it says so, and ends."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.small_disk import CannotMountError, small_disk

from .conftest import Qbus

pytestmark = pytest.mark.integration

SOON_S = 5.0
START_S = 3.0
"""What starting a command may take here beside that."""

COMMANDS = {
    "broker": ["--listen", "127.0.0.1:PORT", "--data-dir", "DIR"],
    "cluster up": ["--nodes", "1", "--base-port", "PORT", "--data-dir", "DIR"],
    "agent run": ["--bootstrap", "127.0.0.1:1", "--topic", "t", "--data-dir", "DIR", "FILE"],
    "demo": ["--log", "FILE", "--keep", "DIR"],
}
FORBIDDEN = "/sys/forbidden"
"""Where nobody may make anything, not even root."""


@pytest.fixture
def qbus() -> Qbus:
    return Qbus(f"127.0.0.1:{free_port()}")


def ended(qbus: Qbus, name: str, directory: str, file: Path) -> str:
    """What a command says on stderr before it ends, which is soon and with an error."""
    stands_for = {"DIR": directory, "FILE": str(file), "PORT": str(free_port())}
    words = [
        stands_for.get(word, word.replace("PORT", stands_for["PORT"])) for word in COMMANDS[name]
    ]
    file.write_text("line\n" * 100)
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    with qbus.start(*name.split(), *words, **streams, stderr=subprocess.PIPE) as process:
        _, stderr = process.communicate(timeout=SOON_S + START_S)
    assert process.returncode not in {0, None}
    assert b"Traceback" not in stderr
    return str(stderr.decode())


@pytest.mark.parametrize("name", COMMANDS)
def test_nobody_may_write_there(qbus: Qbus, tmp_path: Path, name: str) -> None:
    said = ended(qbus, name, FORBIDDEN, tmp_path / "a.log")
    assert FORBIDDEN in said
    assert "not permitted" in said or "Permission denied" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_it_is_a_file(qbus: Qbus, tmp_path: Path, name: str) -> None:
    taken = tmp_path / "taken"
    taken.write_text("not a directory")
    said = ended(qbus, name, str(taken), tmp_path / "a.log")
    assert str(taken) in said
    assert any(reason in said for reason in ("exists", "Not a directory", "is a file"))


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A directory on a disk that has no room left."""
    try:
        with small_disk(tmp_path / "disk", "64k") as disk:
            with (disk / "ballast").open("wb", buffering=0) as ballast:
                while True:
                    try:
                        ballast.write(bytes(4096))
                    except OSError:
                        break
            directory = disk / "data"
            directory.mkdir()
            yield directory
    except CannotMountError as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", ["broker", "cluster up"])
def test_the_disk_is_full(qbus: Qbus, tmp_path: Path, full: Path, name: str) -> None:
    said = ended(qbus, name, str(full), tmp_path / "a.log")
    assert "No space left on device" in said or "the disk is full" in said
    assert str(full) in said


def test_an_agent_on_a_full_disk_goes_on_and_says_so(
    qbus: Qbus, tmp_path: Path, full: Path
) -> None:
    log = tmp_path / "a.log"
    log.write_text("line\n")
    words = ["--bootstrap", "127.0.0.1:1", "--topic", "t", "--data-dir", str(full), str(log)]
    with qbus.start("agent", "run", *words, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        began = time.monotonic()
        said = next(line for line in process.stderr if b"No space left on device" in line)
        assert time.monotonic() - began < SOON_S + START_S
    assert str(full).encode() in said
