"""Every file beside the batches, damaged in every way: the log is as before, or refuses aloud.

What the files hold can be made anew from the batches, so that damage of one of them may cost time,
and nothing else: consumers get the same records at the same offsets, committed ones alone where
they ask for these, delayed records and jobs are where they were, times are found, and producers'
duplicates are known.
"""

import logging
import random
from functools import cache
from typing import Any

import pytest

from qbus.broker.log import Log
from qbus.broker.log.manifest import MANIFEST
from qbus.clock import ManualClock
from qbus.errors import ApiError, ConfigError
from qbus.records import read_header

from .derived import (
    DAMAGES,
    KINDS,
    MARKER,
    ROOT,
    Made,
    cut_by_a_byte,
    deleted,
    derived_files,
    emptied,
    flipped,
    halved,
    inode,
    lengthened,
    make,
    observe,
    open_manager,
)
from .simulated_files import SimulatedFiles

pytestmark = pytest.mark.crash

STOPS = ("clean", "unclean")

# What has no part in what is seen of a log: an offset that leaders learn again, and owners.
_ALWAYS_SAID = (".controlindex", ".txnindex", "leader-epoch-checkpoint", "partition.metadata")
_SIZES = (deleted, emptied, halved, cut_by_a_byte)


@cache
def made(kind: str) -> Made:
    return make(kind)


@cache
def sound(kind: str, stop: str) -> dict[str, Any]:
    return observe(made(kind), made(kind).files(stop))


def check(kind: str, stop: str, files: SimulatedFiles, caplog: pytest.LogCaptureFixture) -> str:
    """Whatever was damaged: nothing differs, or it is refused; what was logged of it."""
    caplog.clear()
    try:
        seen = observe(made(kind), files)
    except ConfigError:
        return "refused"
    except ApiError:
        assert "corrupt data" in caplog.text
        return caplog.text
    expected = {**sound(kind, stop)}
    if kind == "compacted":
        # Of an epoch whose batches compaction removed, the log tells nothing; the next one begins
        # where the batch before it ends. An earlier start makes followers fetch more, never less.
        starts = {known.epoch: known.start_offset for known in expected.pop("epochs")}
        assert all(one.start_offset <= starts[one.epoch] for one in seen.pop("epochs"))
    assert seen == expected
    return caplog.text


def chosen(files: SimulatedFiles) -> list[str]:
    """Of each kind of file the first and the last."""
    by_kind: dict[str, list[str]] = {}
    for path in derived_files(files):
        name = path.removeprefix(ROOT)
        by_kind.setdefault(name[name.rindex("/") :].lstrip("/0123456789"), []).append(path)
    return sorted({path for paths in by_kind.values() for path in (paths[0], paths[-1])})


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_log_is_silent(kind: str, stop: str, caplog: pytest.LogCaptureFixture) -> None:
    files = made(kind).files(stop)
    caplog.set_level(logging.WARNING, "qbus.broker.log")
    seen = observe(made(kind), files)
    assert (seen["corruptions"], caplog.text) == (0, "")
    assert observe(made(kind), files) == seen, "and so it is after that"


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("kind", KINDS)
def test_damage_of_any_file_changes_nothing(
    kind: str, stop: str, damage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "qbus.broker.log")
    for path in chosen(made(kind).files(stop)):
        files = made(kind).files(stop)
        has_content = files.size(path) > 0
        if not damage(made(kind), files, path, random.Random(5)):
            continue
        try:
            said = check(kind, stop, files, caplog)
        except AssertionError as error:
            raise AssertionError(f"{path}: {error}\n{caplog.text}") from error
        name = path.rpartition("/")[2]
        is_compared = name.endswith(_ALWAYS_SAID) and damage is not lengthened
        is_measured = name.endswith((".index", ".timeindex")) and damage in _SIZES
        if stop == "clean" and has_content and (is_compared or is_measured):
            assert name in said, path


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.nightly)])
def test_random_damage_changes_nothing(count: int, caplog: pytest.LogCaptureFixture) -> None:
    """Any number of bits, or bytes at the end, of any file of any log."""
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    print(f"seed {seed}")
    caplog.set_level(logging.WARNING, "qbus.broker.log")
    for number in range(count):
        kind, stop = dice.choice([*KINDS]), dice.choice(STOPS)
        files = made(kind).files(stop)
        path = dice.choice(derived_files(files))
        damages = [dice.choice([*DAMAGES, flipped, flipped]) for _ in range(dice.randint(1, 2))]
        for damage in damages:
            if files.exists(path):
                damage(made(kind), files, path, dice)
        try:
            check(kind, stop, files, caplog)
        except AssertionError as error:
            names = [damage.__name__ for damage in damages]
            raise AssertionError(f"{number}: {kind} {stop} {path} {names}: {error}") from error


def test_without_the_marker_of_a_clean_shutdown_it_is_unclean() -> None:
    assert made("plain").files("clean").exists(f"{ROOT}/{MARKER}")
    assert not made("plain").files("unclean").exists(f"{ROOT}/{MARKER}")


def segments(files: SimulatedFiles) -> list[str]:
    return sorted(name for name in files.list(f"{ROOT}/t-0") if name.endswith(".log"))


@pytest.mark.parametrize("stop", STOPS)
class TestSegmentsThatAreLost:
    """What is missing is said, and the rest is served."""

    def opened(self, files: SimulatedFiles) -> Log:
        manager = open_manager(files, made("plain").config, ManualClock(made("plain").now_ms))
        log = manager.get("t", 0)
        assert log is not None
        return log

    def test_the_first(self, stop: str, caplog: pytest.LogCaptureFixture) -> None:
        files = made("plain").files(stop)
        first, second = segments(files)[:2]
        files.remove(f"{ROOT}/t-0/{first}")
        log = self.opened(files)
        (corruption,) = log.corruptions
        assert corruption.path == f"{ROOT}/t-0/{first}"
        assert (
            f"{first} is missing, with the records before offset {int(second[:20])}" in caplog.text
        )
        assert log.log_start_offset == max(int(second[:20]), 5)
        assert log.log_end_offset == sound("plain", stop)["offsets"][1]

    def test_one_in_the_midst(self, stop: str, caplog: pytest.LogCaptureFixture) -> None:
        files = made("plain").files(stop)
        lost, following = segments(files)[2:4]
        files.remove(f"{ROOT}/t-0/{lost}")
        log = self.opened(files)
        assert f"{lost} is missing" in caplog.text
        (damage,) = log.damage
        assert damage.first_offset == int(lost[:20])
        assert damage.last_offset == int(following[:20]) - 1
        assert log.log_end_offset == sound("plain", stop)["offsets"][1]

    def test_half_of_one(self, stop: str, caplog: pytest.LogCaptureFixture) -> None:
        files = made("plain").files(stop)
        cut, following = segments(files)[2:4]
        node = inode(files, f"{ROOT}/t-0/{cut}")
        whole = read_header(node.data).size
        node.change(node.data[:whole])
        node.sync()
        log = self.opened(files)
        (damage,) = log.damage
        assert damage.last_offset == int(following[:20]) - 1
        assert cut in caplog.text


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_an_earlier_version_left_is_opened_and_listed(
    kind: str, stop: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It had no manifests, and no checksums in checkpoints."""
    files = made(kind).files(stop)
    for index in range(2):
        files.remove(f"{ROOT}/t-{index}/{MANIFEST}")
    for name in files.list(ROOT):
        if name.endswith("-offset-checkpoint"):
            node = inode(files, f"{ROOT}/{name}")
            version, count, _, *entries, end = node.data.split(b"\n")
            assert (version, end) == (b"0", b"")
            node.change(b"\n".join((version, b"%d" % (int(count) - 1), *entries, end)))
            node.sync()
    caplog.set_level(logging.INFO, "qbus.broker.log")
    assert observe(made(kind), files) == sound(kind, stop)
    assert [one for one in caplog.records if one.levelno > logging.INFO] == []
    assert caplog.text.count(MANIFEST) == 2 * (kind in {"delayed", "queue"})
    caplog.clear()
    assert observe(made(kind), files) == sound(kind, stop)
    assert MANIFEST not in caplog.text, "once"
