"""Users of a test, each with a topic and a group that it may use."""

import itertools
from collections.abc import Iterable
from typing import Protocol

from tests.compat.clients.security import Security

from .matrix.rules import Kind, Operation, Permission, Rule
from .matrix.world import Admin
from .secrets import known_secret

CERTIFICATE = "certificate"
_numbers = itertools.count()


class Provers(Protocol):
    """What makes proofs of who one is."""

    def security(self, mechanism: str | None, user: str, password: str = "") -> Security:
        """How a user proves who it is; without a mechanism, by a certificate."""


class Someone:
    """A fresh user; what it may do lies in a topic and a group of its own."""

    def __init__(self, broker: Provers, admin: Admin, topics: Iterable[str] = ()) -> None:
        self.name = f"user-{next(_numbers)}"
        self.topic = f"topic-of-{self.name}"
        self._broker, self._admin = broker, admin
        self.change_password()
        admin.create_topics([self.topic, *topics])
        self.allow(Kind.TOPIC, self.topic)
        self.allow(Kind.GROUP, self.name)

    @property
    def principal(self) -> str:
        """As rules call it."""
        return f"User:{self.name}"

    def change_password(self) -> str:
        """Give it a new one, and return that."""
        self.password = known_secret(f"of-{self.name}")
        self._admin.set_passwords({self.name: self.password})
        return self.password

    def allow(self, kind: Kind, name: str, operation: Operation = Operation.ALL) -> None:
        """Allow what is done to a resource."""
        self._admin.allow([(self.principal, Rule(Permission.ALLOW, operation, kind, name))])

    def take_away(self, kind: Kind, name: str, operation: Operation = Operation.ALL) -> None:
        """Remove such a rule."""
        self._admin.remove([(self.principal, Rule(Permission.ALLOW, operation, kind, name))])

    def remove(self) -> None:
        """Take all its credentials."""
        self._admin.remove_users([self.name])

    def security(self, mechanism: str, password: str = "") -> Security:
        """How it proves who it is, or tries to with another password."""
        named = None if mechanism == CERTIFICATE else mechanism
        return self._broker.security(named, self.name, password or self.password)
