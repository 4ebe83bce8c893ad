"""AlterUserScramCredentials (key 51): what users log in with, set and removed (KIP-554).

Each user succeeds or fails alone, and may come once in a request: else it is DUPLICATE_RESOURCE.
The answer comes once this broker has the change in force; the others follow within moments, and
close the connections of users that were removed.
"""

import logging
import re
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from qbus.errors import ApiError, ErrorCode
from qbus.metadata.znodes import ALL_USERS
from qbus.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential, ScramMechanism
from qbus.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

from ...authorization import CLUSTER, Operation
from ...controller import ConfigChange
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker

_log = logging.getLogger(__name__)

_MAX_NAME: Final = 1024
_MAX_SALT: Final = 1024
_MAX_SALTED: Final = 1024
"""Kafka takes any length: HMAC takes a key of any. This one bounds what a request may cost."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # it would forge lines of logs

_Item = ScramCredentialDeletion | ScramCredentialUpsertion


async def handle(
    broker: "Broker", context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Alter each user's credentials for itself."""
    items: list[_Item] = [*request.deletions, *request.upsertions]
    times = Counter(item.name for item in items)
    outcomes: dict[str, ApiError | None] = dict.fromkeys(times)
    try:
        context.authorize(Operation.ALTER, CLUSTER)
    except ApiError as error:
        return _response(dict.fromkeys(times, error))
    changes = []
    for item in items:
        try:
            if times[item.name] > 1:
                raise ApiError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            changes.append(ConfigChange(item.name, _edit(item)))
        except ApiError as error:
            outcomes[item.name] = error
    results = await broker.controller.alter_users(changes)
    for change, outcome in zip(changes, results, strict=True):
        outcomes[change.name] = outcome
        if outcome is None:
            _log.info("the credentials of %r are altered by %s", change.name, context.sender)
            if broker.audit is not None:
                broker.audit.administration(context.caller, "alter credentials", change.name)
    return _response(outcomes)


def _edit(item: _Item) -> partial[dict[str, str]]:
    """What the item makes of the user's node.

    Raises:
        ApiError: the item is not acceptable.
    """
    mechanism = ScramMechanism.numbered(item.mechanism)
    _check_name(item.name)
    if mechanism is None:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(item, ScramCredentialDeletion):
        return partial(_without, mechanism)
    if item.iterations < MIN_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if item.iterations > MAX_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    salt, salted = bytes(item.salt), bytes(item.salted_password)
    if not (0 < len(salt) <= _MAX_SALT and 0 < len(salted) <= _MAX_SALTED):
        raise ApiError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"expected a salt of 1 to {_MAX_SALT} bytes, and a salted password of 1 to"
            f" {_MAX_SALTED} bytes",
        )
    credential = ScramCredential.from_salted_password(mechanism, salted, salt, item.iterations)
    return partial(_with, mechanism, credential)


def _check_name(name: str) -> None:
    if not name:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if name == ALL_USERS or len(name) > _MAX_NAME or _CONTROL.search(name):
        raise ApiError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"a name of at most {_MAX_NAME} characters, none of control, other than {ALL_USERS}",
        )


def _with(
    mechanism: ScramMechanism, credential: ScramCredential, current: Mapping[str, str]
) -> dict[str, str]:
    return {**current, mechanism.mechanism: credential.encode()}


def _without(mechanism: ScramMechanism, current: Mapping[str, str]) -> dict[str, str]:
    if mechanism.mechanism not in current:
        raise ApiError(
            ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        )
    return {name: value for name, value in current.items() if name != mechanism.mechanism}


def _response(outcomes: Mapping[str, ApiError | None]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=name,
                error_code=error.code if error else ErrorCode.NONE,
                error_message=error.message if error else None,
            )
            for name, error in outcomes.items()
        ]
    )
