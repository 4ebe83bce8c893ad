"""JSON Web Tokens of OAUTHBEARER: which are accepted, and of whom.

A token must be signed by a key of the key set, with an asymmetric algorithm of the list that fits
the key: never with ``none``, never with HMAC, for which the public key would be the secret. Of its
header only ``alg``, ``kid`` and ``typ`` count: keys and addresses in it are ignored. Issuer,
audience and times are checked as RFC 7519 says; a token without an end is refused.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

import jwt

from qbus.errors import AuthenticationError
from qbus.security.sasl import MAX_TOKEN_BYTES

ASYMMETRIC: Final = frozenset(
    {
        "RS256",
        "RS384",
        "RS512",
        "PS256",
        "PS384",
        "PS512",
        "ES256",
        "ES384",
        "ES512",
        "EdDSA",
    }
)
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_MIN_RSA_BITS: Final = 2048
_MAX_NAME: Final = 1024
_END_OF_TIME: Final = 1 << 40  # seconds since 1970; whatever a token says, it is a number to add to
_MAX_KID: Final = 256
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_MAX_KEYS: Final = 100
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


class TokenRules(NamedTuple):
    """What a token must say. Empty audiences and an empty issuer stand for any."""

    audiences: tuple[str, ...] = ()
    issuer: str = ""
    skew_s: int = 30
    algorithms: frozenset[str] = ASYMMETRIC
    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scopes: tuple[str, ...] = ()


class Token(NamedTuple):
    """What a valid token says: who, until when (Unix seconds), and with which scopes."""

    principal: str
    expires_at: float
    scopes: frozenset[str]


class InsufficientScope(AuthenticationError):  # noqa: N818 - what it is
    """The token is valid and lacks a scope."""


class UnknownKey(AuthenticationError):  # noqa: N818 - what it is
    """The token names a key that the key set does not have, or not yet."""


class SigningKey(NamedTuple):
    """A public key of a key set, and what it may be used for (RFC 7517)."""

    kid: str | None
    type: str
    curve: str | None
    algorithm: str | None
    key: Any

    def fits(self, algorithm: str) -> bool:
        """Whether it may have signed with this algorithm: by its type, curve and size."""
        if self.algorithm not in {None, algorithm}:
            return False
        if algorithm == "EdDSA":
            return self.type == "OKP"
        if algorithm in _CURVES:
            return self.type == "EC" and self.curve == _CURVES[algorithm]
        return self.type == "RSA" and bool(self.key.key_size >= _MIN_RSA_BITS)


class Keys(Protocol):
    """The keys that sign tokens, as they are known now."""

    def find(self, kid: str | None) -> list[SigningKey]:
        """The keys with this id; all, if the token names none."""


class TokenVerifier:
    """Decides about tokens. It does no IO: the keys are those that are known already."""

    def __init__(self, rules: TokenRules, keys: Keys) -> None:
        """Raise ValueError for an algorithm that is not asymmetric."""
        if not rules.algorithms or not rules.algorithms <= ASYMMETRIC:
            raise ValueError("algorithms of tokens: expected asymmetric ones")
        self._rules = rules
        self._keys = keys
        required = ["exp"] + (["aud"] if rules.audiences else [])
        self._options: dict[str, Any] = {
            "require": required + (["iss"] if rules.issuer else []),
            "verify_signature": True,
            "verify_aud": bool(rules.audiences),
            "verify_iss": bool(rules.issuer),
            "verify_sub": False,  # the principal's claim is checked here
            "verify_jti": False,
        }

    def verify(self, token: str) -> Token:
        """Return what a valid token says.

        Raises:
            UnknownKey: none of the known keys is the one; a newer key set may have it.
            InsufficientScope: a scope is missing.
            AuthenticationError: it is not valid. No message quotes the token.
        """
        algorithm, kid = self._header(token)
        claims = self._claims(token, algorithm, kid)
        scopes = _scopes(claims.get(self._rules.scope_claim))
        missing = set(self._rules.required_scopes) - scopes
        if missing:
            raise InsufficientScope("a token without a scope that is required")
        expires_at = min(int(claims["exp"]), _END_OF_TIME)
        return Token(self._principal(claims), expires_at, scopes)

    def _header(self, token: str) -> tuple[str, str | None]:
        if len(token) > MAX_TOKEN_BYTES:
            raise AuthenticationError(f"a token of {len(token)} characters")
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise AuthenticationError("a token that is not a JSON Web Token") from None
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._rules.algorithms:
            raise AuthenticationError("a token with a signature algorithm that is not allowed")
        if kid is not None and (not isinstance(kid, str) or len(kid) > _MAX_KID):
            raise AuthenticationError("a token with a malformed key id")
        if "crit" in header:
            raise AuthenticationError("a token with an extension that is not supported")
        return algorithm, kid

    def _claims(self, token: str, algorithm: str, kid: str | None) -> dict[str, Any]:
        rules, last = self._rules, "no key for its algorithm"
        keys = [key for key in self._keys.find(kid) if key.fits(algorithm)]
        if not keys:
            raise UnknownKey("a token that is signed with an unknown key")
        for key in keys:
            try:
                return jwt.decode(
                    token,
                    key.key,
                    algorithms=[algorithm],
                    audience=rules.audiences or None,
                    issuer=rules.issuer or None,
                    leeway=rules.skew_s,
                    options=self._options,  # type: ignore[arg-type]  # one of PyJWT's is newer
                )
            except jwt.InvalidSignatureError:
                last = "a wrong signature"
            except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
                raise AuthenticationError(f"a token that is refused: {_reason(error)}") from None
        raise AuthenticationError(f"a token with {last}")

    def _principal(self, claims: Mapping[str, Any]) -> str:
        name = claims.get(self._rules.principal_claim)
        if not isinstance(name, str) or not name.strip() or len(name) > _MAX_NAME:
            raise AuthenticationError("a token that does not name its user")
        if _CONTROL.search(name):  # which would forge lines of logs
            raise AuthenticationError("a token whose user's name has control characters")
        return name


def _reason(error: Exception) -> str:
    for kind, text in _REASONS:
        if isinstance(error, kind):
            return text
    return "it is malformed"


_REASONS: Final = (
    (jwt.ExpiredSignatureError, "it has expired"),
    (jwt.ImmatureSignatureError, "it is not valid yet"),
    (jwt.InvalidIssuedAtError, "it was issued in the future"),
    (jwt.InvalidAudienceError, "it is for another audience"),
    (jwt.InvalidIssuerError, "it is from another issuer"),
    (jwt.MissingRequiredClaimError, "a claim is missing"),
)


def _scopes(claim: object) -> frozenset[str]:
    if isinstance(claim, str):
        return frozenset(claim.split())
    if isinstance(claim, list):
        return frozenset(item for item in claim if isinstance(item, str))
    return frozenset()


def read_key_set(document: object) -> list[SigningKey]:
    """The public keys of a parsed key set that sign; all others are left out.

    Raises:
        ValueError: it is no key set, or a very long one.
    """
    found = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(found, list) or len(found) > _MAX_KEYS:
        raise ValueError(f"expected a key set with at most {_MAX_KEYS} keys")
    keys = (_read_key(item) for item in found if isinstance(item, dict))
    return [key for key in keys if key is not None]


def _read_key(item: dict[str, Any]) -> SigningKey | None:
    kid, kind, algorithm = item.get("kid"), item.get("kty"), item.get("alg")
    if not isinstance(kind, str) or kind not in {"RSA", "EC", "OKP"}:
        return None
    if item.get("use", "sig") != "sig":
        return None
    if algorithm is not None and (not isinstance(algorithm, str) or algorithm not in ASYMMETRIC):
        return None
    public = {name: value for name, value in item.items() if name not in _PRIVATE}
    try:
        key = jwt.PyJWK.from_dict(public).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    return SigningKey(kid if isinstance(kid, str) else None, kind, item.get("crv"), algorithm, key)
