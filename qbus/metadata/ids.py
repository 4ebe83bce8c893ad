"""Ids of clusters and topics: 16 random bytes, written as in Kafka."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from os import urandom

ID_SIZE = 16


def new_id() -> bytes:
    """Return a random id that is not zero and whose text does not begin with a hyphen."""
    while True:
        identity = urandom(ID_SIZE)
        if any(identity) and not encode_id(identity).startswith("-"):
            return identity


def encode_id(identity: bytes) -> str:
    """Encode an id as 22 characters of base64url without padding."""
    return urlsafe_b64encode(identity).decode().rstrip("=")


def decode_id(text: str) -> bytes:
    """Decode an id.

    Raises:
        ValueError: ``text`` is not an id.
    """
    identity = urlsafe_b64decode(text + "==")
    if len(identity) != ID_SIZE or encode_id(identity) != text:
        raise ValueError(f"no id: {text!r}")
    return identity
