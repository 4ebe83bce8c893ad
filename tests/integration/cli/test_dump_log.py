"""`qbus dump-log` of what a broker wrote, and of what was damaged since."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess

from .conftest import Qbus

pytestmark = pytest.mark.integration

SEGMENT = "00000000000000000000.log"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose topic `t` holds three batches: 2,000, 1 and 2 records."""
    directory = tmp_path_factory.mktemp("written") / "data"
    with BrokerProcess(directory) as broker:
        qbus = Qbus(broker.bootstrap)
        qbus("topic", "create", "t")
        qbus("produce", "t", "--compression", "lz4", stdin=b"line of text\n" * 2000)
        qbus("produce", "t", "--key-separator", ":", stdin=b"key:\xff\xfe\n")
        qbus("produce", "t", stdin=b"last\n\n")
    return directory


@pytest.fixture
def partition(written: Path, tmp_path: Path) -> Path:
    """A copy of the partition's directory, to be damaged."""
    return Path(shutil.copytree(written / "t-0", tmp_path / "t-0"))


@pytest.fixture
def qbus() -> Qbus:
    return Qbus("127.0.0.1:1")


def entries(qbus: Qbus, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    done = qbus.run("dump-log", *arguments, "--json")
    assert done.code == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_segment(qbus: Qbus, partition: Path) -> None:
    batches = entries(qbus, str(partition / SEGMENT))
    assert [(b["base_offset"], b["last_offset"], b["records_count"]) for b in batches] == [
        (0, 1999, 2000),
        (2000, 2000, 1),
        (2001, 2002, 2),
    ]
    assert [batch["compression"] for batch in batches] == ["lz4", "none", "none"]
    assert sum(batch["size"] for batch in batches) == (partition / SEGMENT).stat().st_size
    assert all(batch["producer_id"] >= 0 for batch in batches)
    assert all(batch["problems"] == [] for batch in batches)


def test_records(qbus: Qbus, partition: Path) -> None:
    first, second, third = entries(qbus, str(partition / SEGMENT), "--records")
    assert len(first["records"]) == 2000
    (keyed,) = second["records"]
    assert (keyed["offset"], keyed["key"], keyed["value_encoding"]) == (2000, "key", "base64")
    assert [record["value"] for record in third["records"]] == ["last", ""]


def test_a_directory_stands_for_its_files(qbus: Qbus, partition: Path) -> None:
    found = entries(qbus, str(partition))
    kinds = {entry["type"] for entry in found}
    assert {"batch", "epoch", "topic"} <= kinds
    assert {Path(entry["file"]).parent for entry in found} == {partition}
    assert sum(len(entry["problems"]) for entry in found) == 0


def test_a_data_directory_stands_for_its_partitions_too(
    qbus: Qbus, written: Path, tmp_path: Path
) -> None:
    data = Path(shutil.copytree(written, tmp_path / "data"))
    (data / "lost+found").mkdir(mode=0)
    found = entries(qbus, str(data))
    assert {Path(entry["file"]).parent for entry in found} == {data, data / "t-0"}
    segment = bytearray((data / "t-0" / SEGMENT).read_bytes())
    segment[100] ^= 1
    (data / "t-0" / SEGMENT).write_bytes(segment)
    assert any(entry["problems"] for entry in entries(qbus, str(data), code=1))


def test_checkpoints_of_the_data_directory(qbus: Qbus, written: Path) -> None:
    found = entries(qbus, str(written / "recovery-point-offset-checkpoint"))
    assert ("t", 0, 2003) in [(e["topic"], e["partition"], e["offset"]) for e in found]


def test_the_manifest(qbus: Qbus, partition: Path) -> None:
    manifest, segment = entries(qbus, str(partition / "log-manifest"))
    (topic,) = entries(qbus, str(partition / "partition.metadata"))
    assert (manifest["topic_id"], manifest["recovery_point"]) == (topic["topic_id"], 2003)
    assert segment["log_size"] == (partition / SEGMENT).stat().st_size
    assert "recovery point 2003" in qbus("dump-log", str(partition / "log-manifest")).decode()


def test_a_file_that_is_shorter_than_the_manifest_says(qbus: Qbus, partition: Path) -> None:
    (partition / SEGMENT.replace(".log", ".timeindex")).write_bytes(b"")
    found = entries(qbus, str(partition / "log-manifest"), "--problems", code=1)
    (problem,) = [problem for entry in found for problem in entry["problems"]]
    assert "has 0 bytes instead of" in problem["message"]


def test_lines_for_people(qbus: Qbus, partition: Path) -> None:
    text = qbus("dump-log", str(partition / SEGMENT), "--records").decode()
    assert text.startswith(str(partition / SEGMENT))
    assert "offsets 2001-2002, 2 records" in text
    assert "key key base64://4=" in text
    assert text.endswith("3 batches: no problems\n")


def test_a_flipped_bit_is_found_and_the_rest_still_shown(qbus: Qbus, partition: Path) -> None:
    data = bytearray((partition / SEGMENT).read_bytes())
    data[100] ^= 1
    (partition / SEGMENT).write_bytes(data)
    found = entries(qbus, str(partition / SEGMENT), "--records", code=1)
    assert [entry["type"] for entry in found] == ["batch", "batch", "batch"]
    assert "bad CRC" in [problem["kind"] for problem in found[0]["problems"]]
    assert found[1]["problems"] == found[2]["problems"] == []
    done = qbus.run("dump-log", str(partition / SEGMENT))
    assert done.code == 1
    assert b"! bad CRC" in done.stdout
    assert done.stderr.startswith(b"qbus: 1 problem")


def test_the_option_problems_shows_damage_alone(qbus: Qbus, partition: Path) -> None:
    with (partition / SEGMENT).open("ab") as file:
        file.write(b"torn")
    (damage,) = entries(qbus, str(partition / SEGMENT), "--problems", code=1)
    assert (damage["type"], damage["size"]) == ("damage", 4)
    assert [problem["kind"] for problem in damage["problems"]] == ["truncated"]


def test_a_damaged_index(qbus: Qbus, partition: Path) -> None:
    index = partition / "00000000000000000000.index"
    index.write_bytes(b"\0\0\0\7\0\0\0\5" + b"\0\0\0")
    found = entries(qbus, str(index), code=1)
    assert "mismatch" in [problem["kind"] for entry in found for problem in entry["problems"]]


def test_a_damaged_checkpoint(qbus: Qbus, partition: Path) -> None:
    checkpoint = partition / "leader-epoch-checkpoint"
    checkpoint.write_text("nonsense")
    (entry,) = entries(qbus, str(checkpoint), code=1)
    assert [problem["kind"] for problem in entry["problems"]] == ["unreadable"]


def test_files_that_are_not_of_a_log_are_refused(qbus: Qbus, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("text")
    assert "is not a segment" in qbus.failure("dump-log", str(other))
    assert "has no files of a log" in qbus.failure("dump-log", str(tmp_path))
    assert "does not exist" in qbus.failure("dump-log", str(tmp_path / "absent"), code=2)


@pytest.fixture(scope="module")
def delaying(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition with records that are held back, delivered, cancelled and rescheduled."""
    directory = tmp_path_factory.mktemp("delaying") / "data"
    with BrokerProcess(directory) as broker:
        qbus = Qbus(broker.bootstrap)
        qbus("topic", "create", "t", "--delay")
        qbus("produce", "t", "--key", "k", "--delay", "1h", stdin=b"a\nb\n")
        qbus("produce", "t", "--delay", "100ms", stdin=b"soon\n")
        qbus("consume", "t", "--from", "earliest", "--count", "1")
        qbus("delay", "cancel", "t", "0", "0")
        qbus("delay", "reschedule", "t", "0", "1", "--delay", "2h")
        qbus("produce", "t", stdin=b"visible\n")
    return directory / "t-0"


def test_what_is_hidden_is_said_in_words(qbus: Qbus, delaying: Path) -> None:
    batches = entries(qbus, str(delaying / SEGMENT), "--records")
    flags = [(batch["hidden"], batch["delayed"]) for batch in batches]
    held, control, visible = (True, True), (True, False), (False, False)
    assert flags == [held, held, control, visible, control, control, visible]
    assert [record["value"] for record in batches[0]["records"]] == ["a", "b"]
    (delivered,), (cancelled,), (moved,) = (batches[at]["controls"] for at in (2, 4, 5))
    assert (delivered["type"], delivered["crc"]) == ("delivered", batches[3]["crc"])
    assert [one["offset"] for one in delivered["entries"]] == [2]
    assert (cancelled["type"], [one["offset"] for one in cancelled["entries"]]) == (
        "cancelled",
        [0],
    )
    assert (moved["type"], [one["offset"] for one in moved["entries"]]) == ("rescheduled", [1])
    assert moved["due"] > moved["entries"][0]["due"]
    text = qbus("dump-log", str(delaying / SEGMENT), "--records").decode()
    assert "control, hidden" in text
    assert "delivered 2 due" in text
    assert "cancelled 0 due" in text
    assert "rescheduled 1 due" in text


def test_runs_of_hidden_batches(qbus: Qbus, delaying: Path, tmp_path: Path) -> None:
    partition = Path(shutil.copytree(delaying, tmp_path / "t-0"))
    index = partition / "00000000000000000000.controlindex"
    found = entries(qbus, str(index))
    assert [(one["hidden"], one["offset"]) for one in found] == [
        (True, 0),
        (False, 4),
        (True, 5),
        (False, 7),
    ]
    assert b"hidden from offset 0 at 0" in qbus("dump-log", str(index))
    content = index.read_bytes()
    index.write_bytes(content[:9] + b"\1" + content[10:-8] + b"half")
    found = entries(qbus, str(index), code=1)
    kinds = [[problem["kind"] for problem in one["problems"]] for one in found]
    assert kinds[1] == ["mismatch"]
    assert kinds[-1] == ["truncated", "mismatch"]


def test_the_state_of_what_is_held_back(qbus: Qbus, delaying: Path, tmp_path: Path) -> None:
    partition = Path(shutil.copytree(delaying, tmp_path / "t-0"))
    (snapshot,) = partition.glob("*.control")
    (state,) = entries(qbus, str(snapshot))
    assert (state["type"], state["pending"], state["rescheduled"]) == ("held back", 1, 1)
    assert b"1 records held back, the next due" in qbus("dump-log", str(snapshot))
    snapshot.write_bytes(snapshot.read_bytes()[:-1] + b"?")
    (damaged,) = entries(qbus, str(snapshot), code=1)
    assert damaged["problems"][0]["kind"] == "unreadable"


def test_files_without_entries_are_not_whole(qbus: Qbus, tmp_path: Path) -> None:
    (tmp_path / SEGMENT).touch()
    done = qbus.run("dump-log", str(tmp_path), "--json")
    assert (done.code, done.stdout) == (4, b"")
    assert b"nothing was checked" in done.stderr
