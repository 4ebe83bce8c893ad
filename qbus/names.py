"""Names of topics, partitions and datacenters, and the escaping of any name for a znode.

Topic names have 1 to 249 characters of ``[a-zA-Z0-9._-]`` and are neither ``.`` nor ``..``. Names
that differ only in ``.`` and ``_`` collide, because Kafka's metrics do not distinguish the two
(Kafka's documentation of topics).

Group ids and transactional ids may have any characters, so they are escaped as percent-encoded
UTF-8 (RFC 3986), which is safe in every path and znode.

Datacenter names (``idc`` in configurations) have 1 to 64 characters of ``[a-zA-Z0-9_-]``, so that
``<idc>.<topic>`` is a topic name from which both can be read.
"""

import re
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from qbus.errors import ApiError, ErrorCode

MAX_TOPIC_NAME = 249

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"

INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state"})
"""The topics of the system's own, as Kafka names them: clients read them and never write."""

OWN_TOPICS_PREFIX = "__qbus_"
"""What the names of topics begin with that clients of Qbus keep their state in."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
_IDC = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_EMPTY = "%"  # no percent-encoded text is a lone %
_DOTS = {".": "%2E", "..": "%2E%2E"}


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


def check_topic_name(name: str) -> None:
    """Check that a topic may have this name.

    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION; the message names the problem.
    """
    problem = _problem(name)
    if problem:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"the topic name {problem}")


def is_topic_name(name: str) -> bool:
    """Whether a topic may have this name."""
    return _problem(name) is None


def check_idc_name(name: str) -> None:
    """Check that a datacenter may have this name.

    Raises:
        ValueError: it may not; the message has the rule.
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
        return f"{name!r} has other characters than ASCII letters, digits, '.', '_' and '-'"
    return None


def collision_key(name: str) -> str:
    """Return a key that is equal for topic names that collide."""
    return name.replace(".", "_")


def escape(name: str) -> str:
    """Return a znode name for any text; :func:`unescape` reverses it."""
    if name in _DOTS:
        return _DOTS[name]
    # surrogatepass: text that is not valid UTF-8 still gets a name of its own.
    return quote(name.encode("utf-8", "surrogatepass"), safe="") or _EMPTY


def unescape(znode: str) -> str:
    """Return the text of a znode name made by :func:`escape`.

    Raises:
        ValueError: it is not such a name.
    """
    if znode == _EMPTY:
        return ""
    name = unquote_to_bytes(znode).decode("utf-8", "surrogatepass")
    if escape(name) != znode:
        raise ValueError(f"{znode!r} is not an escaped name")
    return name


def sanitise(name: str) -> str:
    """Return the znode name of a user, a client id or an address, as Kafka's ``Sanitizer`` does.

    A name that is ``.`` or ``..`` has none there; here it gets one like any other text.
    """
    return escape(name).replace("~", "%7E")


def unsanitise(znode: str) -> str:
    """Return the name that :func:`sanitise` made a znode name of.

    Raises:
        ValueError: it is not such a name.
    """
    return unescape(znode.replace("%7E", "~"))
