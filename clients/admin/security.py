"""Credentials and quotas: what the admin client asks about them."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from qbus.errors import ApiError, ConfigError, ErrorCode
from qbus.security.scram import ScramMechanism
from qbus.wire import ApiKey
from qbus.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
)
from qbus.wire.messages.alter_client_quotas import EntityData as ChangedEntity
from qbus.wire.messages.alter_client_quotas import EntryData as ChangedEntry
from qbus.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from qbus.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from qbus.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

from ..errors import api_error, check
from ..net.cluster import Cluster
from ..net.retry import Outcomes, results_or_raise, retrying
from .messages import outcome, outcomes
from .types import QuotaEntity, ScramCredentialInfo, ScramUpsert

T = TypeVar("T")

_EXACT, _DEFAULT = 0, 1
"""How a quota's entity is meant: of that name, or the default (KIP-546)."""
_SALT_BYTES = 24


async def describe_scram(
    cluster: Cluster, users: Iterable[str] | None
) -> dict[str, list[ScramCredentialInfo]]:
    """Return the SCRAM credentials of users."""
    names = None if users is None else [UserName(name=user) for user in dict.fromkeys(users)]
    if names == []:  # it would mean all
        return {}
    request = DescribeUserScramCredentialsRequest(users=names)

    async def ask() -> dict[str, list[ScramCredentialInfo]]:
        response: DescribeUserScramCredentialsResponse = await cluster.ask_any(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, request
        )
        check(response.error_code, response.error_message)
        found: Outcomes[str, list[ScramCredentialInfo]] = {}
        for result in response.results:
            if result.error_code != ErrorCode.NONE:
                found[result.user] = api_error(
                    result.error_code, result.error_message, of=f"user {result.user}"
                )
                continue
            found[result.user] = [
                ScramCredentialInfo(_mechanism_name(info.mechanism), info.iterations)
                for info in result.credential_infos
            ]
        return results_or_raise(found)

    return await retrying(cluster, "the users", ask)


async def alter_scram(
    cluster: Cluster, upserts: Iterable[ScramUpsert], deletions: Iterable[tuple[str, str]]
) -> None:
    """Store and delete SCRAM credentials."""
    stored = list(upserts)
    removed = [
        ScramCredentialDeletion(name=user, mechanism=_mechanism(mechanism).number)
        for user, mechanism in deletions
    ]
    hashed = await asyncio.to_thread(lambda: [_upsertion(each) for each in stored])
    for request in _requests(removed, hashed):
        await _at_controller(cluster, partial(_alter_scram, cluster, request))


async def _alter_scram(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> None:
    response: AlterUserScramCredentialsResponse = await cluster.ask_controller(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request
    )
    outcomes: Outcomes[str, None] = {
        result.user: outcome(result.error_code, result.error_message, f"user {result.user}")
        for result in response.results
    }
    results_or_raise(outcomes)


def _requests(
    removed: list[ScramCredentialDeletion], stored: list[ScramCredentialUpsertion]
) -> Iterator[AlterUserScramCredentialsRequest]:
    """Divide changes among requests: brokers take one for each user at a time."""
    waiting: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*removed, *stored]
    while waiting:
        first: dict[str, ScramCredentialDeletion | ScramCredentialUpsertion] = {}
        for change in waiting:
            first.setdefault(change.name, change)
        now = list(first.values())
        waiting = [change for change in waiting if first[change.name] is not change]
        yield AlterUserScramCredentialsRequest(
            deletions=[each for each in now if isinstance(each, ScramCredentialDeletion)],
            upsertions=[each for each in now if isinstance(each, ScramCredentialUpsertion)],
        )


async def describe_quotas(
    cluster: Cluster, entity: Mapping[str, str | None] | None, *, strict: bool
) -> dict[QuotaEntity, dict[str, float]]:
    """Return quotas of clients."""
    components = [
        ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name)
        for kind, name in (entity or {}).items()
    ]
    request = DescribeClientQuotasRequest(components=components, strict=strict)

    async def ask() -> dict[QuotaEntity, dict[str, float]]:
        response: DescribeClientQuotasResponse = await cluster.ask_any(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, request
        )
        check(response.error_code, response.error_message)
        return {
            tuple((part.entity_type, part.entity_name) for part in entry.entity): {
                value.key: value.value for value in entry.values
            }
            for entry in response.entries or ()
        }

    return await retrying(cluster, "the quotas", ask)


async def alter_quotas(
    cluster: Cluster, changes: Mapping[QuotaEntity, Mapping[str, float | None]]
) -> None:
    """Set and remove quotas of clients."""
    if not changes:
        return
    request = AlterClientQuotasRequest(
        entries=[
            ChangedEntry(
                entity=[ChangedEntity(entity_type=kind, entity_name=name) for kind, name in entity],
                ops=[
                    OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in limits.items()
                ],
            )
            for entity, limits in changes.items()
        ],
        validate_only=False,
    )

    async def ask() -> None:
        response: AlterClientQuotasResponse = await cluster.ask_any(
            ApiKey.ALTER_CLIENT_QUOTAS, request, is_repeatable=False
        )
        results = [(one.error_code, one.error_message) for one in response.entries]
        results_or_raise(outcomes(list(map(_words, changes)), results))

    await retrying(cluster, "the quotas", ask)


def _words(entity: QuotaEntity) -> str:
    """An entity in messages: ``user alice, client-id app``."""
    return ", ".join(f"{kind} {name or '(default)'}" for kind, name in entity)


async def _at_controller(cluster: Cluster, ask: Callable[[], Awaitable[T]]) -> T:
    async def attempt() -> T:
        try:
            return await ask()
        except ApiError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                cluster.metadata.forget_controller()
            raise

    return await retrying(cluster, "the controller", attempt)


def _upsertion(upsert: ScramUpsert) -> ScramCredentialUpsertion:
    """Salt and hash a password, which takes milliseconds."""
    mechanism = _mechanism(upsert.mechanism)
    if not upsert.password:
        raise ConfigError(f"user {upsert.user}: an empty password lets anybody in")
    salt = secrets.token_bytes(_SALT_BYTES)
    return ScramCredentialUpsertion(
        name=upsert.user,
        mechanism=mechanism.number,
        iterations=upsert.iterations,
        salt=salt,
        salted_password=mechanism.salted_password(
            upsert.password.encode(), salt, upsert.iterations
        ),
    )


def _mechanism(name: str) -> ScramMechanism:
    found = ScramMechanism.of(name.upper())
    if found is None:
        names = ", ".join(each.mechanism for each in ScramMechanism)
        raise ConfigError(f"{name!r} is none of {names}")
    return found


def _mechanism_name(number: int) -> str:
    found = ScramMechanism.numbered(number)
    return f"UNKNOWN ({number})" if found is None else found.mechanism
