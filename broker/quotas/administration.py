"""What administrators ask of quotas: which there are, and how they change (KIP-546). Pure.

Entities, filters and changes are checked by Kafka's rules: a quota is for a user, a client id, a
client id of a user, or an address; rates of bytes and of connections are whole numbers.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from ipaddress import ip_address
from typing import Final, NamedTuple

from qbus.errors import ApiError, ErrorCode
from qbus.metadata.client_quotas import (
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    DEFAULT,
    IP_KEYS,
    PRODUCER_BYTE_RATE,
    QuotaEntity,
)

from .connection_rates import normal_ip
from .resolution import Quotas

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

_WHOLE: Final = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    CONNECTION_CREATION_RATE: 2**31 - 1,
}
"""The quotas that are whole numbers, and how large they may be."""


class MatchType(IntEnum):
    """How a filter matches the name of an entity (``ClientQuotaFilterComponent``)."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class Filter(NamedTuple):
    """Asks for entities that have a part of this type, with a name that matches."""

    type: str
    match_type: int
    match: str | None


class Change(NamedTuple):
    """A quota to set, or to remove."""

    key: str
    value: float
    remove: bool


def parts(entity: QuotaEntity) -> list[tuple[str, str | None]]:
    """The types and names of an entity, as the protocol has them: None is the default's name."""
    named = ((USER, entity.user), (CLIENT_ID, entity.client_id), (IP, entity.ip))
    return [(kind, name or None) for kind, name in named if name is not None]


def make_entity(named: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """The entity with these types and names; None is the default's name.

    Raises:
        ApiError: INVALID_REQUEST, there is no such entity.
    """
    found: dict[str, str] = {}
    for kind, name in named:
        if kind not in {USER, CLIENT_ID, IP}:
            raise _invalid(f"quotas are for 'user', 'client-id' and 'ip', not for {kind!r}")
        if kind in found:
            raise _invalid(f"{kind!r} is named twice")
        if name is not None and not name:
            raise _invalid(f"the name of {kind!r} is empty; without a name it is the default")
        found[kind] = DEFAULT if name is None else name
    if not found:
        raise _invalid("it is not said whom the quota is for: 'user', 'client-id' or 'ip'")
    if IP in found:
        if len(found) > 1:
            raise _invalid("the quota of an 'ip' is for no 'user' and no 'client-id'")
        found[IP] = _checked_ip(found[IP])
    return QuotaEntity(found.get(USER), found.get(CLIENT_ID), found.get(IP))


def _checked_ip(name: str) -> str:
    if name == DEFAULT:
        return name
    try:
        ip_address(name)
    except ValueError:
        raise _invalid(f"{name!r} is no IP address; names of hosts are not looked up") from None
    return normal_ip(name)


def edit(
    entity: QuotaEntity, current: Mapping[str, str], changes: Iterable[Change]
) -> dict[str, str]:
    """The configuration of an entity after ``changes``; what is no quota stays.

    Raises:
        ApiError: INVALID_REQUEST, the entity has no such quota, or it may not have that value.
    """
    keys = CLIENT_KEYS if entity.ip is None else IP_KEYS
    edited = dict(current)
    for key, value, remove in changes:
        if key not in keys:
            raise _invalid(f"{entity} has no quota {key!r}; there are {', '.join(keys)}")
        if remove:
            edited.pop(key, None)
        else:
            edited[key] = _text(key, value)
    return edited


def _text(key: str, value: float) -> str:
    if not 0 < value < math.inf:
        raise _invalid(f"{key}={value:g}: a quota is a number greater than 0")
    most = _WHOLE.get(key)
    if most is None:
        return repr(value)
    if value != int(value):
        raise _invalid(f"{key}={value:g}: it has to be a whole number")
    if value > most:
        raise _invalid(f"{key}={value:g}: it is at most {most}")
    return str(int(value))


def describe(
    quotas: Quotas, filters: Sequence[Filter], *, strict: bool
) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
    """The entities that match all ``filters``, in order, with their quotas.

    ``strict``: and that have no part besides those that are asked for.

    Raises:
        ApiError: INVALID_REQUEST or UNSUPPORTED_VERSION, there are no such filters.
    """
    wanted = _checked(filters)
    found = [
        (entity, values)
        for entity, values in quotas.items()
        if _matches(dict(parts(entity)), wanted, strict=strict)
    ]
    return sorted(found, key=lambda one: one[0].place)


def _checked(filters: Sequence[Filter]) -> dict[str, Filter]:
    found: dict[str, Filter] = {}
    for one in filters:
        if not one.type:
            raise _invalid("a filter does not say for which type of entity it is")
        if one.type not in {USER, CLIENT_ID, IP}:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"quotas are for 'user', 'client-id' and 'ip', not for {one.type!r}",
            )
        if one.type in found:
            raise _invalid(f"there are two filters for {one.type!r}")
        if one.match_type not in MatchType.__members__.values():
            raise _invalid(f"{one.match_type} is no way to match")
        if (one.match_type == MatchType.EXACT) == (one.match is None):
            raise _invalid("a filter has a name if it is for an exact name, and only then")
        found[one.type] = one
    if IP in found and len(found) > 1:
        raise _invalid("a filter for 'ip' stands alone: such quotas have no other part")
    return found


def _matches(
    entity: Mapping[str, str | None], wanted: Mapping[str, Filter], *, strict: bool
) -> bool:
    for kind, one in wanted.items():
        if kind not in entity:
            return False
        name = entity[kind]
        if one.match_type == MatchType.DEFAULT and name is not None:
            return False
        if one.match_type == MatchType.EXACT and name != _as_kept(kind, one.match):
            return False
    return not strict or len(entity) == len(wanted)


def _as_kept(kind: str, name: str | None) -> str | None:
    return normal_ip(name) if kind == IP and name is not None else name


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
