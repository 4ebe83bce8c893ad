"""The manifest of a log's files: what is written is read again, and nothing else is."""

from pathlib import Path

import pytest

from qbus.broker.log import OsFiles
from qbus.broker.log.manifest import (
    MANIFEST,
    BadManifest,
    Manifest,
    SegmentFiles,
    decode_manifest,
    encode_manifest,
    read_manifest,
    write_manifest,
)

SOUND = Manifest(
    topic_id=bytes(range(16)),
    log_start_offset=7,
    recovery_point=2**40,
    epochs_crc=2**32 - 1,
    gaps=True,
    segments=[SegmentFiles(0, 1, 2, 3, 4, 5, 6, 7), SegmentFiles(2**62, *[2**32 - 1] * 7)],
    snapshots={0: 1, 2**62: 2},
    control_snapshots={5: 2**32 - 1},
)


@pytest.mark.parametrize("manifest", [SOUND, Manifest()])
def test_what_is_written_is_read(manifest: Manifest) -> None:
    assert decode_manifest(encode_manifest(manifest, "t-0"), "t-0") == manifest


def test_a_flipped_bit_anywhere_is_noticed() -> None:
    data = encode_manifest(SOUND, "t-0")
    for position in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(BadManifest):
            decode_manifest(bytes(damaged), "t-0")


def test_so_is_any_other_length() -> None:
    data = encode_manifest(SOUND, "t-0")
    for length in range(len(data)):
        with pytest.raises(BadManifest):
            decode_manifest(data[:length], "t-0")
    with pytest.raises(BadManifest):
        decode_manifest(data + b"\0", "t-0")


def test_that_of_another_partition_does_not_count() -> None:
    with pytest.raises(BadManifest, match="the CRC does not match"):
        decode_manifest(encode_manifest(SOUND, "t-0"), "t-1")


def test_a_damaged_file_is_said_and_a_missing_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, directory = OsFiles(), str(tmp_path)
    assert read_manifest(files, directory) is None
    assert caplog.text == ""
    write_manifest(files, directory, SOUND)
    assert read_manifest(files, directory) == SOUND
    (tmp_path / MANIFEST).write_bytes(b"")
    assert read_manifest(files, directory) is None
    assert f"{tmp_path / MANIFEST} is damaged: 0 bytes are too few" in caplog.text
