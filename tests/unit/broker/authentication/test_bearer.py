"""Tokens of a listener: keys that are replaced under way, and what a client is told."""

from pathlib import Path

import pytest

from qbus.broker.authentication.bearer import BearerTokens
from qbus.broker.authentication.exchange import TokenRefused
from qbus.broker.authentication.key_set import KeySet
from qbus.broker.authentication.tokens import TokenRules
from tests.support.jwt_issuer import AUDIENCE, ISSUER, public_jwk, rsa_key, token, write_key_set

RULES = TokenRules(audiences=(AUDIENCE,), issuer=ISSUER, required_scopes=("produce",))


class World:
    """An issuer's key set in a file, and a broker's clock."""

    def __init__(self, path: Path) -> None:
        self.path = path / "keys.json"
        self.now = 0.0
        self.reads = 0
        self.publish("one", 0)
        keys = KeySet(
            self.path.as_uri(),
            refresh_s=3600.0,
            retry_s=10.0,
            now=lambda: self.now,
            read=self.read,
        )
        self.tokens = BearerTokens(RULES, keys, frozenset({"broker"}))

    def publish(self, kid: str, number: int) -> None:
        write_key_set(self.path, public_jwk(rsa_key(number), kid))

    def read(self, _url: str) -> bytes:
        self.reads += 1
        return self.path.read_bytes()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_token_before_the_first_reading_has_the_keys_read(world: World) -> None:
    identity = await world.tokens.verify(token())
    assert identity.name == "alice"
    assert identity.expires_at is not None


async def test_a_new_key_is_found_without_waiting_for_the_refresh(world: World) -> None:
    await world.tokens.look_after()
    world.publish("two", 1)
    world.now = 11.0
    assert (await world.tokens.verify(token(rsa_key(1), kid="two"))).name == "alice"
    with pytest.raises(TokenRefused):
        await world.tokens.verify(token())  # of the key that was withdrawn
    assert world.reads == 2


async def test_made_up_keys_do_not_have_the_issuer_asked_all_the_time(world: World) -> None:
    await world.tokens.look_after()
    for number in range(100):
        world.now += 0.1
        with pytest.raises(TokenRefused, match="unknown key"):
            await world.tokens.verify(token(rsa_key(1), kid=f"made up {number}"))
    assert world.reads <= 3


async def test_what_is_refused_has_a_status(world: World) -> None:
    for made, status, scope in (
        (token(exp=1), "invalid_token", ""),
        (token(scope="consume"), "insufficient_scope", "produce"),
        (token(sub="broker"), "invalid_token", ""),
        ("nonsense", "invalid_token", ""),
    ):
        with pytest.raises(TokenRefused) as raised:
            await world.tokens.verify(made)
        assert (raised.value.status, raised.value.scope) == (status, scope)
