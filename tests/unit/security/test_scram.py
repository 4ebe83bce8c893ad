"""SCRAM by the vectors of RFC 5802 and 7677, client against server, and what cheats try."""

import contextlib
from base64 import b64decode, b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbus.errors import AuthenticationError
from qbus.security.scram import (
    MAX_MESSAGE_BYTES,
    ScramClient,
    ScramCredential,
    ScramMechanism,
    ScramServer,
)

SHA_256 = ScramMechanism.SHA_256
SHA_512 = ScramMechanism.SHA_512
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
PENCIL = ScramCredential.from_password(SHA_256, "pencil", salt=SALT)

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


def server(credential: ScramCredential = PENCIL, nonce: str = SERVER_NONCE) -> ScramServer:
    return ScramServer(SHA_256, lambda _: credential, nonce)


def client(password: str = "pencil") -> ScramClient:
    return ScramClient(SHA_256, "user", password, CLIENT_NONCE)


def to_final(side: ScramServer) -> bytes:
    """The honest client's last message to a server."""
    one = client()
    answer = one.answer(side.step(one.first()))
    assert answer is not None
    return answer


def test_the_exchange_of_rfc_7677() -> None:
    one, other = client(), server()
    first = one.first()
    assert first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = other.step(first)
    assert challenge == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    proof = one.answer(challenge)
    assert proof == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    verdict = other.step(proof)
    assert verdict == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert other.is_complete
    assert not one.is_complete
    assert one.answer(verdict) is None
    assert one.is_complete


def test_the_salted_password_of_rfc_6070_by_sha_256() -> None:
    salted = SHA_256.salted_password(b"password", b"salt", 4096)
    assert salted.hex() == "c5e478d59288c841aa530db6845c4c8d962893a001ce4e11a4963873aa98134a"


@given(texts, texts, st.sampled_from(ScramMechanism))
@settings(max_examples=30, deadline=None)
def test_any_name_and_password_work(user: str, password: str, mechanism: ScramMechanism) -> None:
    credential = ScramCredential.from_password(mechanism, password)
    other = ScramServer(mechanism, lambda name: {user: credential}[name])
    one = ScramClient(mechanism, user, password)
    answer = one.answer(other.step(one.first()))
    assert answer is not None
    one.answer(other.step(answer))
    assert one.is_complete
    assert other.is_complete
    assert other.username == user


@given(texts, texts)
@settings(max_examples=30, deadline=None)
def test_no_other_password_works(password: str, guess: str) -> None:
    credential = ScramCredential.from_password(SHA_256, password)
    other, one = ScramServer(SHA_256, lambda _: credential), ScramClient(SHA_256, "u", guess)
    answer = one.answer(other.step(one.first()))
    assert answer is not None
    if guess != password:
        with pytest.raises(AuthenticationError, match="wrong"):
            other.step(answer)
    assert other.is_complete is False


@given(st.binary(max_size=300))
def test_a_server_takes_any_bytes_for_the_first_message(message: bytes) -> None:
    side = server()
    try:
        side.step(message)
    except AuthenticationError:
        with pytest.raises(AuthenticationError, match="after the end"):
            side.step(client().first())
    assert not side.is_complete


@given(st.binary(max_size=300))
def test_a_server_takes_any_bytes_for_the_last_message(message: bytes) -> None:
    side = server()
    side.step(client().first())
    with pytest.raises(AuthenticationError):
        side.step(message)
    assert not side.is_complete


@given(st.binary(max_size=300))
def test_a_client_takes_any_bytes_of_a_server(message: bytes) -> None:
    one = client()
    one.first()
    with contextlib.suppress(AuthenticationError):
        one.answer(message)
    assert not one.is_complete


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_one_changed_byte_of_the_proof_is_noticed(data: st.DataObject) -> None:
    side = server()
    final = bytearray(to_final(side))
    place = data.draw(st.integers(0, len(final) - 1))
    final[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(AuthenticationError):
        side.step(bytes(final))
    assert not side.is_complete


@pytest.mark.parametrize(
    "nonce",
    [
        CLIENT_NONCE,
        SERVER_NONCE,
        CLIENT_NONCE + SERVER_NONCE[:-1],
        CLIENT_NONCE + SERVER_NONCE + "x",
        (CLIENT_NONCE + SERVER_NONCE).swapcase(),
    ],
)
def test_a_server_compares_the_whole_nonce(nonce: str) -> None:
    side = server()
    final = to_final(side).replace((CLIENT_NONCE + SERVER_NONCE).encode(), nonce.encode())
    with pytest.raises(AuthenticationError, match="another nonce"):
        side.step(final)


@pytest.mark.parametrize("nonce", ["", "other", CLIENT_NONCE, f"x{CLIENT_NONCE}y", "with space"])
def test_a_client_wants_its_own_nonce_back_and_more(nonce: str) -> None:
    one = client()
    with pytest.raises(AuthenticationError, match="nonce"):
        one.answer(f"r={nonce},s=c2FsdA==,i=4096".encode())


@pytest.mark.parametrize("iterations", ["1", "4095", "1000001", "99999999999999", "-4096", "x", ""])
def test_a_client_does_not_hash_too_little_or_too_much(iterations: str) -> None:
    with pytest.raises(AuthenticationError, match="iterations"):
        client().answer(f"r={CLIENT_NONCE}x,s=c2FsdA==,i={iterations}".encode())


def test_a_client_refuses_a_server_that_does_not_know_the_password() -> None:
    one, other = client(), server()
    challenge = other.step(one.first())
    one.answer(challenge)
    forged = b"v=" + b64encode(bytes(32))
    with pytest.raises(AuthenticationError, match="does not know"):
        one.answer(forged)
    assert not one.is_complete


def test_a_client_tells_what_the_server_refuses_with() -> None:
    with pytest.raises(AuthenticationError, match="invalid-proof"):
        client().answer(b"e=invalid-proof")


@pytest.mark.parametrize(
    ("first", "what"),
    [
        (b"p=tls-unique,,n=user,r=abc", "channel binding"),
        (b"n,,m=x,n=user,r=abc", "extension"),
        (b"n,,n=user,r=abc,m=x", "extension"),
        (b"n,a=admin,n=user,r=abc", "authorization id"),
        (b"n,b=user,n=user,r=abc", "header"),
        (b"x,,n=user,r=abc", "header"),
        (b"n,,n=,r=abc", "empty"),
        (b"n,,n=us=er,r=abc", "escape"),
        (b"n,,r=abc,n=user", "no user name"),
        (b"n,,n=user", "no user name"),
        (b"n,,n=user,r=", "nonce"),
        (b"n,,n=user,r=\x07", "nonce"),
        (b"n,,n=us\0er,r=abc", "zero byte"),
        (b"n,,n=user,r=abc,tokenauth=true", "delegation tokens"),
        (b"\xff\xfe", "UTF-8"),
        (b"", "no header"),
        (b"n,,n=" + b"u" * MAX_MESSAGE_BYTES + b",r=abc", "bytes"),
    ],
)
def test_a_server_refuses_first_messages(first: bytes, what: str) -> None:
    with pytest.raises(AuthenticationError, match=what):
        server().step(first)


def test_a_server_takes_the_name_as_its_own_authorization_id() -> None:
    side = server()
    side.step(b"n,a=user,n=user,r=abc")
    assert side.username == "user"


@pytest.mark.parametrize(
    "change",
    [
        (b"c=biws", b"c=eSws"),  # "y,,": another header than the first message had
        (b"c=biws", b"c=cD10bHMtdW5pcXVlLCw="),
        (b",p=", b",m=x,p="),
        (b"c=biws,", b""),
        (b",p=", b",p=="),
    ],
)
def test_a_server_refuses_last_messages(change: tuple[bytes, bytes]) -> None:
    side = server()
    final = to_final(side).replace(*change)
    with pytest.raises(AuthenticationError):
        side.step(final)
    with pytest.raises(AuthenticationError, match="after the end"):
        side.step(to_final(server()))


def test_a_credential_that_is_removed_meanwhile_lets_nobody_in() -> None:
    known = {"user": PENCIL}
    gone = ScramCredential(SALT, bytes(32), bytes(32), 4096)
    side = ScramServer(SHA_256, lambda name: known.get(name, gone), SERVER_NONCE)
    final = to_final(side)
    del known["user"]
    with pytest.raises(AuthenticationError, match="meanwhile"):
        side.step(final)
    assert not side.is_complete


def test_a_proof_cannot_be_sent_again() -> None:
    recorded = to_final(server())
    side = server(nonce="another")
    side.step(client().first())
    with pytest.raises(AuthenticationError, match="another nonce"):
        side.step(recorded)


def test_a_proof_for_one_mechanism_is_none_for_the_other() -> None:
    strong = ScramCredential.from_password(SHA_512, "pencil", salt=SALT)
    side = ScramServer(SHA_512, lambda _: strong, SERVER_NONCE)
    one = client()
    answer = one.answer(side.step(one.first()))
    assert answer is not None
    with pytest.raises(AuthenticationError):
        side.step(answer)


def test_a_server_draws_its_nonce_anew() -> None:
    answers = {ScramServer(SHA_256, lambda _: PENCIL).step(client().first()) for _ in range(20)}
    assert len(answers) == 20


def test_the_text_of_a_credential_is_that_of_kafka() -> None:
    text = PENCIL.encode()
    assert text.startswith("salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=")
    assert text.endswith(",iterations=4096")
    assert ScramCredential.decode(text) == PENCIL
    assert ScramCredential.decode(",".join(reversed(text.split(",")))) == PENCIL


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt=c2FsdA==",
        "salt=c2FsdA==,stored_key=AA==,server_key=AA==,iterations=many",
        "salt=c2FsdA==,stored_key=AA==,server_key=AA==,iterations=0",
        "salt=,stored_key=AA==,server_key=AA==,iterations=4096",
        "salt=c2FsdA==,stored_key=!!,server_key=AA==,iterations=4096",
        "salt=c2FsdA==,stored_key=AA==,server_key=AA==,iterations=4096,more=1",
    ],
)
def test_other_texts_are_no_credentials(text: str) -> None:
    with pytest.raises(ValueError, match="not a SCRAM credential") as raised:
        ScramCredential.decode(text)
    assert "AA==" not in str(raised.value)


def test_a_credential_does_not_show_its_keys() -> None:
    shown = f"{PENCIL!r} {PENCIL}"
    assert "4096" in shown
    for secret in (PENCIL.salt, PENCIL.stored_key, PENCIL.server_key):
        assert repr(secret) not in shown
        assert b64encode(secret).decode() not in shown
