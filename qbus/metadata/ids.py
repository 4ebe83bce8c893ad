"""Ids that nobody else has: of clusters and of topics, 16 random bytes, written as Kafka does."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from os import urandom

ID_SIZE = 16


def new_id() -> bytes:
    """A random id, never zero, and never one whose text a command would take for an option."""
    while True:
        identity = urandom(ID_SIZE)
        if any(identity) and not encode_id(identity).startswith("-"):
            return identity


def encode_id(identity: bytes) -> str:
    """The 22 characters of base64url, without padding, that stand for an id."""
    return urlsafe_b64encode(identity).decode().rstrip("=")


def decode_id(text: str) -> bytes:
    """The id that ``text`` stands for.

    Raises:
        ValueError: it stands for none.
    """
    identity = urlsafe_b64decode(text + "==")
    if len(identity) != ID_SIZE or encode_id(identity) != text:
        raise ValueError(f"no id: {text!r}")
    return identity
