"""What a connection may say when: before, during and after an authentication."""

import pytest

from qbus.broker.authentication.exchange import Identity
from qbus.broker.authentication.session import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Changed,
    Choice,
    Phase,
    SaslSession,
    lifetime_ms,
)

METADATA = 3
ALL = range(-1, 100)


def session(*mechanisms: str) -> SaslSession:
    return SaslSession(mechanisms or ("PLAIN", "SCRAM-SHA-256"))


def done(now: float = 0.0) -> SaslSession:
    made = session()
    made.choose("PLAIN", has_headers=True, now=now)
    made.succeed(Identity("alice"))
    return made


def answered(made: SaslSession, *, is_expired: bool = False) -> set[int]:
    return {key for key in ALL if made.refusal(key, is_expired=is_expired) is None}


def test_before_the_handshake_only_versions_and_the_handshake_are_answered() -> None:
    assert answered(session()) == {API_VERSIONS, SASL_HANDSHAKE}


def test_during_the_exchange_only_its_messages_are_answered() -> None:
    made = session()
    assert made.choose("PLAIN", has_headers=True, now=0.0) is Choice.TAKEN
    assert answered(made) == {SASL_AUTHENTICATE}


def test_after_success_everything_is_answered() -> None:
    assert answered(done()) == set(ALL)


def test_after_a_failure_nothing_is_answered() -> None:
    made = session()
    made.choose("PLAIN", has_headers=True, now=0.0)
    made.fail()
    assert answered(made) == set()
    assert made.choose("PLAIN", has_headers=True, now=0.0) is Choice.OUT_OF_TURN
    assert answered(made) == set()


def test_an_expired_session_answers_nothing_but_a_handshake() -> None:
    assert answered(done(), is_expired=True) == {SASL_HANDSHAKE}


def test_a_revoked_session_answers_nothing() -> None:
    made = done()
    made.is_revoked = True
    assert answered(made) == set()


@pytest.mark.parametrize("mechanism", ["GSSAPI", "", "plain", "SCRAM-SHA-512", "PLAIN "])
def test_a_mechanism_that_is_not_enabled_ends_it(mechanism: str) -> None:
    made = session()
    assert made.choose(mechanism, has_headers=True, now=0.0) is Choice.UNKNOWN
    assert answered(made) == set()


def test_a_second_handshake_in_the_exchange_ends_it() -> None:
    made = session()
    made.choose("SCRAM-SHA-256", has_headers=True, now=0.0)
    assert made.choose("PLAIN", has_headers=True, now=0.0) is Choice.OUT_OF_TURN
    assert made.phase is Phase.OVER


def test_while_authenticating_again_only_messages_of_the_mechanism_are_answered() -> None:
    made = done()
    assert made.choose("PLAIN", has_headers=True, now=10.0) is Choice.TAKEN
    assert answered(made) == {SASL_AUTHENTICATE}
    assert made.purpose == "re-authentication"
    made.check_mechanism()
    made.succeed(Identity("alice"))
    assert answered(made) == set(ALL)


def test_who_authenticates_again_is_the_same_user() -> None:
    made = done()
    made.choose("PLAIN", has_headers=True, now=10.0)
    with pytest.raises(Changed, match="principals"):
        made.succeed(Identity("admin"))
    assert made.user == "alice"


def test_who_authenticates_again_uses_the_same_mechanism() -> None:
    made = done()
    assert made.choose("SCRAM-SHA-256", has_headers=True, now=10.0) is Choice.TAKEN
    with pytest.raises(Changed, match=r"SCRAM-SHA-256.*PLAIN"):
        made.check_mechanism()


def test_nobody_authenticates_again_all_the_time() -> None:
    made = done()
    assert made.choose("PLAIN", has_headers=True, now=0.1) is Choice.TAKEN
    made.succeed(Identity("alice"))
    assert made.choose("PLAIN", has_headers=True, now=1.0) is Choice.TOO_SOON
    assert answered(made) == set(ALL)
    assert made.choose("PLAIN", has_headers=True, now=1.2) is Choice.TAKEN


@pytest.mark.parametrize(
    ("expires_at", "longest_ms", "expected"),
    [
        (None, 0, 0),
        (None, 5000, 5000),
        (1010.0, 0, 10_000),
        (1010.0, 5000, 5000),
        (1002.0, 5000, 2000),
        (990.0, 0, 1),
        (990.0, 5000, 1),
    ],
)
def test_how_long_a_session_lasts(expires_at: float | None, longest_ms: int, expected: int) -> None:
    assert lifetime_ms(Identity("alice", expires_at), longest_ms, 1000.0) == expected
