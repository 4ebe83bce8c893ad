"""`qbus log salvage`: what it shows, what it does, and when it refuses."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from qbus.broker.log import Log, LogConfig, OsFiles
from qbus.cli.root import qbus
from qbus.clock import ManualClock
from tests.support.logs import batch

SIZE = len(batch(b"v" * 600))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Two partitions of three batches; the second batch of ``t-0`` is damaged."""
    for name in ("t-0", "t-1"):
        directory = tmp_path / name
        directory.mkdir()
        made = Log.open(str(directory), LogConfig(), ManualClock(), OsFiles())
        for _ in range(3):
            made.append(batch(b"v" * 600), 0)
        made.close()
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n2\nt 0 3\nt 1 3\n")
    path = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[SIZE + 100] ^= 1
    path.write_bytes(data)
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(qbus, ["log", "salvage", *map(str, arguments)])


def test_it_shows_what_it_would_do_and_changes_nothing(data_dir: Path) -> None:
    before = (data_dir / "t-0" / f"{0:020d}.log").read_bytes()
    result = run(data_dir)
    assert result.exit_code == 1, "there is damage"
    assert f"t-0: offset 1, {data_dir}/t-0/{0:020d}.log at {SIZE}, {SIZE} B: CRC" in result.output
    assert "Nothing was changed: --execute sets them aside." in result.output
    assert (data_dir / "t-0" / f"{0:020d}.log").read_bytes() == before
    assert not (data_dir / "salvaged").exists()


@pytest.mark.parametrize("where", [None, "elsewhere"])
def test_it_sets_them_aside(data_dir: Path, where: str | None) -> None:
    options = [] if where is None else ["--save-to", data_dir / where]
    result = run(data_dir, "--execute", "--json", *options)
    assert result.exit_code == 0, result.output
    (entry,) = json.loads(result.output)
    assert (entry["partition"], entry["first_offset"], entry["last_offset"]) == ("t-0", 1, 1)
    saved = data_dir / (where or "salvaged") / "t-0" / f"{1:020d}.bad"
    assert entry["saved_to"] == str(saved)
    assert saved.stat().st_size == SIZE
    again = run(data_dir)
    assert (again.exit_code, again.output) == (0, "No damage was found.\n")
    assert again.stdout == ""


def test_only_the_named_partitions(data_dir: Path) -> None:
    assert run(data_dir, "t-1", "--execute").output == "No damage was found.\n"
    assert run(data_dir, "t-0").exit_code == 1
    assert "t-9 is no partition" in run(data_dir, "t-9").output


def test_a_directory_that_a_broker_uses_is_left_alone(data_dir: Path) -> None:
    held = OsFiles().lock(f"{data_dir}/.lock")
    assert held is not None
    result = run(data_dir, "--execute")
    assert result.exit_code == 1
    assert "stop its broker first" in result.output
    assert not (data_dir / "salvaged").exists()


def test_it_runs_as_the_user_whose_files_these_are(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert "run this as that user" in run(data_dir, "--execute").output
