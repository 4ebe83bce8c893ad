"""A store with several sessions at once, each over a stream of its own."""

import asyncio
import gc
import select
import socket
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from qbus.metadata import (
    Create,
    EmbeddedStore,
    Node,
    SessionState,
    Set,
    StoreUnavailable,
    VersionConflict,
    messages,
    serving,
)
from qbus.metadata.database import Database
from qbus.metadata.served import ServedStore
from qbus.metadata.serving import StoreServer
from tests.support.waiting import eventually


class Served:
    def __init__(self, path: Path) -> None:
        self.store = EmbeddedStore(path)
        self.sessions: list[ServedStore] = []

    async def start(self) -> None:
        await self.store.start()
        self.server = StoreServer(self.store)

    async def session(self) -> ServedStore:
        ours, theirs = socket.socketpair()
        self.server.serve(theirs)
        session = ServedStore(ours)
        self.sessions.append(session)
        await session.start()
        return session

    async def close(self) -> None:
        for session in self.sessions:
            await session.close()
        await self.server.close()
        await self.store.close()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path / "metadata.db")
    await made.start()
    yield made
    await made.close()


async def test_sessions_see_what_the_others_write(served: Served) -> None:
    one, other = await served.session(), await served.session()
    await one.transaction([Create("/a", b"\0\xff\n\"'")])
    assert await other.get("/a") == Node(b"\0\xff\n\"'", 0)
    await other.transaction([Set("/a", b"", 0)])
    with pytest.raises(VersionConflict) as refused:
        await one.transaction([Set("/a", b"x", 0)])
    assert refused.value.path == "/a"


async def test_watches_tell_of_what_others_write(served: Served) -> None:
    one, other = await served.session(), await served.session()
    told: list[str] = []
    await one.get("/a", lambda: told.append("node"))
    await one.children("/", lambda: told.append("child"))
    await other.transaction([Create("/a")])
    await eventually(lambda: sorted(told) == ["child", "node"])


async def test_one_of_many_wins(served: Served) -> None:
    sessions = [await served.session() for _ in range(4)]
    await sessions[0].transaction([Create("/n", b"0")])
    outcomes = await asyncio.gather(
        *(one.transaction([Set("/n", b"x", 0)]) for one in sessions), return_exceptions=True
    )
    assert sum(outcome == [1] for outcome in outcomes) == 1
    assert sum(isinstance(outcome, VersionConflict) for outcome in outcomes) == 3


async def test_the_nodes_of_a_session_end_with_it_and_those_of_others_stay(served: Served) -> None:
    one, other = await served.session(), await served.session()
    await one.transaction([Create("/one", ephemeral=True)])
    await other.transaction([Create("/other", ephemeral=True), Create("/stays")])
    await served.store.transaction([Create("/own", ephemeral=True)])
    told: list[int] = []
    await other.get("/one", lambda: told.append(1))
    await one.close()
    await eventually(lambda: bool(told))
    assert {"/other", "/own", "/stays"} <= (await other.tree("/")).keys()
    assert await other.get("/one") is None


async def test_a_process_that_dies_ends_its_session(served: Served) -> None:
    witness = await served.session()
    ours, theirs = socket.socketpair()
    # A process with the other end of the stream, and nothing else to do.
    command = (sys.executable, "-c", "import time; time.sleep(60)")
    process = await asyncio.create_subprocess_exec(*command, pass_fds=[ours.fileno()])
    session = served.server.serve(theirs)
    dying = ServedStore(ours)
    await dying.start()
    await dying.transaction([Create("/e", ephemeral=True)])
    assert dying._writer is not None
    dying._writer.transport.abort()  # here; the other process has it still
    await asyncio.sleep(0.05)
    assert await witness.get("/e") == Node(b"", 0)
    process.kill()
    await process.wait()
    await asyncio.wait_for(session, 5)
    assert await witness.get("/e") is None


async def test_what_a_session_asked_for_last_is_done_before_it_ends(served: Served) -> None:
    ours, theirs = socket.socketpair()
    session = served.server.serve(theirs)
    store = ServedStore(ours)
    await store.start()
    asked = [
        asyncio.ensure_future(store.transaction([Create(f"/e/{n}", ephemeral=True)]))
        for n in range(50)
    ]
    await asyncio.sleep(0)
    assert store._writer is not None
    store._writer.transport.abort()
    await asyncio.wait_for(session, 5)
    await asyncio.gather(*asked, return_exceptions=True)
    assert await served.store.children("/e") == []


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.Event]:
    """The disk is full, as the ends of sessions find it, until the event is set."""
    monkeypatch.setattr(serving, "_RETRY_S", 0.01)
    has_room = asyncio.Event()
    end_session = Database.end_session

    def end(database: Database, session: int) -> None:
        if not has_room.is_set():
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        end_session(database, session)

    monkeypatch.setattr(Database, "end_session", end)
    yield has_room
    has_room.set()


async def test_a_session_that_ends_while_the_disk_is_full_leaves_no_nodes(
    served: Served, full_disk: asyncio.Event, caplog: pytest.LogCaptureFixture
) -> None:
    witness = await served.session()
    ours, theirs = socket.socketpair()
    session = served.server.serve(theirs)
    store = ServedStore(ours)
    await store.start()
    await store.transaction([Create("/e", ephemeral=True)])
    assert store._writer is not None
    store._writer.transport.abort()
    await eventually(lambda: caplog.text.count("the disk is full") > 1)
    assert await witness.get("/e") == Node(b"", 0)
    assert not session.done()
    full_disk.set()
    await asyncio.wait_for(session, 5)
    assert await witness.get("/e") is None


async def test_a_stop_does_not_wait_for_a_full_disk(
    served: Served, full_disk: asyncio.Event
) -> None:
    witness, store = await served.session(), await served.session()
    await store.transaction([Create("/e", ephemeral=True)])
    await asyncio.wait_for(store.close(), 5)
    assert await witness.get("/e") == Node(b"", 0)
    full_disk.set()

    async def is_gone() -> bool:
        return await witness.get("/e") is None

    await eventually(is_gone)


async def test_a_defect_of_the_store_is_an_answer(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await served.session()

    async def broken(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(served.store, "get", broken)
    with pytest.raises(StoreUnavailable, match="ZeroDivisionError: a defect"):
        await asyncio.wait_for(session.get("/a"), 5)
    assert session.state is SessionState.CONNECTED


async def test_a_server_that_ends_loses_its_sessions(served: Served) -> None:
    session = await served.session()
    told: list[int] = []
    states: list[SessionState] = []
    await session.get("/a", lambda: told.append(1))
    session.on_state(states.append)
    await served.server.close()
    await eventually(lambda: states == [SessionState.LOST])
    assert told == [1]
    with pytest.raises(StoreUnavailable):
        await session.get("/a")


async def test_requests_without_an_answer_have_an_unknown_outcome(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await served.session()
    reached = asyncio.Event()

    async def never(*_: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(served.store, "get", never)
    asked = asyncio.ensure_future(session.get("/a"))
    await reached.wait()
    await served.server.close()
    with pytest.raises(StoreUnavailable, match="gone"):
        await asked


async def test_a_file_that_fails_loses_the_sessions(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await served.session()

    def broken(_: Database) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(Database, "commit", broken)
    with pytest.raises(StoreUnavailable):
        await session.transaction([Create("/a")])
    await eventually(lambda: session.state is SessionState.LOST)
    monkeypatch.undo()


@pytest.mark.parametrize("sent", [b"\0\0\0\4nots", b"\0\0\0\2[]", b"\0\0\0\5[1,2]", b"\0\0"])
async def test_a_stream_that_makes_no_sense_ends(served: Served, sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    session = served.server.serve(theirs)
    ours.sendall(sent)
    ours.shutdown(socket.SHUT_WR)
    await asyncio.wait_for(session, 5)
    ours.close()


async def test_a_session_that_never_began_is_closed(served: Served) -> None:
    ours, theirs = socket.socketpair()
    session = served.server.serve(theirs)
    await ServedStore(ours).close()
    await asyncio.wait_for(session, 5)


@pytest.fixture
def short() -> float:
    """The time-out of sessions, in seconds."""
    return 0.4


async def test_a_process_that_lives_and_says_nothing_loses_its_session(
    served: Served, short: float, caplog: pytest.LogCaptureFixture
) -> None:
    served.server = StoreServer(served.store, short)
    ours, theirs = socket.socketpair()
    over = served.server.serve(theirs)
    reader, writer = await asyncio.open_connection(sock=ours)  # what pings nobody
    writer.write(messages.frame([1, messages.TRANSACTION, _CREATE]))
    answer = await reader.readexactly(int.from_bytes(await reader.readexactly(messages.LENGTH)))
    assert messages.load(answer)[0] == 1
    assert await served.store.get("/frozen") == Node(b"", 0)
    await asyncio.wait_for(over, 10)
    assert await served.store.get("/frozen") is None
    assert await reader.read() == b"", "its stream ends: it learns of that when it goes on"
    assert "has said nothing for the session time-out" in caplog.text
    writer.close()


async def test_a_session_that_asks_for_nothing_lives(served: Served, short: float) -> None:
    served.server = StoreServer(served.store, short)
    ours, theirs = socket.socketpair()
    served.server.serve(theirs)
    idle = ServedStore(ours, short)
    await idle.start()
    await idle.transaction([Create("/idle", ephemeral=True)])
    await asyncio.sleep(4 * short)
    assert idle.state is SessionState.CONNECTED
    assert await idle.get("/idle") == Node(b"", 0)
    await idle.close()


async def test_a_server_that_stood_still_itself_ends_no_session(
    served: Served, short: float
) -> None:
    """What the sessions sent meanwhile is read before they are looked at again."""
    served.server = StoreServer(served.store, short)
    ours, theirs = socket.socketpair()
    served.server.serve(theirs)
    session = ServedStore(ours, short)
    await session.start()
    await session.transaction([Create("/e", ephemeral=True)])
    time.sleep(5 * short)  # noqa: ASYNC251 - the server's loop, which is the session's, too
    await asyncio.sleep(short)
    assert session.state is SessionState.CONNECTED
    await session.close()


async def test_a_session_in_doubt_is_suspended_until_the_server_has_answered(
    served: Served,
) -> None:
    session = await served.session()
    states: list[SessionState] = []
    session.on_state(states.append)
    session.doubt()
    assert session.state is SessionState.SUSPENDED
    with pytest.raises(StoreUnavailable):
        await session.get("/")
    await eventually(lambda: session.state is SessionState.CONNECTED)
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]


async def test_a_session_in_doubt_that_has_ended_is_lost(served: Served) -> None:
    session = await served.session()
    states: list[SessionState] = []
    session.on_state(states.append)
    session.doubt()
    await served.server.close()
    await eventually(lambda: session.state is SessionState.LOST)
    assert states in (
        [SessionState.SUSPENDED, SessionState.LOST],
        [SessionState.SUSPENDED, SessionState.CONNECTED, SessionState.LOST],  # it was answered
    )


async def test_a_session_that_has_said_nothing_yet_lives(served: Served, short: float) -> None:
    """The stream is there before its process has started, which may take long."""
    served.server = StoreServer(served.store, short)
    ours, theirs = socket.socketpair()
    served.server.serve(theirs)
    await asyncio.sleep(3 * short)
    session = ServedStore(ours, short)
    await session.start()
    await session.transaction([Create("/e", ephemeral=True)])
    await session.close()


async def test_a_session_in_doubt_ends_when_it_is_closed(served: Served) -> None:
    ours, theirs = socket.socketpair()
    over = served.server.serve(theirs)
    session = ServedStore(ours)
    await session.start()
    await session.transaction([Create("/e", ephemeral=True)])
    session.doubt()
    await session.close()
    await asyncio.wait_for(over, 5)
    assert await served.store.get("/e") is None


async def test_the_end_of_the_server_leaves_no_ping_unanswered(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = socket.socketpair()
    session = ServedStore(ours, 0.01)
    await session.start()
    await eventually(lambda: _has_come(theirs))
    theirs.close()
    states: list[SessionState] = []
    session.on_state(states.append)
    await eventually(lambda: states == [SessionState.LOST])
    await session.close()
    del session
    gc.collect()
    assert "never retrieved" not in caplog.text


_CREATE = messages.operations_out([Create("/frozen", ephemeral=True)])


def _has_come(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0])
