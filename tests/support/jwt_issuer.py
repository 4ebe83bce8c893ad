"""An issuer of JSON Web Tokens, with keys of its own."""

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://issuer.example"
AUDIENCE = "qbus"


def rsa_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    """A key, the same for the same number."""
    return _rsa_key(number, bits)


@cache
def _rsa_key(_number: int, bits: int) -> rsa.RSAPrivateKey:
    """Making one takes a moment, so tests share them."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def public_jwk(key: Any, kid: str | None, **more: str) -> dict[str, Any]:
    """The public half of a key, as a key set has it."""
    kinds: dict[type, Any] = {
        rsa.RSAPrivateKey: RSAAlgorithm,
        ec.EllipticCurvePrivateKey: ECAlgorithm,
        ed25519.Ed25519PrivateKey: OKPAlgorithm,
    }
    (algorithm,) = (found for kind, found in kinds.items() if isinstance(key, kind))
    made: dict[str, Any] = json.loads(algorithm.to_jwk(key.public_key()))
    made.pop("key_ops", None)
    return {**made, **({"kid": kid} if kid else {}), **more}


def public_pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def claims(**changes: Any) -> dict[str, Any]:
    """The claims of a good token; None takes one away."""
    now = int(time.time())
    made = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "iat": now,
        "exp": now + 600,
        "scope": "produce consume",
        **changes,
    }
    return {name: value for name, value in made.items() if value is not None}


def token(
    key: Any = None,
    algorithm: str = "RS256",
    *,
    kid: str | None = "one",
    header: Mapping[str, Any] | None = None,
    **changes: Any,
) -> str:
    """A signed token; ``changes`` are to the claims."""
    headers = {**({"kid": kid} if kid else {}), **(header or {})}
    return jwt.encode(claims(**changes), key or rsa_key(), algorithm=algorithm, headers=headers)


def forged(header: Mapping[str, Any], signature: bytes = b"", **changes: Any) -> str:
    """A token put together by hand."""
    parts = (json.dumps(header).encode(), json.dumps(claims(**changes)).encode(), signature)
    return ".".join(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def write_key_set(path: Path, *keys: Mapping[str, Any]) -> str:
    """Write a key set; return its address."""
    path.write_text(json.dumps({"keys": list(keys)}))
    return path.as_uri()
