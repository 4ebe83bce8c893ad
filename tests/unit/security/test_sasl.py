"""PLAIN and OAUTHBEARER messages, and the choice of a mechanism by a client's settings."""

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbus.errors import AuthenticationError, ConfigError
from qbus.security.sasl import (
    MAX_PLAIN_BYTES,
    MAX_TOKEN_BYTES,
    MECHANISMS,
    OAuthBearerClient,
    PlainClient,
    bearer_error,
    make_sasl_client,
    parse_bearer,
    parse_plain,
)

TOKEN = "aaa.bbb.ccc"

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@dataclass
class Settings:
    sasl_mechanism: str | None
    sasl_username: str | None = "alice"
    sasl_password: str | None = "secret"
    oauth_token: Callable[[], object] | None = None


@given(texts, texts)
def test_plain_says_name_and_password(user: str, password: str) -> None:
    one = PlainClient(user, password)
    assert parse_plain(one.first()) == (user, password)
    assert one.answer(b"") is None
    assert one.is_complete


@given(st.binary(max_size=200))
def test_any_bytes_are_plain_or_refused(message: bytes) -> None:
    with contextlib.suppress(AuthenticationError):
        assert all(parse_plain(message))


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (b"", "three parts"),
        (b"alice\0secret", "three parts"),
        (b"\0alice\0secret\0more", "three parts"),
        (b"\0\0secret", "empty"),
        (b"\0alice\0", "empty"),
        (b"bob\0alice\0secret", "authorization id"),
        (b"\0\xff\0secret", "UTF-8"),
        (b"\0alice\0" + b"s" * MAX_PLAIN_BYTES, "bytes"),
    ],
)
def test_malformed_plain_is_refused_and_not_quoted(message: bytes, what: str) -> None:
    with pytest.raises(AuthenticationError, match=what) as raised:
        parse_plain(message)
    assert "secret" not in str(raised.value)


def test_plain_takes_the_name_as_its_own_authorization_id() -> None:
    assert parse_plain(b"alice\0alice\0secret").username == "alice"


def test_messages_do_not_show_secrets() -> None:
    assert "secret" not in repr(parse_plain(b"\0alice\0secret"))
    assert TOKEN not in repr(parse_bearer(OAuthBearerClient(TOKEN).first()))


def test_oauthbearer_says_the_token() -> None:
    message = OAuthBearerClient(TOKEN).first()
    assert message == b"n,,\x01auth=Bearer aaa.bbb.ccc\x01\x01"
    assert parse_bearer(message) == (TOKEN, "")


def test_a_bearer_message_may_have_extensions_and_a_user() -> None:
    message = b"n,a=ali=2Cce,\x01auth=bearer  t\x01traceId=123\x01\x01"
    assert parse_bearer(message) == ("t", "ali,ce")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer t\x01",
        b"n,,\x01auth=Basic t\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer t\x01auth=Bearer u\x01\x01",
        b"n,,\x01Auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer t\x01bad-key=1\x01\x01",
        b"p=x,,\x01auth=Bearer t\x01\x01",
        b"n,b=x,\x01auth=Bearer t\x01\x01",
        b"auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer t\xe9\x01\x01",
        b"n,,\x01auth=Bearer " + b"t" * MAX_TOKEN_BYTES + b"\x01\x01",
    ],
)
def test_malformed_bearer_messages_are_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationError):
        parse_bearer(message)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_bearer_message_or_refused(message: bytes) -> None:
    with contextlib.suppress(AuthenticationError):
        assert parse_bearer(message).token


def test_a_refused_token_is_answered_with_one_byte_and_then_with_an_error() -> None:
    one = OAuthBearerClient(TOKEN)
    one.first()
    assert one.answer(bearer_error("invalid_token")) == b"\x01"
    assert "invalid_token" in str(one.refusal)
    assert not one.is_complete
    with pytest.raises(AuthenticationError, match="invalid_token"):
        one.answer(b"")


def test_an_accepted_token_ends_the_exchange() -> None:
    one = OAuthBearerClient(TOKEN)
    one.first()
    assert one.answer(b"") is None
    assert one.is_complete


@pytest.mark.parametrize("token", ["", "a\x01b", "a\0b", "é"])
def test_no_token_breaks_the_message(token: str) -> None:
    with pytest.raises(AuthenticationError):
        OAuthBearerClient(token)


def test_the_error_of_rfc_7628() -> None:
    error = json.loads(bearer_error("insufficient_scope", "read write"))
    assert error == {"status": "insufficient_scope", "scope": "read write"}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_mechanism_has_a_client(mechanism: str) -> None:
    one = make_sasl_client(Settings(mechanism, oauth_token=lambda: TOKEN))
    assert one.mechanism == mechanism
    assert one.first()
    assert not one.is_complete


@pytest.mark.parametrize(
    "settings",
    [
        Settings("GSSAPI"),
        Settings(None),
        Settings("PLAIN", sasl_username=None),
        Settings("PLAIN", sasl_username="a\0b"),
        Settings("SCRAM-SHA-256", sasl_password=None),
        Settings("OAUTHBEARER"),
        Settings("OAUTHBEARER", oauth_token=lambda: None),
    ],
)
def test_settings_that_do_not_suffice_are_refused(settings: Settings) -> None:
    with pytest.raises(ConfigError) as raised:
        make_sasl_client(settings)
    assert "secret" not in str(raised.value)
