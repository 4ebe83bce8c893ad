"""One operation of the disk fails, at each site in turn: no false acknowledgement, nothing lost."""

import errno
from collections.abc import Iterator

import pytest

from qbus.clock import ManualClock
from qbus.errors import ApiError, ErrorCode

from .model import Scenario, Subject, build, check_content, check_survives
from .scenarios import CONFIG, DIRECTORIES, MOVES, checkpoint, everything, moving, roll
from .simulated_files import EverythingKept, Failure, NothingKept, SimulatedFiles

pytestmark = pytest.mark.crash


def directories(scenario: Scenario) -> tuple[str, ...]:
    return DIRECTORIES if scenario in MOVES else DIRECTORIES[:1]


def operations(scenario: Scenario) -> list[str]:
    """The kinds of all operations of a life without failures, in order."""
    files = SimulatedFiles()
    kinds: list[str] = []
    files.observe = lambda kind, path: kinds.append(kind)
    scenario(Subject(files, CONFIG, ManualClock(), directories=directories(scenario)))
    return kinds


def live(scenario: Scenario, failure: Failure) -> Subject | None:
    """A life in which ``failure`` strikes; None when it was over before it began."""
    files = SimulatedFiles()
    files.failure = failure
    try:
        subject = Subject(
            files, CONFIG, ManualClock(), tolerant=True, directories=directories(scenario)
        )
    except ApiError:
        return None
    try:
        scenario(subject)
    except ApiError as error:  # from opening again
        subject.refusals.append(error)
    files.failure = None
    return subject


def lives(
    kinds: frozenset[str], error: int | None, *, part: float = 0.0, scenario: Scenario = everything
) -> Iterator[Subject]:
    """The life in which the operation fails, for each operation of these kinds."""
    for at, kind in enumerate(operations(scenario), 1):
        if kind in kinds:
            failure = Failure(at, error, part)
            subject = live(scenario, failure)
            assert failure.struck
            if subject is not None:
                try:
                    check(subject)
                    yield subject
                except BaseException as problem:
                    problem.add_note(f"operation {at}: {failure.struck}, errno {error}")
                    raise


def check(subject: Subject) -> None:
    for refusal in subject.refusals:
        assert refusal.code in {
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.OFFSET_OUT_OF_RANGE,  # what should be there was refused
        }
    check_survives(subject, EverythingKept())
    check_survives(subject, NothingKept())


TAKING_SPACE = frozenset({"create", "mkdir", "write"})
ALL = TAKING_SPACE | {"truncate", "sync", "sync directory", "rename", "remove"}


def test_an_error_of_the_disk_loses_nothing_and_acknowledges_nothing() -> None:
    assert sum(1 for _ in lives(ALL, errno.EIO)) > 100


def test_an_error_of_a_disk_while_a_log_moves_between_two() -> None:
    assert sum(1 for _ in lives(ALL, errno.EIO, scenario=moving)) > 100


def test_a_full_disk_while_a_log_moves_ends_that_and_nothing_else() -> None:
    for subject in lives(TAKING_SPACE, errno.ENOSPC, scenario=moving):
        assert not any(directory.offline for directory in subject.manager.directories)


@pytest.mark.parametrize("scenario", [roll, checkpoint], ids=["roll", "checkpoint"])
def test_after_a_failed_sync_the_directory_is_offline(scenario: Scenario) -> None:
    for subject in lives(frozenset({"sync", "sync directory"}), errno.EIO, scenario=scenario):
        assert subject.manager.directories[0].offline
        if not subject.expected.created:
            continue
        with pytest.raises(ApiError, match="offline") as caught:
            subject.log.append(build((b"value",), subject.clock.time_ms(), 0), 9)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(ApiError, match="offline"):
            subject.log.flush()
        with pytest.raises(ApiError, match="offline"):
            subject.log.read(0, 1000)


def test_a_full_disk_is_refused_and_forgiven() -> None:
    for subject in lives(TAKING_SPACE, errno.ENOSPC):
        assert not subject.manager.directories[0].offline


@pytest.mark.parametrize("part", [0.1, 0.9])
def test_a_full_disk_may_take_a_part_of_a_write(part: float) -> None:
    for subject in lives(frozenset({"write"}), errno.ENOSPC, part=part):
        assert not subject.manager.directories[0].offline


def test_a_short_write_goes_on_where_it_stopped() -> None:
    for subject in lives(frozenset({"write"}), None, part=0.5):
        assert subject.refusals == []


def test_a_disk_that_stays_full_serves_what_it_has_even_after_a_restart() -> None:
    for at in range(10, len(operations(everything))):
        failure = Failure(at, errno.ENOSPC, lasting=TAKING_SPACE)
        files = SimulatedFiles()
        subject = Subject(files, CONFIG, ManualClock(), tolerant=True)
        files.failure = failure
        everything(subject)
        subject.restart()
        assert not subject.manager.directories[0].offline
        if subject.manager.get("topic", 0):
            check_content(subject.log, subject.expected)
        files.failure = None
        check(subject)
