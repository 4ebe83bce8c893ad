"""Certificates and tokens for tests: an authority that signs both."""

import json
import time
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from qbus.security.trial_ca import CA_CERTIFICATE, CA_KEY, TrialAuthority

ISSUER: Final = "https://issuer.test"
AUDIENCE: Final = "qbus-test"
_KEY_ID: Final = "test-key"


class Authority:
    """Signs certificates of brokers and users, in files of one directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.ca = directory / CA_CERTIFICATE
        self._authority = TrialAuthority.create(self.ca, directory / CA_KEY)

    def certificate(
        self, name: str, hosts: tuple[str, ...] = (), as_file: str = ""
    ) -> tuple[Path, Path]:
        """Files of a new certificate and of its key; those of that name are replaced."""
        chain, key = self._authority.issue(name, hosts)
        paths = (
            self.directory / f"{as_file or name}.pem",
            self.directory / f"{as_file or name}.key",
        )
        for path, content in zip(paths, (chain, key), strict=True):
            fresh = path.with_suffix(path.suffix + ".new")
            fresh.touch(mode=0o600)
            fresh.write_bytes(content)
            fresh.replace(path)
        return paths


class Issuer:
    """Signs tokens, and says by which key in a file (JWKS)."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        public |= {"kid": _KEY_ID, "use": "sig", "alg": "RS256"}
        self.keys = directory / "jwks.json"
        self.keys.write_text(json.dumps({"keys": [public]}))

    def token(self, user: str, seconds: float = 3600, **claims: Any) -> str:
        """A token of a user that is valid for so long."""
        now = int(time.time())
        body = {
            "sub": user,
            "iss": ISSUER,
            "aud": AUDIENCE,
            "iat": now,
            "exp": int(now + seconds),
            "scope": "kafka",
            **claims,
        }
        return jwt.encode(body, self._key, algorithm="RS256", headers={"kid": _KEY_ID})

    def token_file(self, user: str, seconds: float = 3600) -> Path:
        """A file with such a token."""
        path = self._directory / f"{user}.jwt"
        path.touch(mode=0o600)
        path.write_text(self.token(user, seconds))
        return path
