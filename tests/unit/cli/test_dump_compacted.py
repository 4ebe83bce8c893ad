"""`qbus dump-log` of a compacted log, with what compaction leaves of transactions."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from qbus.broker.log.checkpoints import CLEANER_OFFSETS
from qbus.cli.dump.command import dump_log
from tests.unit.broker.compaction.keyed import NOW
from tests.unit.broker.compaction.test_cleaning_transactions import TransactionalLog


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    directory = tmp_path / "table-0"
    directory.mkdir()
    keyed = TransactionalLog(directory)
    keyed.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    keyed.send(7, b"c", b"aborted")
    keyed.end(7, commit=False)
    keyed.put((b"b", None))
    keyed.put((b"a", b"3"))
    keyed.roll()
    keyed.clean(now_ms=NOW)
    keyed.log.close()
    return directory


def dump(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(dump_log, arguments, catch_exceptions=False)
    return done.exit_code, done.output


def test_missing_offsets_are_no_problem_in_the_directory_of_the_broker(partition: Path) -> None:
    code, shown = dump(str(partition))
    assert (code, "gap" in shown) == (1, True)
    (partition.parent / CLEANER_OFFSETS).write_text("0\n1\ntable 0 7\n")
    code, shown = dump(str(partition))
    assert (code, "! " in shown) == (0, False)


def test_it_says_when_tombstones_go_and_what_was_aborted(partition: Path) -> None:
    _, shown = dump("--gaps", "--records", str(partition))
    assert "delete horizon 2023-11-14" in shown
    assert "abort of a transaction, coordinator epoch 0" in shown
    assert "producer 7 aborted offsets 3-4, last stable offset 5 then" in shown


def test_the_checkpoint_of_the_cleaner_is_shown(partition: Path) -> None:
    checkpoint = partition.parent / CLEANER_OFFSETS
    checkpoint.write_text("0\n1\ntable 0 7\n")
    code, shown = dump(str(checkpoint))
    assert (code, "table" in shown) == (0, True)
