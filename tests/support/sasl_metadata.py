"""Users in the store, as the metadata cache has them, set by a test."""

from collections.abc import Mapping

from qbus.broker.metadata.cache import Subscriber
from qbus.broker.metadata.image import UserConfigChanged
from qbus.security.scram import ScramCredential, ScramMechanism


class Users:
    """What authentication reads of the metadata cache."""

    def __init__(self) -> None:
        self.users: dict[str, Mapping[str, str]] = {}
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber, *, is_first: bool = False) -> None:
        self._subscribers.insert(0 if is_first else len(self._subscribers), subscriber)

    def put(self, user: str, *mechanisms: ScramMechanism, password: str = "secret") -> None:
        """Give a user credentials of these mechanisms, and take the others away."""
        config = {
            mechanism.mechanism: ScramCredential.from_password(mechanism, password).encode()
            for mechanism in mechanisms
        }
        self.users[user] = config
        if not config:
            del self.users[user]
        for subscriber in self._subscribers:
            subscriber([UserConfigChanged(user)])
