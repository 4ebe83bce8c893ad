"""`qbus demo`, and `make demo`'s promise: every byte comes back, or it fails."""

import json
from pathlib import Path

import psutil
import pytest

from .conftest import Qbus

pytestmark = pytest.mark.integration


@pytest.fixture
def qbus() -> Qbus:
    return Qbus("127.0.0.1:1")


def test_every_byte_of_a_file_comes_back(qbus: Qbus, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"".join(b"%d caf\xc3\xa9\r\n\n" % number for number in range(1_000)) + b"end")
    keep = tmp_path / "kept"
    done = qbus.run("demo", "--log", str(log), "--keep", str(keep), "--json")
    assert done.code == 0, done.stderr
    account = json.loads(done.stdout)
    assert account["difference"] is None
    shown = json.loads(qbus.run("version", "--json").stdout)
    assert account["form"] == {key: shown[key] for key in account["form"]}
    assert account["sent_sha256"] == account["received_sha256"]
    assert account["records"] == account["consumed_records"] == 2_001 * account["times"]
    assert sorted(p for share in account["members"] for p in share) == [0, 1, 2, 3]
    assert account["broker_exit_code"] == 0
    assert {f["directory"] for f in account["files"]} >= {"demo-0", "demo-1", "demo-2", "demo-3"}
    assert account["latency_ms"]["acknowledged"]["p50"] > 0
    assert (keep / "demo-0").is_dir()
    children = psutil.Process().children(recursive=True)
    assert not [p for p in children if str(keep) in (p.as_dict(["cmdline"])["cmdline"] or [])]


def test_demo_refuses_invalid_input(qbus: Qbus, tmp_path: Path) -> None:
    empty = tmp_path / "empty.log"
    empty.touch()
    assert "is empty" in qbus.failure("demo", "--log", str(empty))
    assert "does not exist" in qbus.failure("demo", "--log", str(tmp_path / "absent"), code=2)
    log = tmp_path / "log"
    log.write_text("line\n")
    assert "exists: name a new directory" in qbus.failure(
        "demo", "--log", str(log), "--keep", str(tmp_path)
    )
