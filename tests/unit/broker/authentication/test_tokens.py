"""Which tokens are accepted: what RFC 7519 and RFC 8725 say, and what attackers send."""

import hashlib
import hmac
import json
import time
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import RSAAlgorithm

from qbus.broker.authentication.tokens import (
    ASYMMETRIC,
    InsufficientScope,
    SigningKey,
    TokenRules,
    TokenVerifier,
    UnknownKey,
    read_key_set,
)
from qbus.errors import AuthenticationError
from qbus.security.sasl import MAX_TOKEN_BYTES
from tests.support.jwt_issuer import (
    AUDIENCE,
    ISSUER,
    ec_key,
    ed_key,
    forged,
    public_jwk,
    public_pem,
    rsa_key,
    token,
)

RULES = TokenRules(audiences=(AUDIENCE, "other"), issuer=ISSUER)


class KnownKeys:
    def __init__(self, *keys: dict[str, Any]) -> None:
        self.keys = read_key_set({"keys": list(keys)})

    def find(self, kid: str | None) -> list[SigningKey]:
        return [key for key in self.keys if kid is None or key.kid == kid]


KEYS = KnownKeys(
    public_jwk(rsa_key(), "one"), public_jwk(ec_key(), "curve"), public_jwk(ed_key(), "edwards")
)


def verifier(rules: TokenRules = RULES) -> TokenVerifier:
    return TokenVerifier(rules, KEYS)


def refused(made: str, why: str, rules: TokenRules = RULES) -> None:
    with pytest.raises(AuthenticationError, match=why) as raised:
        verifier(rules).verify(made)
    assert len(made) < 20 or made[:20] not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_good_token_names_its_user_its_end_and_its_scopes() -> None:
    found = verifier().verify(token())
    assert found.principal == "alice"
    assert time.time() < found.expires_at <= time.time() + 600
    assert found.scopes == {"produce", "consume"}


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [
        (rsa_key(), "RS256", "one"),
        (rsa_key(), "RS512", "one"),
        (rsa_key(), "PS256", "one"),
        (ec_key(), "ES256", "curve"),
        (ed_key(), "EdDSA", "edwards"),
        (rsa_key(), "RS256", None),
        (ec_key(), "ES256", None),
    ],
)
def test_asymmetric_algorithms(key: Any, algorithm: str, kid: str | None) -> None:
    assert verifier().verify(token(key, algorithm, kid=kid)).principal == "alice"


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", None, 1, ["RS256"]])
def test_a_token_without_a_signature_is_refused(algorithm: object) -> None:
    refused(forged({"alg": algorithm, "kid": "one"}), "not allowed")
    refused(forged({"alg": algorithm, "kid": "one"}, b"x"), "not allowed")


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_hmac_with_the_public_key_is_refused(algorithm: str) -> None:
    unsigned = forged({"alg": algorithm, "typ": "JWT", "kid": "one"}).rstrip(".")
    jwk = json.dumps(public_jwk(rsa_key(), "one")).encode()
    for secret in (public_pem(rsa_key()), public_pem(rsa_key()).strip(), jwk, b""):
        name = f"sha{algorithm[2:]}"
        signature = hmac.digest(secret, unsigned.encode(), getattr(hashlib, name))
        made = f"{unsigned}.{urlsafe_b64encode(signature).rstrip(b'=').decode()}"
        refused(made, "not allowed")


@pytest.mark.parametrize("algorithms", [set(), {"none"}, {"HS256"}, {"RS256", "HS256"}])
def test_no_configuration_allows_symmetric_algorithms(algorithms: set[str]) -> None:
    with pytest.raises(ValueError, match="asymmetric"):
        TokenVerifier(RULES._replace(algorithms=frozenset(algorithms)), KEYS)


def test_an_algorithm_that_is_not_configured_is_refused() -> None:
    only_curves = RULES._replace(algorithms=frozenset({"ES256"}))
    refused(token(), "not allowed", only_curves)
    assert verifier(only_curves).verify(token(ec_key(), "ES256", kid="curve"))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"exp": 1}, "expired"),
        ({"exp": None}, "claim is missing"),
        ({"exp": "soon"}, "refused"),
        ({"exp": float("inf")}, "refused"),
        ({"nbf": 10**11}, "not valid yet"),
        ({"iat": 10**11}, "future|not valid yet"),
        ({"aud": "elsewhere"}, "audience"),
        ({"aud": ["elsewhere", "nowhere"]}, "audience"),
        ({"aud": None}, "claim is missing"),
        ({"aud": 7}, "audience"),
        ({"iss": "https://evil.example"}, "issuer"),
        ({"iss": f"{ISSUER}/"}, "issuer"),
        ({"iss": None}, "claim is missing"),
        ({"sub": None}, "name its user"),
        ({"sub": ""}, "name its user"),
        ({"sub": "  "}, "name its user"),
        ({"sub": 7}, "name its user"),
        ({"sub": ["alice"]}, "name its user"),
        ({"sub": "a" * 2000}, "name its user"),
    ],
)
def test_claims_that_are_refused(changes: dict[str, Any], why: str) -> None:
    refused(token(**changes), why)


@pytest.mark.parametrize("exp", [10**12, 10**400, 1e300])
def test_a_token_that_does_not_end_for_ages(exp: float) -> None:
    assert 10**12 <= verifier().verify(token(exp=exp)).expires_at < 10**13


def test_clocks_may_differ_a_little() -> None:
    now = int(time.time())
    assert verifier().verify(token(exp=now - 20))
    assert verifier().verify(token(nbf=now + 20, iat=now + 20))
    refused(token(exp=now - 40), "expired")
    refused(token(exp=now - 2), "expired", RULES._replace(skew_s=0))


def test_one_audience_of_several_is_enough() -> None:
    assert verifier().verify(token(aud=["elsewhere", "other"]))


def test_without_expectations_any_audience_and_issuer_do() -> None:
    anything = TokenRules()
    assert verifier(anything).verify(token(aud=None, iss=None))
    assert verifier(anything).verify(token(aud="elsewhere", iss="https://evil.example"))


def test_the_user_may_be_in_another_claim() -> None:
    rules = RULES._replace(principal_claim="client_id")
    assert verifier(rules).verify(token(client_id="service")).principal == "service"
    refused(token(), "name its user", rules)


@pytest.mark.parametrize("scope", ["produce admin", ["admin", "produce", 7]])
def test_required_scopes(scope: object) -> None:
    rules = RULES._replace(required_scopes=("produce", "admin"))
    assert verifier(rules).verify(token(scope=scope)).principal == "alice"
    for lacking in ("produce", ["produce"], None, 7):
        with pytest.raises(InsufficientScope):
            verifier(rules).verify(token(scope=lacking))


def test_a_changed_token_is_refused() -> None:
    header, body, signature = token().split(".")
    other = forged({"alg": "RS256", "kid": "one"}, sub="admin").split(".")[1]
    refused(f"{header}.{other}.{signature}", "signature")
    refused(f"{header}.{body}.{signature[:-4]}AAAA", "signature")
    refused(f"{header}.{body}.", "signature")


def test_a_token_of_another_key_with_a_known_id_is_refused() -> None:
    refused(token(rsa_key(1)), "signature")


def test_a_key_of_another_kind_is_not_tried() -> None:
    with pytest.raises(UnknownKey):
        verifier().verify(token(rsa_key(), kid="curve"))


@pytest.mark.parametrize(
    "kid", ["unknown", "../../../../dev/null", "one' OR '1'='1", "ONE", " one"]
)
def test_an_unknown_key_id_finds_nothing(kid: str) -> None:
    with pytest.raises(UnknownKey):
        verifier().verify(token(kid=kid))


def test_a_malformed_key_id_is_refused() -> None:
    for kid in (7, ["one"], {"a": "b"}):
        refused(forged({"alg": "RS256", "kid": kid}), "refused|malformed|not a JSON")
    refused(forged({"alg": "RS256", "kid": "k" * 300}), "malformed key id")


def test_keys_in_the_header_count_for_nothing() -> None:
    mine = public_jwk(rsa_key(1), "one")
    for header in (
        {"jwk": mine},
        {"jku": "https://evil.example/keys"},
        {"x5u": "https://evil.example/chain"},
        {"x5c": ["MIIB"]},
    ):
        refused(token(rsa_key(1), header=header), "signature")


def test_extensions_that_must_be_understood_are_refused() -> None:
    refused(token(header={"crit": ["b64"], "b64": False}), "extension|not a JSON")


@pytest.mark.parametrize(
    "made",
    ["", "a", "a.b", "a.b.c", "..", "a.b.c.d.e", "\0.\0.\0", "é.é.é", "e30.e30.e30", "bnVsbA.e30."],
)
def test_other_texts_are_no_tokens(made: str) -> None:
    refused(made, "not a JSON Web Token|not allowed")


def test_a_huge_token_is_refused_unread() -> None:
    refused("a" * (MAX_TOKEN_BYTES + 1), f"{MAX_TOKEN_BYTES + 1} characters")


def test_a_deeply_nested_token_is_refused() -> None:
    deep = urlsafe_b64encode(b'{"alg":' + b"[" * 9000).rstrip(b"=").decode()
    refused(f"{deep}.e30.AA", "not a JSON")
    header, _, signature = token().split(".")
    body = urlsafe_b64encode(b"[" * 9000).rstrip(b"=").decode()
    refused(f"{header}.{body}.{signature}", "signature|refused")


@given(st.text(max_size=300))
def test_any_text_is_refused(made: str) -> None:
    with pytest.raises(AuthenticationError):
        verifier().verify(made)


def test_a_key_set_keeps_public_keys_for_signatures_alone() -> None:
    good = public_jwk(rsa_key(), "one")
    keys = read_key_set(
        {
            "keys": [
                good,
                {"kty": "oct", "kid": "secret", "k": "AAAA"},
                {**good, "kid": "encrypts", "use": "enc"},
                {**good, "kid": "hmac", "alg": "HS256"},
                {"kty": "RSA", "kid": "broken"},
                {"kty": "XYZ"},
                {"kty": {"RSA": 1}},
                {**good, "kid": "several", "alg": ["RS256"]},
                7,
            ]
        }
    )
    assert [key.kid for key in keys] == ["one"]


def test_a_private_key_in_a_key_set_is_read_as_a_public_one() -> None:
    private = json.loads(RSAAlgorithm.to_jwk(rsa_key()))
    (key,) = read_key_set({"keys": [{**private, "kid": "one"}]})
    assert not hasattr(key.key, "private_numbers")


@pytest.mark.parametrize("document", [None, [], {}, {"keys": 7}, {"keys": [{}] * 101}])
def test_other_documents_are_no_key_sets(document: object) -> None:
    with pytest.raises(ValueError, match="key set"):
        read_key_set(document)


def test_short_rsa_keys_and_other_curves_do_not_fit() -> None:
    (short,) = read_key_set({"keys": [public_jwk(rsa_key(2, 1024), "short")]})
    assert not short.fits("RS256")
    (curve,) = read_key_set({"keys": [public_jwk(ec_key(), "curve")]})
    assert curve.fits("ES256")
    assert not curve.fits("ES384")
    assert not curve.fits("RS256")
    (fixed,) = read_key_set({"keys": [public_jwk(rsa_key(), "one", alg="RS512")]})
    assert fixed.fits("RS512")
    assert not fixed.fits("RS256")
    assert all(not curve.fits(algorithm) for algorithm in ASYMMETRIC - {"ES256"})
