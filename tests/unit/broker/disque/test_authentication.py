"""AUTH and HELLO: passwords, users, delays, and ends of sessions."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from qbus.broker.disque.authentication import MOST_FAILURES, Authentication
from qbus.broker.disque.peers import Link
from qbus.broker.net.peer import ANONYMOUS, Principal

from .jobs import Jobs

NOAUTH = "NOAUTH Authentication required."
WRONGPASS = "WRONGPASS invalid username-password pair or user is disabled."


class Users:
    """The users of a test; ``asked`` for these."""

    def __init__(self) -> None:
        self.passwords = {"alice": "right", "bob": "other"}
        self.asked: list[tuple[str, str, str]] = []
        self.followed: dict[str, list[Callable[[str], None]]] = {}

    async def verify(self, user: str, password: str, host: str) -> Principal | None:
        self.asked.append((user, password, host))
        await asyncio.sleep(0)
        return Principal("User", user) if self.passwords.get(user) == password else None

    def track(self, user: str, close: Callable[[str], None]) -> Callable[[], None]:
        followed = self.followed.setdefault(user, [])
        followed.append(close)
        return lambda: followed.remove(close)


@pytest.fixture
def users() -> Users:
    return Users()


@pytest.fixture
def guarded(jobs: Jobs, users: Users) -> Jobs:
    """A node whose clients have to be users."""
    jobs.service.authentication = Authentication(users=users, delay_s=0.01)
    return jobs


class TestWithoutAny:
    async def test_everything_is_as_ever(self, jobs: Jobs) -> None:
        assert await jobs.ask("PING") == "PONG"
        for line in ("AUTH x", "AUTH alice x", "HELLO 3 AUTH default x"):
            assert str(await jobs.ask(line)) == "ERR Client sent AUTH, but no password is set"
        assert await jobs.ask("PING") == "PONG"
        assert jobs.client.principal == ANONYMOUS


class TestThePasswordOfAll:
    @pytest.fixture
    def locked(self, jobs: Jobs) -> Jobs:
        jobs.service.authentication = Authentication(b"secret", delay_s=0.01)
        return jobs

    async def test_is_asked_for(self, locked: Jobs) -> None:
        for line in ("PING", "QLEN q", "ADDJOB q b 0", "QBUS.LOCAL PING", "INFO", "HELLO"):
            assert str(await locked.ask(line)) == NOAUTH
        assert str(await locked.ask("AUTH wrong")) == "ERR invalid password"
        assert str(await locked.ask("PING")) == NOAUTH
        assert await locked.ask("AUTH secret") == "OK"
        assert await locked.ask("PING") == "PONG"
        assert str(locked.client.principal) == "User:default"

    async def test_is_noted_right_or_wrong(self, locked: Jobs) -> None:
        noted: list[tuple[str, ...]] = []
        locked.service.authentication.note = lambda *more: noted.append(more)
        for line in ("AUTH wrong", "AUTH alice secret", "AUTH default secret"):
            await locked.ask(line)
        host = locked.client.host
        assert noted == [
            ("default", "AUTH", host, "the password is wrong"),
            ("alice", "AUTH", host, "the user is wrong"),
            ("default", "AUTH", host, ""),
        ]

    async def test_is_that_of_the_user_default(self, locked: Jobs) -> None:
        assert str(await locked.ask("AUTH alice secret")) == WRONGPASS
        assert await locked.ask("AUTH default secret") == "OK"
        other = locked.new_client()
        assert (await locked.ask("HELLO 2 AUTH default secret SETNAME me", other))[0] == "server"
        assert other.name == b"me"

    async def test_is_shown_to_nobody(self, locked: Jobs) -> None:
        await locked.ask("AUTH secret")
        assert await locked.ask("CONFIG GET requirepass") == ["requirepass", "********"]
        assert "secret" not in repr(Link("u", b"secret"))

    async def test_a_name_comes_into_force_with_the_password_alone(self, locked: Jobs) -> None:
        assert str(await locked.ask("HELLO 3 AUTH default wrong SETNAME me")) == WRONGPASS
        assert str(await locked.ask("HELLO 3 SETNAME me")) == NOAUTH
        assert locked.client.name == b""


class TestUsers:
    async def test_log_in_with_their_passwords(self, guarded: Jobs, users: Users) -> None:
        assert str(await guarded.ask("PING")) == NOAUTH
        assert await guarded.ask("AUTH alice right") == "OK"
        assert str(guarded.client.principal) == "User:alice"
        assert users.asked == [("alice", "right", "127.0.0.1")]
        assert (await guarded.ask("HELLO 2 AUTH bob other"))[0] == "server"
        assert str(guarded.client.principal) == "User:bob"

    @pytest.mark.parametrize("line", ["AUTH alice wrong", "AUTH nobody right", 'AUTH "\\xff" x'])
    async def test_or_not(self, guarded: Jobs, line: str) -> None:
        assert str(await guarded.ask(line)) == WRONGPASS

    async def test_a_password_alone_names_nobody(self, guarded: Jobs) -> None:
        assert str(await guarded.ask("AUTH right")) == "ERR invalid password"

    async def test_after_a_failure_a_client_is_nobody(self, guarded: Jobs) -> None:
        await guarded.ask("AUTH alice right")
        assert str(await guarded.ask("AUTH bob wrong")) == WRONGPASS
        assert guarded.client.principal == ANONYMOUS
        assert str(await guarded.ask("PING")) == NOAUTH

    async def test_what_was_decided_for_one_is_not_for_the_next(self, guarded: Jobs) -> None:
        await guarded.ask("AUTH alice right")
        guarded.client.grants.keep("anything", allowed=True)
        await guarded.ask("AUTH bob other")
        assert guarded.client.grants.decisions == {}

    async def test_failures_are_answered_late_and_are_few(self, guarded: Jobs) -> None:
        guarded.service.authentication = Authentication(b"secret", delay_s=0.05)
        loop = asyncio.get_running_loop()
        started = loop.time()
        for number in range(1, MOST_FAILURES + 1):
            assert str(await guarded.ask("AUTH wrong")) == "ERR invalid password"
            assert guarded.client.is_over is (number == MOST_FAILURES)
        assert loop.time() - started >= 0.05 * MOST_FAILURES
        assert guarded.service.authentication.failed == MOST_FAILURES

    async def test_a_removed_user_is_disconnected(self, guarded: Jobs, users: Users) -> None:
        closed: list[str] = []
        client = guarded.new_client()
        client.close = closed.append
        await guarded.ask("AUTH alice right", client)
        (close,) = users.followed["alice"]
        close("the user was removed")
        assert closed == ["the user was removed"]
        guarded.service.authentication.forget(client)
        assert users.followed["alice"] == []

    async def test_a_session_ends(self, guarded: Jobs, users: Users) -> None:
        guarded.service.authentication = Authentication(users=users, session_s=60)
        assert await guarded.ask("AUTH alice right") == "OK"
        assert await guarded.ask("PING") == "PONG"
        now = asyncio.get_running_loop().time()
        assert 50 < guarded.client.expires_at - now <= 60
        guarded.client.expires_at = now  # the time has passed
        assert str(await guarded.ask("PING")) == NOAUTH
        assert guarded.client.is_over, "it authenticates when it connects again"

    async def test_who_waits_gets_no_job_after_that(self, guarded: Jobs, users: Users) -> None:
        await guarded.ask("AUTH alice right")
        guarded.service.authentication = Authentication(users=users, session_s=60)
        other = guarded.new_client()
        await guarded.ask("AUTH bob other", other)
        await guarded.ask("ADDJOB q first 0")
        await guarded.ask("GETJOB FROM q")
        waiting = guarded.begin("GETJOB FROM q", other)
        other.expires_at = asyncio.get_running_loop().time()  # its session has ended
        await guarded.ask("ADDJOB q second 0")
        assert (await asyncio.wait_for(waiting, 5)).startswith(b"-NOPERM")

    async def test_auth_has_one_or_two_words(self, guarded: Jobs) -> None:
        for line in ("AUTH", "AUTH a b c"):
            assert "wrong number of arguments" in str(await guarded.ask(line))
        assert str(await guarded.ask("HELLO 3 AUTH alice")) == "ERR syntax error"


async def test_both_kinds_together(tmp_path: Path, users: Users) -> None:
    authentication = Authentication(b"secret", users, delay_s=0)
    made = Jobs(tmp_path)
    await made.start()
    made.service.authentication = authentication
    assert await made.ask("AUTH secret") == "OK"
    assert await made.ask("AUTH alice right") == "OK"
    assert str(await made.ask("AUTH alice secret")) == WRONGPASS
    users.passwords["default"] = "of-a-user"
    assert await made.ask("AUTH default of-a-user") == "OK"
    await made.stop()


@pytest.mark.parametrize(
    ("link", "greeting"),
    [
        (Link(), []),
        (Link(password=b"p"), ["AUTH", b"p"]),
        (Link("broker", b"p"), ["AUTH", "broker", b"p"]),
    ],
)
def test_what_a_node_says_first(link: Link, greeting: list[object]) -> None:
    assert link.greeting == greeting
