"""Checkpoints: Kafka's texts, and what is not one."""

from pathlib import Path

import pytest

from qbus.broker.log import EpochStart, OsFiles, TopicPartition
from qbus.broker.log.checkpoints import (
    BadCheckpoint,
    decode_epochs,
    decode_offsets,
    decode_partition_metadata,
    encode_epochs,
    encode_offsets,
    encode_partition_metadata,
    read_offsets,
    read_topic_id,
    write_offsets,
)

OFFSETS = {TopicPartition("events", 0): 1030430, TopicPartition("a-b", 12): 0}
EPOCHS = [EpochStart(0, 0), EpochStart(3, 250)]


def test_offsets_are_one_line_each_behind_version_and_count() -> None:
    assert encode_offsets(OFFSETS) == b"0\n2\na-b 12 0\nevents 0 1030430\n"
    assert decode_offsets(encode_offsets(OFFSETS)) == OFFSETS
    assert decode_offsets(b"0\n0\n") == {}


def test_epochs_are_one_line_each_behind_version_and_count() -> None:
    assert encode_epochs(tuple(EPOCHS)) == b"0\n2\n0 0\n3 250\n"
    assert decode_epochs(encode_epochs(tuple(EPOCHS))) == EPOCHS


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"0",
        b"0\n",
        b"1\n0\n",
        b"0\nx\n",
        b"0\n-1\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0 1\nb 0 2\n",
        b"0\n1\na 0 1",
        b"0\n1\na 0\n",
        b"0\n1\na 0 1 2\n",
        b"0\n1\na 0 -1\n",
        b"0\n1\na 0 \xb2\n",
        b"0\n1\na 0 1x\n",
        b"\xff\xfe\n",
    ],
)
def test_what_is_no_checkpoint_of_offsets_is_refused(text: bytes) -> None:
    with pytest.raises(BadCheckpoint):
        decode_offsets(text)


@pytest.mark.parametrize("lines", [b"1 0\n0 5\n", b"0 5\n1 5\n", b"0 5\n1 4\n"])
def test_epochs_must_ascend(lines: bytes) -> None:
    with pytest.raises(BadCheckpoint, match="ascend"):
        decode_epochs(b"0\n2\n" + lines)


def test_a_topic_id_is_text_in_partition_metadata() -> None:
    topic_id = bytes(range(16))
    text = encode_partition_metadata(topic_id)
    assert text == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert decode_partition_metadata(text) == topic_id
    assert decode_partition_metadata(text + b"\n") == topic_id


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        b"version: 0\n",
        b"version: 0\ntopic_id: AAEC",
        b"version: 0\ntopic_id: A",
        b"\xff",
    ],
)
def test_what_is_no_partition_metadata_is_refused(text: bytes) -> None:
    with pytest.raises(BadCheckpoint):
        decode_partition_metadata(text)


def test_files_that_are_not_there_say_nothing(tmp_path: Path) -> None:
    assert read_offsets(OsFiles(), str(tmp_path / "x")) == {}
    assert read_topic_id(OsFiles(), str(tmp_path / "x")) is None


def test_offsets_are_written_and_read_back(tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    write_offsets(OsFiles(), path, OFFSETS)
    assert read_offsets(OsFiles(), path) == OFFSETS


def test_a_checkpoint_that_was_changed_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    write_offsets(OsFiles(), str(path), OFFSETS)
    sound = path.read_bytes()
    assert b"#crc32c 0 " in sound
    for digit in (b"1030430", b"a-b 12"):
        path.write_bytes(sound.replace(digit, digit[:-1] + b"3"))
        with pytest.raises(BadCheckpoint):
            read_offsets(OsFiles(), str(path))


def test_a_checkpoint_of_another_kind_does_not_count(tmp_path: Path) -> None:
    write_offsets(OsFiles(), str(tmp_path / "replication-offset-checkpoint"), OFFSETS)
    path = tmp_path / "recovery-point-offset-checkpoint"
    (tmp_path / "replication-offset-checkpoint").rename(path)
    with pytest.raises(BadCheckpoint, match="the CRC does not match"):
        read_offsets(OsFiles(), str(path))


def test_a_checkpoint_without_a_checksum_is_read(tmp_path: Path) -> None:
    """Kafka's, and that of an earlier version."""
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_bytes(encode_offsets(OFFSETS))
    assert read_offsets(OsFiles(), str(path)) == OFFSETS
