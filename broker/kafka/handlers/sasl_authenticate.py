"""SaslAuthenticate (key 36): a message of the mechanism that the client has chosen (KIP-152).

A failure is SASL_AUTHENTICATION_FAILED, answered after a delay, and closes the connection. The last
answer tells from version 1 on how long the session lasts (KIP-368). Without a handshake before it
is ILLEGAL_SASL_STATE.
"""

from typing import TYPE_CHECKING

from qbus.errors import ErrorCode
from qbus.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

from ..context import RequestContext

if TYPE_CHECKING:
    from ...broker import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Answer with the server's message."""
    authentication, peer = broker.authentication, context.peer
    if not authentication.is_authenticating(peer):
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request without a SaslHandshake request before it",
        )
    answer = await authentication.authenticate(peer, bytes(request.auth_bytes))
    if answer.error is not None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=answer.error
        )
    return SaslAuthenticateResponse(
        auth_bytes=answer.message, session_lifetime_ms=answer.lifetime_ms
    )
