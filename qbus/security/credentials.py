"""The SCRAM credentials of users, and those that stand in for users that do not exist.

The metadata store keeps a user's credentials beside its quotas, as Kafka did:
``/config/users/<name>`` with ``{"SCRAM-SHA-256": "salt=...,stored_key=...,..."}``.
"""

import hmac
from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from .scram import MIN_ITERATIONS, ScramCredential, ScramMechanism

_SALT_BYTES: Final = 24
_NOTHING: Final[Mapping[ScramMechanism, ScramCredential]] = MappingProxyType({})


def credentials_of(config: Mapping[str, str]) -> dict[ScramMechanism, ScramCredential]:
    """The credentials in a user's node; what is malformed is left out, so nobody gets in by it."""
    found = {}
    for mechanism in ScramMechanism:
        text = config.get(mechanism.mechanism)
        if text is None:
            continue
        try:
            found[mechanism] = ScramCredential.decode(text)
        except ValueError:
            continue
    return found


class Credentials:
    """The credentials of all users, in memory.

    ``own`` are those of the broker's own configuration; they are stronger than what the store has.
    """

    def __init__(self, secret: bytes) -> None:
        """``secret`` is the cluster's: from it follow the salts of users that do not exist."""
        self._secret = secret
        self._users: dict[str, Mapping[ScramMechanism, ScramCredential]] = {}
        self._own: dict[str, Mapping[ScramMechanism, ScramCredential]] = {}
        self._shapes: dict[ScramMechanism, Counter[tuple[int, int]]] = {
            mechanism: Counter() for mechanism in ScramMechanism
        }

    def __repr__(self) -> str:
        return f"Credentials({len(self._users)} users)"

    def put_own(self, user: str, password: str) -> None:
        """Add a user of this broker's configuration, who may log in by every mechanism."""
        self._own[user] = {
            mechanism: ScramCredential.from_password(
                mechanism, password, salt=self._fake_salt(mechanism, user, _SALT_BYTES)
            )
            for mechanism in ScramMechanism
        }

    def put(self, user: str, found: Mapping[ScramMechanism, ScramCredential]) -> None:
        """Replace what the store has of a user; nothing means that it has none any more."""
        for mechanism, credential in self._users.pop(user, _NOTHING).items():
            shapes, shape = self._shapes[mechanism], _shape(credential)
            shapes[shape] -= 1
            if not shapes[shape]:
                del shapes[shape]
        if found:
            self._users[user] = dict(found)
            for mechanism, credential in found.items():
                self._shapes[mechanism][_shape(credential)] += 1

    def is_own(self, user: str) -> bool:
        """Whether the user is one of this broker's configuration."""
        return user in self._own

    def users(self) -> Iterator[str]:
        """The users that the store has credentials of."""
        return iter(self._users)

    def stored(self, user: str) -> Mapping[ScramMechanism, ScramCredential]:
        """What the store has of a user."""
        return self._users.get(user, _NOTHING)

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """A user's credential, if there is one."""
        return self._own.get(user, self._users.get(user, _NOTHING)).get(mechanism)

    def find_or_fake(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        """A user's credential; else one that no password fits, and that looks like the others.

        It costs the same whether there is one or not. The fake one is the same each time, on each
        broker: its salt follows from the cluster's secret and the name, its length and iterations
        are those that most users have.
        """
        length, iterations = self._common_shape(mechanism)
        keys = self._derive(mechanism, b"keys", user)
        fake = ScramCredential(
            self._fake_salt(mechanism, user, length),
            mechanism.digest(keys),
            mechanism.digest(keys + b"server"),
            iterations,
        )
        return self.find(mechanism, user) or fake

    def most_iterations(self, mechanism: ScramMechanism) -> int:
        """The most iterations that any user has."""
        return max((shape[1] for shape in self._shapes[mechanism]), default=MIN_ITERATIONS)

    def _common_shape(self, mechanism: ScramMechanism) -> tuple[int, int]:
        shapes = self._shapes[mechanism]
        if not shapes:
            return _SALT_BYTES, MIN_ITERATIONS
        most = max(shapes.values())
        return min(shape for shape, count in shapes.items() if count == most)

    def _fake_salt(self, mechanism: ScramMechanism, user: str, length: int) -> bytes:
        salt = self._derive(mechanism, b"salt", user)
        return (salt * (length // len(salt) + 1))[:length]

    def _derive(self, mechanism: ScramMechanism, purpose: bytes, user: str) -> bytes:
        name = mechanism.mechanism.encode()
        text = b"\0".join((purpose, name, user.encode("utf-8", "surrogatepass")))
        return hmac.digest(self._secret, text, "sha512")


def _shape(credential: ScramCredential) -> tuple[int, int]:
    return len(credential.salt), credential.iterations
