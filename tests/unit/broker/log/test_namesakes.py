"""Logs of one partition in several data directories: the one of the topic that there is counts."""

import errno
import logging
from contextlib import suppress
from pathlib import Path

import pytest

from qbus.broker.log import LogConfig, LogManager, OsFiles, TopicPartition
from qbus.broker.log.checkpoints import encode_move, read_offsets
from qbus.broker.log.moving import MOVE_METADATA
from qbus.broker.log.namesakes import FoundLog, check_unique, outdated
from qbus.clock import ManualClock
from qbus.errors import ApiError, ConfigError
from tests.support.failing_files import FailingFiles, failing, healthy
from tests.support.logs import batch

FORMER, OLDER, NOW = b"f" * 16, b"o" * 16, b"n" * 16
T0 = TopicPartition("t", 0)


class TestWhichOnesAreOutdated:
    @staticmethod
    def found(*topic_ids: bytes | None, has_records: bool = True) -> list[FoundLog]:
        return [FoundLog(f"d{n}", of, has_records) for n, of in enumerate(topic_ids)]

    def test_one_of_a_former_topic_is(self) -> None:
        former, now = self.found(FORMER, NOW)
        assert outdated(T0, [former, now], NOW) == [former]
        assert outdated(T0, [now, former], NOW) == [former]

    def test_of_three_topics_two_are(self) -> None:
        found = self.found(FORMER, NOW, OLDER)
        assert outdated(T0, found, NOW) == [found[0], found[2]]

    def test_the_only_one_never_is(self) -> None:
        assert outdated(T0, self.found(FORMER), NOW) == []
        assert outdated(T0, self.found(None), NOW) == []

    @pytest.mark.parametrize("topic_id", [NOW, FORMER, None])
    def test_those_of_one_topic_are_not_told_apart(self, topic_id: bytes | None) -> None:
        assert outdated(T0, self.found(FORMER, FORMER), topic_id) == []

    @pytest.mark.parametrize("topic_id", [OLDER, None])
    def test_where_none_is_the_topics_all_are(self, topic_id: bytes | None) -> None:
        found = self.found(FORMER, NOW)
        assert outdated(T0, found, topic_id) == found

    def test_two_of_the_topic_stay_beside_a_former_one(self) -> None:
        found = self.found(NOW, FORMER, NOW)
        assert outdated(T0, found, NOW) == [found[1]]

    def test_one_with_records_that_does_not_say_whose_it_is_is_for_the_operator(self) -> None:
        with pytest.raises(ConfigError) as caught:
            outdated(T0, self.found(NOW, None, FORMER), NOW)
        text = str(caught.value)
        assert text.startswith("t-0 is in d1 and in d0 and in d2, and the one in d1 does not say")
        assert "Move d1/t-0 to a place outside of the data directories" in text

    @pytest.mark.parametrize("topic_id", [NOW, FORMER, None])
    def test_an_empty_one_that_was_about_to_be_made_makes_way(self, topic_id: bytes | None) -> None:
        empty, other = FoundLog("a", None, False), FoundLog("b", NOW, True)
        assert outdated(T0, [empty, other], topic_id) == [empty]

    def test_an_empty_one_beside_two_topics_makes_way_with_the_former(self) -> None:
        empty, former, now = FoundLog("a", None, False), *self.found(FORMER, NOW)
        assert outdated(T0, [empty, former, now], NOW) == [empty, former]

    def test_what_stays_in_two_places_is_for_the_operator(self) -> None:
        check_unique({T0: ["a"], TopicPartition("t", 1): ["b"]})
        with pytest.raises(ConfigError) as caught:
            check_unique({T0: ["a", "b"]})
        assert str(caught.value).startswith("t-0 is in a and in b, and these are logs of the same")
        assert "Move the one that is older or shorter" in str(caught.value)


class Bench:
    """A broker with the data directories a, b and c, and the topic ``t``."""

    def __init__(self, path: Path) -> None:
        self.paths = {name: path / name for name in "abc"}
        self.topic_id: bytes | None = NOW
        self.files = FailingFiles()
        self.clock = ManualClock()

    def make(self, name: str, topic_id: bytes, count: int) -> None:
        """Make a log of ``count`` records in a directory, as if the others were offline."""
        manager = self._open([name])
        manager.create(*T0, topic_id, LogConfig(), is_new=True)
        log = manager.logs()[T0]
        for _ in range(count):
            log.append(batch(b"v"), 0)
        log.flush()
        manager.close()

    def start(self) -> None:
        self.manager = self._open([*self.paths])

    def _open(self, names: list[str]) -> LogManager:
        return LogManager.open(
            [str(self.paths[name]) for name in names],
            lambda _topic: LogConfig(),
            self.clock,
            self.files,
            node_id=1,
            cluster_id="cluster",
            topic_id_of=lambda name: self.topic_id if name == "t" else None,
        )

    def log(self, name: str) -> Path:
        return self.paths[name] / str(T0)

    def opened(self) -> dict[str, int]:
        """Where the log was opened, with its end."""
        return {
            Path(directory.path).name: log.log_end_offset
            for directory in self.manager.directories
            for log in directory.logs.values()
        }

    def set_aside(self) -> dict[str, Path]:
        found = {name: [*path.glob("t-0.*-stray")] for name, path in self.paths.items()}
        return {name: paths[0] for name, paths in found.items() if len(paths) == 1}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize(("former", "now"), ["ab", "ba"])
def test_the_log_of_a_deleted_topic_that_comes_back_is_set_aside(
    bench: Bench, caplog: pytest.LogCaptureFixture, former: str, now: str
) -> None:
    bench.make(former, FORMER, 5)
    bench.make(now, NOW, 3)
    with caplog.at_level(logging.WARNING):
        bench.start()
    assert bench.opened() == {now: 3}
    (path,) = bench.set_aside().values()
    assert path.parent == bench.paths[former]
    assert (path / f"{0:020}.log").stat().st_size > 0, "it is kept"
    (line,) = caplog.messages
    assert line.startswith(f"{bench.log(former)} is set aside as {path}: it belongs to another")
    assert line.endswith(f"Of the same partition there is also {bench.log(now)}")


def test_the_broker_knows_what_is_set_aside_at_every_start(bench: Bench) -> None:
    bench.make("a", FORMER, 5)
    bench.make("b", NOW, 3)
    for _ in range(3):
        bench.start()
        assert bench.manager.strays() == {str(bench.set_aside()["a"]): FORMER}
        assert bench.opened() == {"b": 3}
        bench.manager.close()


def test_it_is_removed_once_its_topic_is_known_to_be_deleted(bench: Bench) -> None:
    bench.make("a", FORMER, 5)
    bench.make("b", NOW, 3)
    bench.make("c", OLDER, 1)
    bench.start()
    assert bench.manager.remove_strays({NOW}) == 0
    assert bench.manager.remove_strays({FORMER}) == 1
    assert bench.manager.empty_trash() == 1
    assert bench.set_aside().keys() == {"c"}
    assert bench.manager.strays().keys() == {str(bench.set_aside()["c"])}


def test_a_directory_that_was_set_aside_does_no_harm_to_a_log_of_its_name(bench: Bench) -> None:
    """What the checkpoints said of it is not said of a log that moves there, or is begun there."""
    bench.make("a", FORMER, 5)
    bench.make("b", NOW, 3)
    offsets = "0\n1\nt 0 5\n"
    for name in ("recovery-point", "log-start", "replication", "cleaner"):
        (bench.paths["a"] / f"{name}-offset-checkpoint").write_text(offsets)
    bench.start()
    for name in ("recovery-point", "log-start", "replication", "cleaner"):
        written = bench.paths["a"] / f"{name}-offset-checkpoint"
        assert read_offsets(OsFiles(), str(written)) == {}
    log = bench.manager.logs()[T0]
    target = bench.manager.directory_at(str(bench.paths["a"]))
    move = bench.manager.begin_move(log, target)
    move.copy(lambda _: None)
    bench.manager.finish_move(move, 3)
    bench.manager.end_move(move)
    assert move.is_done
    assert bench.opened() == {"a": 3}


def test_a_crash_at_any_step_leaves_the_rest_to_the_next_start(bench: Bench) -> None:
    bench.make("a", FORMER, 5)
    bench.make("b", NOW, 3)
    bench.make("c", OLDER, 1)
    left = crashes = 0

    def crash(operation: str, _path: str) -> None:
        nonlocal left
        if operation in {"rename", "sync directory"}:
            left -= 1
            if not left:
                raise ZeroDivisionError

    bench.files.before = crash
    while True:
        left = crashes + 1
        with suppress(ZeroDivisionError):
            bench.start()
            break
        crashes += 1
    assert crashes > 2
    assert bench.opened() == {"b": 3}
    assert bench.set_aside().keys() == {"a", "c"}


class TestALogThatWasBeingMoved:
    """A copy counts only where there is no original; a former topic's log is none."""

    def mark(self, bench: Bench, name: str) -> None:
        (bench.log(name) / MOVE_METADATA).write_bytes(encode_move(T0))

    def test_is_not_given_up_for_a_former_topics(self, bench: Bench) -> None:
        """The original is gone: what came back would have made the broker remove the only one."""
        bench.make("a", FORMER, 5)
        bench.make("b", NOW, 3)
        self.mark(bench, "b")
        bench.start()
        assert bench.opened() == {"b": 3}
        assert bench.set_aside().keys() == {"a"}
        assert not (bench.log("b") / MOVE_METADATA).exists(), "it is the log from now on"

    def test_is_given_up_for_its_original(self, bench: Bench) -> None:
        bench.make("a", FORMER, 5)
        bench.make("b", NOW, 3)
        bench.make("c", NOW, 4)
        self.mark(bench, "b")
        bench.start()
        assert bench.opened() == {"c": 4}
        assert not bench.log("b").exists()
        assert bench.set_aside().keys() == {"a"}

    def test_is_set_aside_where_it_is_a_former_topics(self, bench: Bench) -> None:
        bench.make("a", FORMER, 5)
        bench.make("b", NOW, 3)
        self.mark(bench, "a")
        bench.start()
        assert bench.opened() == {"b": 3}
        assert bench.set_aside().keys() == {"a"}

    def test_waits_for_a_directory_that_is_offline(self, bench: Bench) -> None:
        bench.make("a", FORMER, 5)
        bench.make("b", NOW, 3)
        bench.make("c", OLDER, 1)
        self.mark(bench, "b")
        bench.files.before = failing(errno.EIO, "open", path=f"{bench.paths['c']}/meta.properties")
        bench.start()
        assert bench.opened() == {}
        assert bench.log("b").exists()
        assert bench.set_aside().keys() == {"a"}


def test_without_a_topic_of_the_name_all_are_kept_and_none_is_opened(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.make("a", FORMER, 5)
    bench.make("b", OLDER, 3)
    bench.topic_id = None
    bench.start()
    assert bench.opened() == {}
    assert bench.set_aside().keys() == {"a", "b"}
    assert caplog.text.count("there is no topic of that name, and logs of two topics") == 2
    assert bench.manager.create(*T0, NOW, LogConfig()).log_end_offset == 0


def test_two_logs_of_the_topic_stop_the_start_and_stay_where_they_are(bench: Bench) -> None:
    bench.make("a", NOW, 5)
    bench.make("b", NOW, 3)
    places = f"t-0 is in {bench.paths['a']} and in {bench.paths['b']}, and these are logs of the"
    with pytest.raises(ConfigError, match=places):
        bench.start()
    assert bench.log("a").exists()
    assert bench.log("b").exists()
    assert bench.set_aside() == {}


@pytest.mark.parametrize("content", [None, "", "version: 0\ntopic_id: nonsense"])
def test_a_log_whose_id_is_lost_stops_the_start_before_anything_is_touched(
    bench: Bench, content: str | None
) -> None:
    for name, topic_id in zip("abc", (FORMER, NOW, OLDER), strict=True):
        bench.make(name, topic_id, 3)
    (bench.log("b") / "log-manifest").unlink()  # which has the id, too
    metadata = bench.log("b") / "partition.metadata"
    if content is None:
        metadata.unlink()
    else:
        metadata.write_text(content)
    with pytest.raises(ConfigError, match=r"its partition\.metadata is missing or damaged"):
        bench.start()
    assert all(bench.log(name).exists() for name in "abc")


def test_an_empty_directory_left_by_a_crash_makes_way(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.make("b", NOW, 3)
    bench.log("a").mkdir(parents=True)
    bench.start()
    assert bench.opened() == {"b": 3}
    assert "it has no records, and does not say to which topic it belongs" in caplog.text


def test_a_disk_that_fails_while_a_log_is_looked_at_is_offline_and_the_other_log_counts(
    bench: Bench,
) -> None:
    bench.make("a", FORMER, 5)
    bench.make("b", NOW, 3)
    bench.files.before = failing(errno.EIO, "open", path=f"{bench.log('a')}/log-manifest")
    bench.start()
    assert [directory.offline for directory in bench.manager.directories] == [True, False, False]
    assert bench.opened() == {"b": 3}


def test_a_disk_that_fails_while_a_log_is_set_aside_is_offline_and_the_other_log_counts(
    bench: Bench,
) -> None:
    bench.make("a", FORMER, 5)
    bench.make("b", NOW, 3)
    bench.files.before = failing(errno.EIO, "rename", path=str(bench.log("a")))
    bench.start()
    assert [directory.offline for directory in bench.manager.directories] == [True, False, False]
    assert bench.opened() == {"b": 3}


def test_a_full_disk_that_takes_no_other_name_is_told(bench: Bench) -> None:
    bench.make("a", FORMER, 5)
    bench.make("b", NOW, 3)
    bench.files.before = failing(errno.ENOSPC, "rename", path=str(bench.log("a")))
    with pytest.raises(ApiError, match=r"cannot rename .*/a/t-0 to .*-stray: No space left"):
        bench.start()
    assert bench.log("a").exists()


def test_a_log_whose_new_name_is_not_stable_yet_is_not_taken_for_the_next_topics(
    bench: Bench,
) -> None:
    """The next one begins with no records, and with nothing that was written down of it."""
    bench.make("a", FORMER, 5)
    bench.start()
    bench.manager.logs()[T0].delete_records_before(3)
    bench.manager.checkpoint()

    def fail(operation: str, path: str) -> None:
        if (operation, path) == ("sync directory", str(bench.paths["a"])):
            raise OSError(errno.EMFILE, "too many open files")

    bench.files.before = fail
    with pytest.raises(ApiError, match="cannot sync"):
        bench.manager.set_aside(T0, FORMER)
    bench.files.before = healthy
    bench.manager.prefer(*T0, bench.manager.directory_at(str(bench.paths["a"])))
    log = bench.manager.create(*T0, NOW, LogConfig())
    assert log.directory == str(bench.log("a"))
    assert (log.topic_id, log.log_start_offset, log.log_end_offset) == (NOW, 0, 0)
    assert (bench.set_aside()["a"] / f"{0:020}.log").stat().st_size > 0


def test_the_longest_name_of_a_topic_can_be_set_aside(bench: Bench) -> None:
    bench.make("a", FORMER, 0)
    long = bench.paths["a"] / f"{'t' * 249}-0"
    bench.log("a").rename(long)
    bench.start()
    directory = bench.manager.directories[0]
    directory.set_aside(TopicPartition("t" * 249, 0), FORMER)
    assert not long.exists()
    (path,) = bench.manager.strays()
    assert len(Path(path).name) == 255
