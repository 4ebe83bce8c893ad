"""The file of the embedded store: its lock, its checks and its failures."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from qbus.metadata import (
    Create,
    EmbeddedStore,
    Node,
    NoNode,
    SessionState,
    Set,
    StoreUnavailable,
    StoreUnusable,
)
from qbus.metadata.database import Database
from tests.support.descriptors import exhausted


async def fill(path: Path, count: int = 1) -> None:
    async with EmbeddedStore(path) as store:
        await store.transaction([Create(f"/n/{i}", b"x" * 1000) for i in range(count)])


async def test_a_second_broker_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with EmbeddedStore(path):
        second = EmbeddedStore(path)
        with pytest.raises(StoreUnusable, match=r"cannot open .*m\.db: another broker has it open"):
            await second.start()
        assert second.state is SessionState.LOST
        await second.close()
    async with EmbeddedStore(path):
        pass


async def test_it_is_opened_once(tmp_path: Path) -> None:
    async with EmbeddedStore(tmp_path / "m.db") as store:
        with pytest.raises(StoreUnavailable, match="opened already"):
            await store.start()


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="directory is missing"):
        await EmbeddedStore(tmp_path / "none" / "m.db").start()


def test_want_of_descriptors_is_named_and_no_directory(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    Database(path).close()
    with (
        exhausted(),
        pytest.raises(StoreUnusable, match=r"EMFILE.*limit of this process is \d+") as caught,
    ):
        Database(path)
    assert "directory" not in str(caught.value)
    assert "ulimit -n" in str(caught.value)
    Database(path).close()


def garbage(path: Path) -> None:
    path.write_bytes(os.urandom(16_384))


def another_application(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE theirs (a)")
    database.close()


def a_newer_format(path: Path) -> None:
    asyncio.run(fill(path))
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()


def a_damaged_page(path: Path) -> None:
    asyncio.run(fill(path, 200))
    with path.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(os.urandom(4096))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (garbage, "damaged, or no metadata store"),
        (another_application, "not a metadata store"),
        (a_newer_format, "newer Qbus"),
        (a_damaged_page, "damaged"),
    ],
)
def test_a_file_that_is_not_ours_whole_is_refused_and_left_alone(
    tmp_path: Path, spoil: Callable[[Path], None], why: str
) -> None:
    path = tmp_path / "m.db"
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(StoreUnusable, match=why):
        asyncio.run(EmbeddedStore(path).start())
    assert path.read_bytes()[100:] == before[100:]  # the header counts who opened it


@pytest.mark.parametrize(
    ("pragma", "value"),
    [("journal_mode", "wal"), ("synchronous", 2), ("locking_mode", "exclusive")],
)
async def test_a_commit_is_on_stable_storage_and_the_file_is_ours(
    tmp_path: Path, pragma: str, value: str | int
) -> None:
    async with EmbeddedStore(tmp_path / "m.db") as store:
        row = await store._submit(lambda db: db._db.execute(f"PRAGMA {pragma}").fetchone())
        assert row == (value,)


async def test_a_lazy_transaction_does_not_wait_for_the_disk_and_the_next_other_one_does(
    tmp_path: Path,
) -> None:
    """What ``synchronous`` is during a commit says whether it waits: 1 does not, 2 does."""
    async with EmbeddedStore(tmp_path / "m.db") as store:

        async def commits_with() -> int:
            # A read does not change it.
            row = await store._submit(
                lambda db: db._db.execute("PRAGMA synchronous").fetchone(), lazily=True
            )
            level: int = row[0]
            return level

        await store.lazy_transaction([Create("/a")])
        assert await commits_with() == 1
        assert await store.get("/a") is not None
        await store.transaction([Create("/b")])
        row = await store._submit(lambda db: db._db.execute("PRAGMA synchronous").fetchone())
        assert row == (2,)


async def test_a_lazy_transaction_beside_another_one_waits_for_the_disk(tmp_path: Path) -> None:
    levels = []
    async with EmbeddedStore(tmp_path / "m.db") as store:

        def look(database: Database) -> None:
            levels.append(database._db.execute("PRAGMA synchronous").fetchone()[0])

        await asyncio.gather(
            store.lazy_transaction([Create("/a")]),
            store.transaction([Create("/b")]),
            store._submit(look),
        )
        assert levels == [2]


async def test_a_lazy_transaction_is_whole_or_refused(tmp_path: Path) -> None:
    async with EmbeddedStore(tmp_path / "m.db") as store:
        with pytest.raises(NoNode):
            await store.lazy_transaction([Create("/a"), Set("/none", b"")])
        assert await store.get("/a") is None
        with pytest.raises(TypeError):
            await store.lazy_transaction([Create("/a", "text")])  # type: ignore[arg-type]


async def test_transactions_that_wait_share_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = []
    commit = Database.commit

    def count(database: Database) -> None:
        commits.append(database)
        commit(database)

    monkeypatch.setattr(Database, "commit", count)
    async with EmbeddedStore(tmp_path / "m.db") as store:
        await asyncio.gather(*(store.transaction([Create(f"/n/{i}")]) for i in range(500)))
        assert len(commits) < 50


async def test_requests_are_answered_after_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Database) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    async with EmbeddedStore(tmp_path / "m.db") as store:
        await store.transaction([Create("/a", b"old")])
        monkeypatch.setattr(Database, "commit", fail)
        told: list[SessionState] = []
        store.on_state(told.append)
        outcomes = await asyncio.gather(
            store.transaction([Set("/a", b"new")]),
            store.transaction([Create("/b")]),
            store.get("/a"),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
        assert told == [SessionState.LOST], "a file that failed is not trusted again"
        with pytest.raises(StoreUnavailable):
            await store.get("/a")
    monkeypatch.undo()
    async with EmbeddedStore(tmp_path / "m.db") as store:
        assert (await store.tree("/")).keys() >= {"/a"}
        assert await store.get("/b") is None


async def test_a_full_disk_refuses_writes_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    async with EmbeddedStore(tmp_path / "m.db") as store:
        await store.transaction([Create("/a", b"old")])
        await store._submit(lambda database: database._db.execute("PRAGMA max_page_count = 10"))
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            await store.transaction([Create("/large", b"x" * 100_000)])
        assert store.state is SessionState.CONNECTED
        assert (await store.get("/a") or (b"",))[0] == b"old"
        await store._submit(lambda database: database._db.execute("PRAGMA max_page_count = 9999"))
        await store.transaction([Create("/large", b"x" * 100_000)])


async def test_a_file_that_cannot_be_opened_on_a_full_disk_can_be_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.db"
    await fill(path)

    def find_no_room(database: Database) -> None:
        database._db.execute("PRAGMA max_page_count = 1")
        database._db.execute("CREATE TABLE more (a BLOB)")

    with monkeypatch.context() as full:
        full.setattr(Database, "_open", find_no_room)
        store = EmbeddedStore(path)
        with pytest.raises(StoreUnavailable, match=r"cannot open .*the disk is full") as refused:
            await store.start()
        assert refused.value.retriable
        assert store.state is SessionState.LOST
        await store.close()
    async with EmbeddedStore(path) as store:
        assert await store.get("/n/0") is not None


async def test_only_what_does_not_fit_on_a_full_disk_is_refused(tmp_path: Path) -> None:
    """Reads and small writes in the batch of a large write succeed."""
    async with EmbeddedStore(tmp_path / "m.db") as store:
        await store.transaction([Create("/a", b"old")])
        await store._submit(lambda database: database._db.execute("PRAGMA max_page_count = 10"))
        go_on = threading.Event()
        busy = store._submit(lambda _: go_on.wait(10))
        together = asyncio.gather(
            store.get("/a"),
            store.transaction([Create("/large", b"x" * 100_000)]),
            store.transaction([Set("/a", b"new")]),
            store.get("/a"),
            return_exceptions=True,
        )
        await asyncio.sleep(0)
        go_on.set()
        assert await busy
        before, large, changed, after = await together
        assert isinstance(large, StoreUnavailable)
        assert before == Node(b"old", 0)
        assert changed == [1]
        assert after == Node(b"new", 1)


async def test_a_file_that_fails_while_the_disk_is_full_answers_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EmbeddedStore(tmp_path / "m.db") as store:
        await store._submit(lambda database: database._db.execute("PRAGMA max_page_count = 10"))
        go_on = threading.Event()
        busy = store._submit(lambda _: go_on.wait(10))
        large = store.transaction([Create("/large", b"x" * 100_000)])
        together = asyncio.gather(large, store.get("/"), store.get("/"), return_exceptions=True)
        await asyncio.sleep(0)
        monkeypatch.setattr(Database, "get", fail_to_read)
        go_on.set()
        assert await busy
        assert [type(outcome) for outcome in await together] == [StoreUnavailable] * 3
        assert store.state is SessionState.LOST


def fail_to_read(_: Database, path: str) -> None:
    raise sqlite3.OperationalError(f"disk I/O error at {path}")


async def test_a_bug_in_one_request_is_its_own(tmp_path: Path) -> None:
    async with EmbeddedStore(tmp_path / "m.db") as store:
        good = asyncio.ensure_future(store.transaction([Create("/a")]))
        with pytest.raises(ZeroDivisionError):
            await store._submit(lambda _: 1 / 0)
        assert await good == ["/a"]


async def test_opening_ends_the_session_of_a_broker_that_crashed(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    store = EmbeddedStore(path)
    await store.start()
    await store.transaction([Create("/brokers/ids/1", ephemeral=True), Create("/stays")])
    await asyncio.to_thread(copy_as_a_crash_leaves_it, path, tmp_path / "crashed.db")
    await store.close()
    async with EmbeddedStore(tmp_path / "crashed.db") as after:
        assert await after.children("/brokers/ids") == []
        assert await after.get("/stays") is not None


def copy_as_a_crash_leaves_it(path: Path, copy: Path) -> None:
    """Copy the file and its write-ahead log."""
    for suffix in ("", "-wal"):
        Path(f"{copy}{suffix}").write_bytes(Path(f"{path}{suffix}").read_bytes())


WRITER = """
import asyncio, sys
from pathlib import Path
from qbus.metadata import Create, EmbeddedStore, Set

async def main():
    async with EmbeddedStore(Path(sys.argv[1])) as store:
        first = len(await store.children("/done"))

        async def write(number):
            await getattr(store, sys.argv[2])(
                [Create(f"/done/{number:09}"), Create(f"/beside/{number:09}", b"x" * 500)]
            )
            sys.stdout.write(f"{number}\\n")
            sys.stdout.flush()

        for number in range(first, first + 1_000_000, 8):
            await asyncio.gather(*(write(number + i) for i in range(8)))

asyncio.run(main())
"""


@pytest.mark.parametrize("acknowledged_before_the_kill", [1, 20, 300])
@pytest.mark.parametrize("kind", ["transaction", "lazy_transaction"])
def test_a_kill_loses_nothing_that_was_acknowledged(
    tmp_path: Path, acknowledged_before_the_kill: int, kind: str
) -> None:
    path = tmp_path / "m.db"
    acknowledged: set[int] = set()
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), kind], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        with writer:
            for line in writer.stdout:
                acknowledged.add(int(line))
                if len(acknowledged) >= acknowledged_before_the_kill:
                    break
            writer.send_signal(signal.SIGKILL)
            acknowledged |= {int(line) for line in writer.stdout if line.endswith("\n")}
        stored = asyncio.run(read(path))
        assert acknowledged <= stored
        acknowledged_before_the_kill += len(acknowledged)


async def read(path: Path) -> set[int]:
    async with EmbeddedStore(path) as store:
        done, beside = await store.children("/done"), await store.children("/beside")
        assert done == beside, "transactions are whole"
        return {int(name) for name in done}


def test_a_loop_that_ended_does_not_stop_the_thread(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "m.db")

    async def abandon() -> None:
        await store.start()
        store._submit(lambda database: database.apply([Create("/a")]))

    asyncio.run(abandon())
    worker = store._worker
    assert worker is not None
    worker._queue.put(None)
    worker._thread.join(10)
    assert not worker._thread.is_alive()


async def test_the_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    """Credentials are in them; files from before are no exception."""
    path = tmp_path / "metadata.db"
    async with EmbeddedStore(path) as store:
        await store.transaction([Create("/config/users/alice", b"salted")])
        assert modes_of(tmp_path) == {"metadata.db": 0o600, "metadata.db-wal": 0o600}
    path.chmod(0o644)
    async with EmbeddedStore(path) as store:
        assert await store.get("/config/users/alice") is not None
        assert set(modes_of(tmp_path).values()) == {0o600}


def modes_of(directory: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode & 0o777 for file in directory.glob("metadata.db*")}
