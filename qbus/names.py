"""Names: which ones a topic may have, and how any name becomes that of a znode.

Topics: 1 to 249 of ``[a-zA-Z0-9._-]``, neither ``.`` nor ``..``; names that differ only in ``.``
and ``_`` collide, because Kafka's metrics take both for the same (Kafka's documentation of topics).

Group ids and transactional ids may hold anything, so they are escaped: percent-encoded UTF-8
(RFC 3986), of which every path and every znode is safe.

IDCs: 1 to 64 of ``[a-zA-Z0-9_-]``, so that ``<idc>.<topic>`` is a topic's name and tells both.
"""

import re
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from qbus.errors import ApiError, ErrorCode

MAX_TOPIC_NAME = 249

_TOPIC = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
_IDC = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_EMPTY = "%"  # no percent-encoding is a lone %
_DOTS = {".": "%2E", "..": "%2E%2E"}


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


def check_topic_name(name: str) -> None:
    """Check that a topic may have this name.

    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION; the message says what is wrong.
    """
    problem = _problem(name)
    if problem:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"the topic name {problem}")


def is_topic_name(name: str) -> bool:
    """Whether a topic may have this name."""
    return _problem(name) is None


def check_idc_name(name: str) -> None:
    """Check that an IDC may have this name.

    Raises:
        ValueError: it may not; the message says what may be.
    """
    if not _IDC.fullmatch(name):
        raise ValueError("an IDC's name: 1 to 64 ASCII letters, digits, '_' and '-'")


def _problem(name: str) -> str | None:
    if not name:
        return "is empty"
    if name in _DOTS:
        return f"is {name!r}"
    if len(name) > MAX_TOPIC_NAME:
        return f"is {len(name)} characters long, at most {MAX_TOPIC_NAME} are allowed"
    if not _TOPIC.fullmatch(name):
        return f"{name!r} holds something else than ASCII letters, digits, '.', '_' and '-'"
    return None


def collision_key(name: str) -> str:
    """What two topic names that collide have in common."""
    return name.replace(".", "_")


def escape(name: str) -> str:
    """A znode name for any text; :func:`unescape` is its reverse."""
    if name in _DOTS:
        return _DOTS[name]
    # surrogatepass: what is not valid UTF-8 keeps a name of its own all the same.
    return quote(name.encode("utf-8", "surrogatepass"), safe="") or _EMPTY


def unescape(znode: str) -> str:
    """The text that :func:`escape` made this znode name of.

    Raises:
        ValueError: it made no such name.
    """
    if znode == _EMPTY:
        return ""
    name = unquote_to_bytes(znode).decode("utf-8", "surrogatepass")
    if escape(name) != znode:
        raise ValueError(f"{znode!r} is no escaped name")
    return name
