"""Data directories: owners, restarts, creation, deletion, checkpoints, failures."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from qbus.broker.log import LogConfig, LogManager, OsFiles, TopicPartition
from qbus.clock import ManualClock
from qbus.errors import ApiError, ConfigError, ErrorCode
from tests.support.logs import batch

ID, OTHER_ID = b"i" * 16, b"o" * 16
OpenManager = Callable[..., LogManager]


@pytest.fixture
def open_manager(tmp_path: Path, clock: ManualClock) -> OpenManager:
    def open_manager(
        *names: str, node_id: int = 1, files: OsFiles | None = None, threads: int = 1
    ) -> LogManager:
        return LogManager.open(
            [str(tmp_path / name) for name in names or ("data",)],
            lambda topic: LogConfig(file_delete_delay_ms=1000),
            clock,
            files,
            node_id=node_id,
            cluster_id="cluster",
            threads=threads,
        )

    return open_manager


def lines(path: Path) -> list[str]:
    """The entries of a checkpoint, without the one that seals it."""
    version, _, seal, *entries = path.read_text().splitlines()
    assert (version, seal.startswith("#crc32c 0 ")) == ("0", True)
    return entries


def create(manager: LogManager, topic: str = "t", partition: int = 0, count: int = 0) -> None:
    config = LogConfig(file_delete_delay_ms=1000)
    log = manager.create(topic, partition, ID, config)
    for _ in range(count):
        log.append(batch(b"v"), 0)


def test_a_new_directory_is_made_and_marked(open_manager: OpenManager, tmp_path: Path) -> None:
    manager = open_manager("a/b")
    assert manager.logs() == {}
    names = {path.name for path in (tmp_path / "a" / "b").iterdir()}
    assert names == {".lock", "meta.properties"}
    properties = manager.directories[0].properties
    assert properties is not None
    assert (properties.cluster_id, properties.node_id) == ("cluster", 1)


def test_nobody_else_can_read_a_new_directory(open_manager: OpenManager, tmp_path: Path) -> None:
    (tmp_path / "former").mkdir(mode=0o755)
    open_manager("new", "former")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "former").stat().st_mode & 0o777 == 0o755, "whose mode an operator chose"


def test_two_brokers_cannot_share_a_directory(open_manager: OpenManager) -> None:
    manager = open_manager()
    with pytest.raises(ConfigError, match="in use"):
        open_manager()
    manager.close()
    with pytest.raises(ConfigError, match="belongs to broker 1"):
        open_manager(node_id=2)
    open_manager()


def test_a_log_is_created_with_its_topics_id(open_manager: OpenManager, tmp_path: Path) -> None:
    manager = open_manager()
    log = manager.create("t", 3, ID, LogConfig())
    assert manager.get("t", 3) is log
    assert log.topic_id == ID
    assert str(log.topic_partition) == "t-3"
    metadata = tmp_path / "data" / "t-3" / "partition.metadata"
    assert metadata.read_text() == "version: 0\ntopic_id: aWlpaWlpaWlpaWlpaWlpaQ"


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("threads", [1, 4])
def test_logs_come_back(
    open_manager: OpenManager, tmp_path: Path, clean: bool, threads: int
) -> None:
    manager = open_manager()
    for partition in range(5):
        create(manager, "t", partition, count=partition)
    manager.close()
    if not clean:
        (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
    again = open_manager(threads=threads)
    assert again.directories[0].was_clean == clean
    ends = {key: log.log_end_offset for key, log in again.logs().items()}
    assert ends == {TopicPartition("t", number): number for number in range(5)}
    log = again.get("t", 4)
    assert log is not None
    assert log.topic_id == ID


def test_a_clean_stop_is_believed_once(open_manager: OpenManager, tmp_path: Path) -> None:
    manager = open_manager()
    create(manager, count=3)
    manager.close()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    again = open_manager()
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    del again
    crashed = open_manager()
    assert not crashed.directories[0].was_clean
    log = crashed.get("t", 0)
    assert log is not None
    assert log.log_end_offset == 3


def test_checkpoints_are_kafkas(open_manager: OpenManager, tmp_path: Path) -> None:
    manager = open_manager()
    create(manager, "t", 0, count=3)
    create(manager, "u", 1, count=5)
    for log in manager.logs().values():
        log.flush()
    manager.checkpoint()
    recovery_points = tmp_path / "data" / "recovery-point-offset-checkpoint"
    assert lines(recovery_points) == ["t 0 3", "u 1 5"]
    log_u = manager.get("u", 1)
    assert log_u is not None
    log_u.delete_records_before(4)
    manager.checkpoint_log_starts()
    log_starts = tmp_path / "data" / "log-start-offset-checkpoint"
    assert lines(log_starts) == ["u 1 4"]
    del manager, log, log_u
    again = open_manager().get("u", 1)
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset) == (4, 5)


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"]
)
def test_a_damaged_checkpoint_costs_reading_the_logs(
    open_manager: OpenManager, tmp_path: Path, name: str
) -> None:
    manager = open_manager()
    create(manager, count=3)
    manager.close()
    (tmp_path / "data" / name).write_text("0\n7\nnonsense")
    again = open_manager().get("t", 0)
    assert again is not None
    assert (again.log_end_offset, again.corruptions) == (3, ())


def test_a_deleted_partition_is_gone_at_once_and_its_files_later(
    open_manager: OpenManager, tmp_path: Path, clock: ManualClock
) -> None:
    manager = open_manager()
    create(manager, count=3)
    log = manager.get("t", 0)
    assert log is not None
    log.flush()
    manager.checkpoint()
    manager.delete("t", 0)
    assert manager.get("t", 0) is None
    graves = [path.name for path in (tmp_path / "data").glob("*-delete")]
    assert len(graves) == 1
    assert graves[0].startswith("t-0.")
    assert "t 0" not in (tmp_path / "data" / "recovery-point-offset-checkpoint").read_text()
    with pytest.raises(ApiError) as caught:
        log.append(batch(b"v"), 0)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert manager.empty_trash() == 0
    clock.advance(1)
    assert manager.empty_trash() == 1
    assert not list((tmp_path / "data").glob("*-delete"))


def test_a_partition_of_the_same_name_begins_anew(open_manager: OpenManager) -> None:
    manager = open_manager()
    create(manager, count=3)
    manager.delete("t", 0)
    fresh = manager.create("t", 0, OTHER_ID, LogConfig())
    assert (fresh.log_end_offset, fresh.topic_id) == (0, OTHER_ID)
    del manager, fresh
    again = open_manager().get("t", 0)
    assert again is not None
    assert (again.log_end_offset, again.is_usable) == (0, True)


def test_what_is_left_of_deleted_partitions_goes_when_opened(
    open_manager: OpenManager, tmp_path: Path
) -> None:
    manager = open_manager()
    create(manager, count=1)
    manager.delete("t", 0)
    del manager
    open_manager()
    assert not list((tmp_path / "data").glob("*-delete"))


def test_the_longest_topic_name_can_be_deleted(open_manager: OpenManager) -> None:
    manager = open_manager()
    create(manager, "t" * 249, count=1)
    manager.delete("t" * 249, 0)
    assert manager.logs() == {}


def test_creating_what_is_there_returns_it_unless_it_is_another_topics(
    open_manager: OpenManager,
) -> None:
    manager = open_manager()
    create(manager, count=1)
    assert manager.create("t", 0, ID, LogConfig()) is manager.get("t", 0)
    with pytest.raises(ApiError) as caught:
        manager.create("t", 0, OTHER_ID, LogConfig())
    assert caught.value.code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_partition_whose_creation_was_cut_short_is_claimed(
    open_manager: OpenManager, tmp_path: Path
) -> None:
    (tmp_path / "data" / "t-0").mkdir(parents=True)
    manager = open_manager()
    log = manager.get("t", 0)
    assert log is not None
    assert log.topic_id is None
    assert manager.create("t", 0, ID, LogConfig()) is log
    assert log.topic_id == ID


def test_new_logs_go_where_there_are_fewest(open_manager: OpenManager) -> None:
    manager = open_manager("a", "b")
    for partition in range(6):
        create(manager, "t", partition)
    assert [len(directory.logs) for directory in manager.directories] == [3, 3]


def test_a_partition_in_two_directories_is_an_error(
    open_manager: OpenManager, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "t-0").mkdir(parents=True)
    with pytest.raises(ConfigError, match="t-0 is in"):
        open_manager("a", "b")


class _FailingFiles(OsFiles):
    """Listing one directory fails."""

    def __init__(self, name: str) -> None:
        self._name = name

    def list(self, path: str) -> list[str]:
        if path.endswith(self._name):
            raise OSError(errno.EIO, "Input/output error")
        return super().list(path)


def test_one_directory_that_cannot_be_opened_is_offline_and_the_others_serve(
    open_manager: OpenManager,
) -> None:
    manager = open_manager("a", "b", files=_FailingFiles("/a"))
    assert [directory.offline for directory in manager.directories] == [True, False]
    with pytest.raises(ApiError, match="may be in a data directory that is offline"):
        create(manager)
    log = manager.create("new", 0, ID, LogConfig(), is_new=True)
    log.append(batch(b"v"), 0)
    assert log.flush() == 1


def test_without_any_directory_there_is_nothing_to_serve(open_manager: OpenManager) -> None:
    with pytest.raises(ApiError) as caught:
        open_manager(files=_FailingFiles("/data"))
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_other_files_and_directories_are_left_alone(
    open_manager: OpenManager, tmp_path: Path
) -> None:
    (tmp_path / "data" / "lost+found").mkdir(parents=True)
    (tmp_path / "data" / "metadata.db").write_text("x")
    manager = open_manager()
    assert manager.logs() == {}
    manager.close()
    assert (tmp_path / "data" / "metadata.db").exists()


def test_a_file_that_is_named_like_a_partition_is_passed_over(
    open_manager: OpenManager, tmp_path: Path
) -> None:
    manager = open_manager()
    create(manager, "t", 0, count=2)
    manager.close()
    stray = tmp_path / "data" / "stray-0"
    stray.write_text("not ours")
    again = open_manager()
    assert list(again.logs()) == [TopicPartition("t", 0)]
    assert not again.directories[0].offline
    assert stray.read_text() == "not ours"


def test_sound_logs_are_not_read_again_because_another_is_damaged(
    open_manager: OpenManager, tmp_path: Path
) -> None:
    manager = open_manager()
    create(manager, "damaged", 0, count=2)
    create(manager, "sound", 0, count=3)
    manager.checkpoint()
    sound, damaged = manager.get("sound", 0), manager.get("damaged", 0)
    assert sound is not None
    assert damaged is not None
    sound.append(batch(b"more"), 0)
    damaged.abandon()
    manager.close()
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    points = (tmp_path / "data" / "recovery-point-offset-checkpoint").read_text()
    assert "sound 0 4" in points.splitlines()


def test_a_corrupt_log_stays_corrupt_across_restarts(
    open_manager: OpenManager, tmp_path: Path
) -> None:
    manager = open_manager()
    create(manager, count=3)
    manager.close()
    path = tmp_path / "data" / "t-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-5])
    for _ in range(2):
        again = open_manager()
        log = again.get("t", 0)
        assert log is not None
        assert not log.is_usable
        again.close()
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_truncating_lowers_the_recovery_point_first(
    open_manager: OpenManager, tmp_path: Path
) -> None:
    manager = open_manager()
    create(manager, count=5)
    log = manager.get("t", 0)
    assert log is not None
    log.flush()
    manager.checkpoint()
    assert manager.truncate("t", 0, 2) == 2
    recovery_points = tmp_path / "data" / "recovery-point-offset-checkpoint"
    assert lines(recovery_points) == ["t 0 2"]


def test_an_unknown_partition_cannot_be_deleted(open_manager: OpenManager) -> None:
    with pytest.raises(ApiError) as caught:
        open_manager().delete("t", 0)
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
