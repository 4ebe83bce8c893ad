"""Lives of a log, short ones."""

from qbus.broker.log import LogConfig

from .model import Subject

CONFIG = LogConfig(
    segment_bytes=2200,
    index_interval_bytes=300,
    retention_ms=60_000,
    file_delete_delay_ms=60_000,
)


def append_and_flush(subject: Subject) -> None:
    subject.create()
    subject.append(10)
    subject.append(700, 20)
    subject.flush()
    subject.append(300)
    subject.append(5, 5, 5)
    subject.append(900)
    subject.flush()
    subject.append(40)


def roll(subject: Subject) -> None:
    subject.create()
    for _ in range(3):
        subject.append(400)
        subject.append(300, 200)
    subject.flush()
    for _ in range(7):
        subject.append(600)
    subject.flush()
    subject.append(600)


def checkpoint(subject: Subject) -> None:
    subject.create()
    for size in (300, 400, 350):
        subject.append(size)
        subject.flush()
        subject.checkpoint()
    for size in (700, 900, 500):
        subject.append(size, epoch=1)
    subject.flush()
    subject.checkpoint()
    subject.append(100, epoch=2)
    subject.checkpoint()


def retention(subject: Subject) -> None:
    subject.create()
    for _ in range(9):
        subject.append(700)
    subject.flush()
    subject.clock.advance(50)
    subject.append(800)
    subject.append(800)
    subject.clock.advance(20)
    subject.flush()
    subject.apply_retention()
    subject.empty_trash()
    subject.clock.advance(120)
    subject.apply_retention()
    subject.append(10)
    subject.flush()
    subject.clock.advance(120)
    subject.apply_retention()
    subject.append(10)
    subject.flush()
    subject.checkpoint()


def delete_records(subject: Subject) -> None:
    subject.create()
    for _ in range(8):
        subject.append(500, 100)
    subject.flush()
    subject.delete_records_before(7)
    subject.checkpoint()
    subject.apply_retention()
    subject.delete_records_before(16)
    subject.apply_retention()
    subject.append(50)
    subject.flush()


def truncation(subject: Subject) -> None:
    subject.create()
    for _ in range(9):
        subject.append(300, 300)
    subject.flush()
    subject.checkpoint()
    subject.truncate(15)
    subject.append(250, epoch=1)
    subject.flush()
    subject.truncate(3)
    subject.append(260, 20, epoch=2)
    subject.append(900, epoch=2)
    subject.append(900, epoch=2)
    subject.checkpoint()
    subject.flush()
    subject.truncate(0)
    subject.append(10, epoch=3)
    subject.flush()


def following(subject: Subject) -> None:
    """What a follower's log goes through as its leaders change."""
    subject.create()
    subject.follow(300, 200, 40)
    subject.flush()
    subject.checkpoint()
    subject.follow(600, 700, 300, epoch=1)
    subject.follow(900, epoch=1)
    subject.flush()
    subject.truncate(4)
    subject.follow(800, 900, 20, epoch=2)
    subject.flush()
    subject.follow(10, epoch=2)
    subject.truncate(20)
    subject.follow(10, epoch=3)
    subject.flush()


def restarting_at(subject: Subject) -> None:
    """The leader's log begins behind the end of ours; or ends before ours begins."""
    subject.create()
    subject.follow(300, 900, 900)
    subject.follow(900, 900)
    subject.flush()
    subject.checkpoint()
    subject.follow(900, 50)
    subject.restart_at(50)
    subject.follow(900, 800, epoch=2)
    subject.follow(900, 800, epoch=2)
    subject.flush()
    subject.checkpoint()
    subject.restart_at(20)
    subject.follow(40, epoch=3)
    subject.flush()


def restart(subject: Subject) -> None:
    subject.create()
    subject.append(300)
    subject.append(500)
    subject.restart()
    subject.append(700)
    subject.append(900)
    subject.flush()
    subject.restart()
    subject.restart()


def killing(subject: Subject) -> None:
    subject.create()
    for size in (300, 500, 600, 700, 200):
        subject.append(size)
    subject.kill()
    subject.append(800)
    subject.flush()
    subject.checkpoint()
    subject.append(100, epoch=1)
    subject.append(900, epoch=1)
    subject.kill()
    subject.append(50, epoch=1)
    subject.kill()


def everything(subject: Subject) -> None:
    subject.create()
    for _ in range(5):
        subject.append(500, 100)
    subject.flush()
    subject.checkpoint()
    subject.append(700)
    subject.truncate(8)
    subject.append(400, epoch=1)
    subject.flush()
    subject.delete_records_before(3)
    subject.apply_retention()
    subject.restart()
    subject.append(300, epoch=2)
    subject.append(900, epoch=2)
    subject.flush()
    subject.empty_trash()
    subject.clock.advance(120)
    subject.apply_retention()
    subject.append(20, epoch=2)
    subject.flush()
    subject.checkpoint()


def moving(subject: Subject) -> None:
    """To another data directory, while it is used, and back."""
    subject.create()
    for _ in range(5):
        subject.append(500, 100)
    subject.flush()
    subject.checkpoint()
    subject.delete_records_before(2)

    def grow() -> None:
        subject.append(900)
        subject.append(900, epoch=1)
        subject.flush()
        subject.append(20, epoch=1)

    subject.move(OTHER, grow)
    subject.append(30, 40, epoch=1)
    subject.flush()
    subject.restart()
    subject.append(50, epoch=2)
    subject.move(HERE)
    subject.append(60, epoch=2)
    subject.flush()


def moving_what_shrinks(subject: Subject) -> None:
    """Retention takes segments that were copied, and a new leader has its follower cut others."""
    subject.create()
    subject.follow(300, 900, 900)
    subject.follow(900, 900)
    subject.flush()

    def shrink() -> None:
        subject.truncate(3)
        subject.follow(700, 800, epoch=1)
        subject.flush()

    subject.move(OTHER, shrink)
    subject.follow(900, epoch=1)
    subject.flush()
    subject.clock.advance(120)
    subject.move(HERE, subject.apply_retention)
    subject.follow(900, epoch=1)
    subject.flush()
    subject.kill()


HERE, OTHER = DIRECTORIES = "/data", "/other"

MOVES = [moving, moving_what_shrinks]

SCENARIOS = [
    append_and_flush,
    roll,
    checkpoint,
    retention,
    delete_records,
    truncation,
    following,
    restarting_at,
    restart,
    killing,
]
