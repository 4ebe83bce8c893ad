"""DescribeUserScramCredentials (key 50): mechanisms and iterations of users (KIP-554).

Salts and keys are never told. A user that is asked for twice is DUPLICATE_RESOURCE, one without
credentials RESOURCE_NOT_FOUND. The brokers' own user is in the configuration, and not told of.
"""

from collections import Counter
from typing import TYPE_CHECKING

from qbus.errors import ApiError, ErrorCode
from qbus.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

from ...authorization import CLUSTER, Operation
from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker


def handle(
    broker: "Broker", context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Describe the users that are asked for, or all."""
    if not context.allows(Operation.DESCRIBE, CLUSTER):
        return _deny(request)
    if request.users:
        asked = Counter(user.name for user in request.users)
        results = [_describe(broker, name, times) for name, times in asked.items()]
    else:
        results = [_describe(broker, name, 1) for name in broker.authentication.credentials.users()]
    return DescribeUserScramCredentialsResponse(results=results)


def _describe(broker: "Broker", name: str, times: int) -> DescribeUserScramCredentialsResult:
    if times > 1:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message="Cannot describe SCRAM credentials for the same user twice in a single "
            f"request: {name}",
        )
    found = broker.authentication.credentials.stored(name)
    if not found:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {name}",
        )
    return DescribeUserScramCredentialsResult(
        user=name,
        credential_infos=[
            CredentialInfo(mechanism=mechanism.number, iterations=credential.iterations)
            for mechanism, credential in found.items()
        ],
    )


def _deny(request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    """Refuse as a whole and, as Kafka does, for each user, without naming them."""
    denied = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return DescribeUserScramCredentialsResponse(
        error_code=denied.code,
        error_message=denied.message,
        results=[
            DescribeUserScramCredentialsResult(error_code=denied.code, error_message=denied.message)
            for _ in request.users or ()
        ],
    )
