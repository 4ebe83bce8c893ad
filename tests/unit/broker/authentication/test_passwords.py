"""Passwords: the same work for everybody, in threads, in turns, and remembered by a digest."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from qbus.broker.authentication import passwords as module
from qbus.broker.authentication.passwords import PasswordChecker, TooManyWaiting
from qbus.security.credentials import Credentials
from qbus.security.scram import ScramCredential, ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
HERE, THERE = "10.0.0.1", "10.0.0.2"


@pytest.fixture
def credentials() -> Credentials:
    made = Credentials(bytes(32))
    made.put("alice", {SHA_256: ScramCredential.from_password(SHA_256, "secret")})
    strong = ScramCredential.from_password(SHA_512, "strong", iterations=8192)
    made.put("bob", {SHA_512: strong})
    return made


@pytest.fixture
async def checker(credentials: Credentials) -> AsyncIterator[PasswordChecker]:
    made = PasswordChecker(credentials)
    yield made
    made.close()


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What was hashed: mechanisms and iterations."""
    done: list[tuple[str, int]] = []
    true = ScramMechanism.salted_password

    def counting(self: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
        done.append((self.mechanism, iterations))
        return true(self, password, salt, iterations)

    monkeypatch.setattr(ScramMechanism, "salted_password", counting)
    return done


async def test_the_right_password_of_either_mechanism(checker: PasswordChecker) -> None:
    assert await checker.check("alice", "secret", HERE)
    assert await checker.check("bob", "strong", HERE)
    assert not await checker.check("alice", "strong", HERE)
    assert not await checker.check("bob", "", HERE)
    assert not await checker.check("nobody", "secret", HERE)


async def test_the_work_does_not_tell_who_exists(
    checker: PasswordChecker, work: list[tuple[str, int]]
) -> None:
    amounts = set()
    for user in ("alice", "bob", "nobody", "another", ""):
        for password in ("wrong", "secret"):
            work.clear()
            await checker.check(user, password, HERE)
            amounts.add(
                tuple(
                    sum(count for name, count in work if name == mechanism.mechanism)
                    for mechanism in ScramMechanism
                )
            )
    assert amounts == {(4096, 8192)}


async def test_what_was_right_is_remembered_until_the_credential_changes(
    checker: PasswordChecker, credentials: Credentials, work: list[tuple[str, int]]
) -> None:
    assert not checker.remembers("alice", "secret")
    await checker.check("alice", "secret", HERE)
    await checker.check("alice", "wrong", HERE)
    work.clear()
    assert checker.remembers("alice", "secret")
    assert not checker.remembers("alice", "wrong")
    assert not checker.remembers("alicesecret", "")
    assert work == []
    before = credentials.stored("alice")
    credentials.put("alice", {})
    assert not checker.remembers("alice", "secret")
    credentials.put("alice", {SHA_256: ScramCredential.from_password(SHA_256, "secret")})
    assert not checker.remembers("alice", "secret")
    credentials.put("alice", before)
    assert checker.remembers("alice", "secret")


async def test_a_credential_that_is_removed_meanwhile_lets_nobody_in(
    checker: PasswordChecker, credentials: Credentials
) -> None:
    checking = asyncio.ensure_future(checker.check("alice", "secret", HERE))
    await asyncio.sleep(0)
    credentials.put("alice", {})
    assert not await checking
    assert not checker.remembers("alice", "secret")


async def test_nothing_remembered_has_the_password(checker: PasswordChecker) -> None:
    await checker.check("alice", "secret", HERE)
    assert "secret" not in repr(vars(checker))
    assert b"secret" not in b"".join(checker._known)


async def test_the_loop_goes_on_meanwhile(checker: PasswordChecker) -> None:
    checking = asyncio.gather(*(checker.check("alice", f"{n}", HERE) for n in range(10)))
    turns = 0
    while not checking.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 20
    assert not any(await checking)


async def test_the_same_password_at_once_is_checked_once(
    checker: PasswordChecker, work: list[tuple[str, int]]
) -> None:
    assert all(await asyncio.gather(*(checker.check("alice", "secret", HERE) for _ in range(500))))
    assert checker.checked == 1
    assert len(work) == 2  # one for each mechanism


async def test_an_address_that_guesses_does_not_make_others_wait(checker: PasswordChecker) -> None:
    guessing = [
        asyncio.ensure_future(checker.check("alice", f"guess {n}", HERE)) for n in range(200)
    ]
    await asyncio.sleep(0)
    assert await checker.check("alice", "secret", THERE)
    assert sum(one.done() for one in guessing) < 10
    for one in guessing:
        one.cancel()


async def test_what_waits_is_bounded(
    checker: PasswordChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_WAITING", 20)
    monkeypatch.setattr(module, "_MAX_WAITING_OF_ONE", 10)
    attempts = [
        asyncio.ensure_future(checker.check("alice", f"guess {n}", HERE)) for n in range(100)
    ]
    await asyncio.sleep(0)
    assert checker.waiting <= 10
    outcomes: list[Any] = await asyncio.gather(*attempts, return_exceptions=True)
    refused = [one for one in outcomes if isinstance(one, TooManyWaiting)]
    assert len(refused) == 100 - 10 - module._THREADS
    assert await checker.check("alice", "secret", THERE)


async def test_closing_ends_what_waits(checker: PasswordChecker) -> None:
    attempts = [asyncio.ensure_future(checker.check("alice", f"{n}", HERE)) for n in range(20)]
    await asyncio.sleep(0)
    checker.close()
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    assert any(isinstance(one, asyncio.CancelledError) for one in outcomes)
