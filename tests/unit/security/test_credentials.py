"""The credentials of users, and what stands in for users that do not exist."""

from qbus.security.credentials import Credentials, credentials_of
from qbus.security.scram import ScramCredential, ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
SECRET = bytes(32)


def credential(iterations: int = 4096, salt: bytes = b"0123456789") -> ScramCredential:
    return ScramCredential(salt, b"s" * 32, b"k" * 32, iterations)


def test_a_node_has_credentials_beside_quotas() -> None:
    found = credentials_of(
        {"SCRAM-SHA-256": credential().encode(), "producer_byte_rate": "1", "SCRAM-SHA-512": "?"}
    )
    assert found == {SHA_256: credential()}


def test_users_come_change_and_go() -> None:
    credentials = Credentials(SECRET)
    credentials.put("alice", {SHA_256: credential()})
    assert credentials.find(SHA_256, "alice") == credential()
    assert credentials.find(SHA_512, "alice") is None
    credentials.put("alice", {SHA_512: credential()})
    assert credentials.find(SHA_256, "alice") is None
    assert list(credentials.users()) == ["alice"]
    credentials.put("alice", {})
    assert credentials.find(SHA_512, "alice") is None
    assert list(credentials.users()) == []


def test_users_of_the_configuration_are_stronger_than_the_store() -> None:
    credentials = Credentials(SECRET)
    credentials.put_own("broker", "secret")
    credentials.put("broker", {SHA_256: credential()})
    for mechanism in ScramMechanism:
        own = credentials.find(mechanism, "broker")
        assert own is not None
        salted = mechanism.salted_password(b"secret", own.salt, own.iterations)
        assert own.matches_salted(mechanism, salted)
    assert list(credentials.users()) == ["broker"]
    assert credentials.is_own("broker")


def test_a_user_that_does_not_exist_has_the_same_salt_each_time_on_each_broker() -> None:
    one, other = Credentials(SECRET), Credentials(SECRET)
    assert one.find_or_fake(SHA_256, "nobody") == other.find_or_fake(SHA_256, "nobody")
    salts = {one.find_or_fake(SHA_256, f"user{number}").salt for number in range(50)}
    salts |= {one.find_or_fake(SHA_512, f"user{number}").salt for number in range(50)}
    assert len(salts) == 100
    elsewhere = Credentials(b"another secret").find_or_fake(SHA_256, "nobody")
    assert elsewhere.salt != one.find_or_fake(SHA_256, "nobody").salt


def test_a_user_that_does_not_exist_looks_like_most_that_do() -> None:
    credentials = Credentials(SECRET)
    for number in range(3):
        credentials.put(f"user{number}", {SHA_256: credential(8192, b"x" * 100)})
    credentials.put("other", {SHA_256: credential(16384)})
    fake = credentials.find_or_fake(SHA_256, "nobody")
    assert (len(fake.salt), fake.iterations) == (100, 8192)
    credentials.put("user0", {})
    credentials.put("user1", {})
    credentials.put("user2", {})
    fake = credentials.find_or_fake(SHA_256, "nobody")
    assert (len(fake.salt), fake.iterations) == (10, 16384)
    assert credentials.most_iterations(SHA_256) == 16384
    assert credentials.most_iterations(SHA_512) == 4096


def test_credentials_are_not_shown() -> None:
    credentials = Credentials(b"the secret")
    credentials.put("alice", {SHA_256: credential()})
    assert repr(credentials) == "Credentials(1 users)"
