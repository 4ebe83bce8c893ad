"""Damaged batches are set aside, and nothing else changes."""

import shutil
from pathlib import Path

import pytest

from qbus.broker.log import OsFiles
from qbus.broker.log import salvage as salvaging
from qbus.broker.log.names import SWAP_SUFFIX
from qbus.broker.log.salvage import SalvageError, SegmentDamage, find_damage, salvage
from qbus.records import Compression, iter_batches, iter_records
from qbus.records.control import ControlType, control_batch
from tests.support.logs import NOW_MS, batch

from .conftest import Mirror, OpenLog
from .mirrored import put
from .test_damage import COUNT, SIZE, fill, segment, spoil
from .test_following import placed


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return tmp_path / "salvaged"


def found(directory: Path, recovery_point: int = COUNT) -> list[SegmentDamage]:
    return find_damage(OsFiles(), str(directory), recovery_point)


def ranges(damage: list[SegmentDamage]) -> list[tuple[int, int]]:
    return [(one.start.offset, one.end.offset - 1) for _, ranges in damage for one in ranges]


def run(directory: Path, saved: Path, recovery_point: int = COUNT) -> list[str]:
    damage = found(directory, recovery_point)
    return salvage(OsFiles(), str(directory), damage, str(saved))


def offsets(open_log: OpenLog, **config: int) -> tuple[list[int], int]:
    """What is read of a log without any error, and where it ends."""
    log = open_log(recovery_point=COUNT, **config)
    assert log.is_usable
    readable: list[int] = []
    offset = 0
    while offset < log.log_end_offset:
        part = log.read(offset, 1 << 20, wait=True)
        assert part is not None
        part.verify()
        for header, one in iter_batches(part.read()):
            readable += [record.offset for record in iter_records(one)]
            offset = header.last_offset + 1
    log.close()
    return readable, offset


@pytest.mark.parametrize("at", [3, 11, 16, 18, 26, 100, SIZE - 1])
@pytest.mark.parametrize("bad", [0, 4, 9])
def test_a_batch_is_set_aside(
    open_log: OpenLog, directory: Path, saved: Path, bad: int, at: int
) -> None:
    fill(open_log)
    spoil(segment(directory), bad * SIZE + at)
    bytes_before = segment(directory).read_bytes()
    assert ranges(found(directory)) == [(bad, bad)]
    assert segment(directory).read_bytes() == bytes_before, "looking changes nothing"
    (path,) = run(directory, saved)
    assert Path(path).read_bytes() == bytes_before[bad * SIZE : (bad + 1) * SIZE]
    assert found(directory) == []
    assert offsets(open_log) == ([one for one in range(COUNT) if one != bad], COUNT)


def test_bytes_that_were_saved_before_are_kept(
    open_log: OpenLog, directory: Path, saved: Path
) -> None:
    fill(open_log)
    spoil(segment(directory), 4 * SIZE + 100)
    (first,) = run(directory, saved)
    kept = Path(first).read_bytes()
    spoil(segment(directory), 4 * SIZE + 30)  # in the empty batch
    (second,) = run(directory, saved)
    assert second == f"{first}.1"
    assert Path(first).read_bytes() == kept


@pytest.mark.parametrize("state", ["zeros", "cut", "missing"])
def test_a_segment_is_set_aside(
    open_log: OpenLog, directory: Path, saved: Path, state: str
) -> None:
    config = {"segment_bytes": SIZE * 3}
    fill(open_log, **config)
    path = segment(directory, 3)
    if state == "missing":
        path.unlink()
    else:
        path.write_bytes(bytes(SIZE * 3) if state == "zeros" else path.read_bytes()[:SIZE])
    run(directory, saved)
    assert found(directory) == []
    lost = [4, 5] if state == "cut" else [3, 4, 5]
    expected = [one for one in range(COUNT) if one not in lost], COUNT
    assert offsets(open_log, **config) == expected


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("state", ["batch", "cut", "missing"])
def test_a_log_with_a_manifest_is_whole_afterwards(
    open_log: OpenLog, directory: Path, saved: Path, state: str, clean: bool
) -> None:
    config = {"segment_bytes": SIZE * 3}
    fill(open_log, **config)
    open_log(**config).close()
    path = segment(directory, 3)
    if state == "batch":
        spoil(path, SIZE + 100)
    elif state == "cut":
        path.write_bytes(path.read_bytes()[:SIZE])
    else:
        path.unlink()
    run(directory, saved)
    log = open_log(recovery_point=COUNT, clean=clean, **config)
    assert log.is_usable
    assert (log.corruptions, log.damage) == ((), [])
    log.close()
    lost = {"batch": [4], "cut": [4, 5], "missing": [3, 4, 5]}[state]
    expected = [one for one in range(COUNT) if one not in lost], COUNT
    assert offsets(open_log, **config) == expected


def test_several_ranges_of_one_log_are_set_aside(
    open_log: OpenLog, directory: Path, saved: Path
) -> None:
    config = {"segment_bytes": SIZE * 5}
    fill(open_log, **config)
    for base, number in ((0, 1), (0, 3), (5, 0), (5, 4)):
        spoil(segment(directory, base), number * SIZE + 100)
    run(directory, saved)
    assert offsets(open_log, **config) == ([0, 2, 4, 6, 7, 8], COUNT)


def test_a_log_goes_on_behind_it(open_log: OpenLog, directory: Path, saved: Path) -> None:
    fill(open_log)
    spoil(segment(directory), 9 * SIZE + 11)
    run(directory, saved)
    log = open_log(recovery_point=COUNT)
    assert log.append(batch(b"behind", timestamp=NOW_MS), 0).first_offset == COUNT
    log.close()
    assert offsets(open_log) == ([*range(9), COUNT], COUNT + 1)


def test_a_torn_end_is_left_to_the_start(open_log: OpenLog, directory: Path, saved: Path) -> None:
    fill(open_log)
    spoil(segment(directory), 9 * SIZE + 100)
    assert found(directory, recovery_point=0) == []
    spoil(segment(directory), 2 * SIZE + 100)
    with pytest.raises(SalvageError, match="torn end"):
        found(directory, recovery_point=0)


@pytest.mark.parametrize("bad", [None, 20])
def test_gaps_are_no_damage(mirror: Mirror, directory: Path, saved: Path, bad: int | None) -> None:
    log = mirror()
    put(log, *(placed(number * 10, b"a", b"b") for number in range(5)))
    end, size = log.log_end_offset, log.size // 5
    log.close()
    if bad is not None:
        spoil(segment(directory), bad // 10 * size + 62)
    expected = [] if bad is None else [(12, 29)]
    assert ranges(found(directory, end)) == expected
    if bad is not None:
        run(directory, saved, end)
        assert found(directory, end) == []
    assert mirror(recovery_point=end).log_end_offset == end


def test_a_log_without_segments_cannot_be_salvaged(open_log: OpenLog, directory: Path) -> None:
    fill(open_log)
    segment(directory).unlink()
    with pytest.raises(SalvageError, match="all its segments are missing"):
        found(directory)


def test_a_replacement_that_was_cut_short_comes_first(open_log: OpenLog, directory: Path) -> None:
    fill(open_log)
    shutil.copy(segment(directory), f"{segment(directory)}{SWAP_SUFFIX}")
    with pytest.raises(SalvageError, match="start the broker once"):
        found(directory)


def test_a_crash_leaves_the_old_segment_or_the_new_one(
    open_log: OpenLog, directory: Path, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(open_log)
    spoil(segment(directory), 4 * SIZE + 100)
    monkeypatch.setattr(salvaging, "complete_replacements", _fail)
    with pytest.raises(OSError, match="crash"):
        run(directory, saved)
    assert segment(directory).with_name(segment(directory).name + SWAP_SUFFIX).exists()
    assert offsets(open_log) == ([one for one in range(COUNT) if one != 4], COUNT)


def _fail(*_: object) -> bool:
    raise OSError("crash")


def test_compressed_and_hidden_batches_stay_as_they_are(
    open_log: OpenLog, directory: Path, saved: Path
) -> None:
    log = open_log()
    log.append(batch(b"a" * 600, compression=Compression.GZIP), 0)
    bad = log.size
    log.append(batch(b"b" * 600), 0)
    log.append_own(control_batch([(ControlType.CANCELLED, b"x")], NOW_MS), 0)
    end = log.log_end_offset
    log.close()
    before = segment(directory).read_bytes()
    spoil(segment(directory), bad + 100)
    run(directory, saved, end)
    after = segment(directory).read_bytes()
    assert after[:bad] == before[:bad]
    assert after.endswith(before[bad + len(batch(b"b" * 600)) :])
